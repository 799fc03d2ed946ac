// One workflow: its steps as a graph with the state of a run on it, and its text.
import { html, useEffect } from "../vendor/preact.js";
import { at, get } from "../api.js";
import { asCurl, command, CopyMenu } from "../components/copy.js";
import { Editor } from "../components/lazy.js";
import { Link, triggerPath, workflowPath } from "../components/link.js";
import { Pill } from "../components/pill.js";
import { Empty, Shown } from "../components/states.js";
import { Tabs, useTab } from "../components/tabs.js";
import { Ago } from "../components/time_text.js";
import { WorkflowGraph } from "../components/workflow_graph.js";
import { line } from "../format.js";
import { useResource } from "../resource.js";
import { FileEditor, mayEdit, RefusedFile } from "./file_editor.js";
import { query, setQuery } from "../router.js";
import { may } from "../session.js";
import { onStream } from "../stream.js";

const TABS = [["graph", "Steps"], ["yaml", "YAML"]];
const RECENT = 20;
const SHOWN = 1000; // bytes of a value: the graph shows how the steps went

export default function Workflow({ name }) {
  const found = useResource((signal) => get(at`/api/workflows/${name}`, {}, { signal }), [name]);
  const refused = found.error?.code === "misconfigured" && found.data === undefined;
  if (refused && may("workflows.write")) return html`<${RefusedFile} name=${name} error=${found.error} reload=${found.reload} />`;
  return html`<${Shown} of=${found} what=${name} show=${(workflow) => html`<${Whole} workflow=${workflow} reload=${found.reload} />`} />`;
}

function Whole({ workflow, reload }) {
  const tab = useTab("tab", TABS);
  const forms = {
    YAML: () => workflow.yaml,
    JSON: () => JSON.stringify(workflow.definition, null, 2),
    CEL: () => `workflow == ${JSON.stringify(workflow.name)}`,
    cURL: () => asCurl(at`/api/workflows/${workflow.name}/run`, {}),
    Command: () => command("workflows", "run", workflow.name, "--wait"),
    Link: () => location.origin + workflowPath(workflow.name),
  };
  return html`<div class="page-head">
      <h1>${workflow.name}</h1>
      <span class="dim">${workflow.source || "a row in the store"}, revision ${workflow.rev.slice(0, 8)}</span>
      <div class="tools">${mayEdit(workflow.source) && !query.value.edit && html`<button onClick=${() => setQuery({ tab: "yaml", edit: "1" }, { push: true })}>Edit</button>`}<${CopyMenu} forms=${forms} /></div>
    </div>
    <div class="stack">
      <p>Started by ${workflow.triggers.length ? workflow.triggers.map((name, each) => html`${each > 0 && ", "}<${Link} to=${triggerPath(name)}>${name}<//>`) : "nothing but a person"}.</p>
      <section class="card" aria-label="Workflow">
        <div class="card-head"><${Tabs} name="tab" tabs=${TABS} label="Views" panel="workflow-panel" /></div>
        <div id="workflow-panel" role="tabpanel" aria-label=${tab === "yaml" ? "YAML" : "Steps"}>
          ${tab === "yaml" ? html`<${Text} workflow=${workflow} reload=${reload} />` : html`<${Graph} workflow=${workflow} />`}
        </div>
      </section>
    </div>`;
}

function Graph({ workflow }) {
  const runs = useResource(async (signal) => (await get("/api/runs", { workflow: workflow.name, limit: RECENT }, { signal })).items, [workflow.name]);
  const chosen = query.value.run ?? "";
  const run = useResource((signal) => (chosen ? get(at`/api/runs/${chosen}`, { cut: SHOWN }, { signal }) : null), [chosen]);
  useEffect(() => onStream("run", (row) => {
    if (row.workflow !== workflow.name) return;
    if (row.id === chosen) run.reload();
    runs.reload();
  }), [workflow.name, chosen, run.reload, runs.reload]);
  useEffect(() => onStream("begin", () => (run.reload(), runs.reload())), [run.reload, runs.reload]);
  const steps = workflow.definition.steps ?? [];
  if (!steps.length) return html`<${Empty} title="This workflow has no steps."><p>Its runs record that the event happened, and nothing more.</p><//>`;
  return html`<div class="stack">
    <${RunChoice} runs=${runs} chosen=${chosen} />
    ${chosen && html`<${Shown} of=${run} what="the run" show=${(shown) => shown && html`<${RunLine} run=${shown} workflow=${workflow} />`} />`}
    <${WorkflowGraph} steps=${steps} journal=${(chosen && run.data?.steps) || null} />
  </div>`;
}

function RunChoice({ runs, chosen }) {
  return html`<label class="inline-field">Show the state of
    <select value=${chosen} onChange=${(event) => setQuery({ run: event.target.value }, { push: true })}>
      <option value="">no run</option>
      ${(runs.data ?? []).map((row) => html`<option key=${row.id} value=${row.id}>${row.id.slice(0, 8)} · ${row.outcome} · ${line(row.event_keys[0] ?? "by hand", 40)}</option>`)}
      ${chosen && !(runs.data ?? []).some((row) => row.id === chosen) && html`<option value=${chosen}>${chosen.slice(0, 8)}</option>`}
    </select></label>`;
}

function RunLine({ run, workflow }) {
  return html`<p><${Link} to="/runs/${run.id}">Run ${run.id.slice(0, 8)}<//> <${Pill} status=${run.outcome} /> <${Ago} at=${run.created_at} />
    ${run.workflow_rev !== workflow.rev && html` <span class="wrong">It ran on another revision (${run.workflow_rev.slice(0, 8)}), so its steps may be others than these.</span>`}</p>`;
}

function Text({ workflow, reload }) {
  if (query.value.edit && mayEdit(workflow.source)) {
    return html`<${FileEditor} name=${workflow.source} yaml=${workflow.yaml} then=${reload} close=${() => setQuery({ edit: "" }, { push: true })} />`;
  }
  return html`<div class="stack"><${Editor} value=${workflow.yaml} readOnly=${true} label="YAML of ${workflow.name}" />
    <p class="dim">${workflow.source ? html`It is defined in <code>${workflow.source}</code>: change it ${mayEdit(workflow.source) ? "here or there" : "there"}; Harken loads it by itself.` : "It is a row in the store."}</p></div>`;
}
