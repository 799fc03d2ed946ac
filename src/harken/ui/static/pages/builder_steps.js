// What a trigger starts: steps of its own, or a workflow that is there.
import { html, useMemo } from "../vendor/preact.js";
import { getAll } from "../api.js";
import { Editor } from "../components/lazy.js";
import { useResource } from "../resource.js";
import { STEPS } from "./builder_draft.js";

const BEGINNINGS = {
  "Note it down": STEPS,
  "Ask a model": `steps:\n  - id: triage\n    action: llm\n    prompt: |\n      How urgent is this, and why?\n      {{.trigger.event.title}}\n`,
  "Call a URL": `steps:\n  - id: call\n    action: http\n    url: https://example.com/hook\n    json:\n      key: "{{.trigger.key}}"\n`,
  "Ask a person first": `steps:\n  - id: ask\n    action: approve\n    prompt: "May I go on with {{.trigger.key}}?"\n  - id: note\n    action: transform\n    set:\n      text: approved\n`,
};
const NONE = [];

export function Steps({ draft, change, problems }) {
  const workflows = useResource((signal) => getAll("/api/workflows", {}, { signal }).catch(() => NONE), []);
  const wrong = problems.filter(({ path }) => path.length > 0 && !["name", "trigger", "provider"].includes(path[0]));
  const marks = useMemo(() => (draft.workflow ? NONE : wrong), [JSON.stringify(wrong), draft.workflow]);
  const names = [...new Set([...(workflows.data ?? []).map((one) => one.name), draft.workflow].filter(Boolean))];
  return html`<section class="card stack" aria-labelledby="runs"><div class="card-head"><h2 id="runs">What should run?</h2>
      <label class="inline-field"><span class="sr">What it starts</span><select value=${draft.workflow} onChange=${(event) => change({ workflow: event.currentTarget.value })}>
        <option value="">Steps of its own</option>${names.map((name) => html`<option key=${name} value=${name}>The workflow ${name}</option>`)}</select></label></div>
    ${!draft.workflow && html`<p class="row-buttons"><span class="dim">Begin with</span>${Object.entries(BEGINNINGS).map(([words, steps]) => html`<button key=${words} class="quiet" onClick=${() => change({ steps })}>${words}</button>`)}</p>
      <${Editor} value=${draft.steps} onChange=${(steps) => change({ steps }, "steps")} label="Steps as YAML" findings=${marks} />`}
    <div role="alert">${wrong.map((one) => html`<p key=${one.path.join(".") + one.message} class="wrong">${draft.workflow ? "" : `Line ${one.line}: `}${one.path.join(".")}: ${one.message}${one.fix && `. ${one.fix}`}</p>`)}</div></section>`;
}
