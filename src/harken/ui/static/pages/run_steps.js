// The time line of a run: each step with when and how long, and on demand what went in, what came out and what went wrong.
import { html } from "../vendor/preact.js";
import { Pill } from "../components/pill.js";
import { Empty } from "../components/states.js";
import { Ago } from "../components/time_text.js";
import { count, line, number } from "../format.js";
import { useListKeys } from "../keys.js";
import { navigate, query, setQuery } from "../router.js";
import { may } from "../session.js";
import { span, stamp } from "../time.js";
import { RunValue } from "./run_value.js";

export function RunSteps({ run }) {
  const chosen = query.value.step ?? "";
  const rows = inOrder(run.steps);
  const at = rows.findIndex(({ step }) => step.path === chosen);
  const choose = (path) => setQuery({ step: path }, { push: true });
  const move = (by) => {
    const next = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
    if (!next) return;
    setQuery({ step: next.step.path });
    document.querySelector(`[data-step="${CSS.escape(next.step.path)}"]`)?.scrollIntoView({ block: "nearest" });
  };
  useListKeys({ move, open: () => at >= 0 && choose(chosen), clear: () => (chosen ? choose("") : navigate("/runs")) });
  if (!run.steps.length) return html`<${Empty} title="No step has been done yet."><p>${run.started_at ? "The first one is at work." : "The run has not begun."}</p><//>`;
  const [begin, whole] = bounds(run.steps);
  return html`<ol class="steps">${rows.map(({ step, index }) => html`<${Step} key=${step.path} run=${run} index=${index} step=${step} begin=${begin} whole=${whole}
    open=${step.path === chosen} toggle=${() => choose(step.path === chosen ? "" : step.path)} />`)}</ol>`;
}

/** {step, index} as they are read: a step stands above those inside it, though it ends after them, as the journal has it. */
function inOrder(steps) {
  const firsts = new Map(); // where the first step inside each path stands
  steps.forEach(({ path }, index) => {
    for (const { index: end } of path.matchAll(/[.[]|$/g)) if (!firsts.has(path.slice(0, end))) firsts.set(path.slice(0, end), index);
  });
  const rows = steps.map((step, index) => ({ step, index }));
  return rows.sort((one, other) => firsts.get(one.step.path) - firsts.get(other.step.path) || one.step.path.length - other.step.path.length);
}

/** When the first step began, in ms, and how long it took until the last one ended. */
function bounds(steps) {
  const begins = steps.map((step) => Date.parse(step.started_at)).filter(Number.isFinite);
  const ends = steps.map((step) => Date.parse(step.finished_at ?? step.started_at)).filter(Number.isFinite);
  const begin = Math.min(...begins);
  return [begin, Math.max(1, Math.max(...ends) - begin)];
}

function Step({ run, index, step, begin, whole, open, toggle }) {
  const left = Number.isFinite(Date.parse(step.started_at)) ? Math.min(99, ((Date.parse(step.started_at) - begin) / whole) * 100) : 0;
  const width = Math.max(0.6, Math.min(100 - left, (((step.seconds ?? 0) * 1000) / whole) * 100));
  const depth = step.path.split(/\.(?=\D)/).length - 1;
  return html`<li data-step=${step.path}>
    <button class="step" aria-expanded=${open} onClick=${toggle}>
      <span class="step-name depth-${Math.min(4, depth)}"><strong>${line(step.path, 80)}</strong> <span class="dim">${step.action}</span></span>
      <span class="step-bar" aria-hidden="true"><span class=${step.status} style=${{ left: `${left}%`, width: `${width}%` }}></span></span>
      <span class="step-time number">${step.from_run ? "taken" : step.seconds == null ? "–" : span(step.seconds)}</span>
      <${Pill} status=${step.status} />
    </button>
    ${!open && step.error && html`<p class="step-error">${line(step.error, 300)}</p>`}
    ${open && html`<${StepDetail} run=${run} index=${index} step=${step} />`}
  </li>`;
}

function StepDetail({ run, index, step }) {
  const facts = [
    step.started_at && `began ${stamp(step.started_at)}`,
    step.tries > 1 && count(step.tries, "try", "tries"),
    step.tokens > 0 && `${number(step.tokens)} tokens`,
    step.usd > 0 && `${step.usd.toFixed(4)} USD`,
  ].filter(Boolean);
  const isOver = ["done", "failed", "dead", "cancelled"].includes(run.status);
  const rerun = () => setQuery({ rerun: step.path }, { push: true });
  return html`<div class="step-detail">
    <p class="dim">${facts.join(" · ")}${step.from_run && html` · not done in this run, but taken from <a href="/runs/${step.from_run}">${step.from_run.slice(0, 12)}</a>`}</p>
    ${step.error && html`<p class="run-error">${line(step.error, 4000)}</p>`}
    ${step.warnings.length > 0 && html`<ul class="warnings">${step.warnings.map((text) => html`<li>${line(text, 1000)}</li>`)}</ul>`}
    ${texts(step).map(([title, text]) => html`<h2>${title}</h2><pre class="spoken" tabindex="0">${clean(text)}</pre>`)}
    <h2>Input</h2><${RunValue} run=${run} place="steps.${index}.input" label="Input of ${step.path}" />
    <h2>Output</h2><${RunValue} run=${run} place="steps.${index}.output" label="Output of ${step.path}" />
    ${isOver && may("runs.rerun") && html`<p><button onClick=${rerun}>Rerun from here…</button></p>`}
  </div>`;
}

/** What a model was told and what it said, to be read as text. */
function texts(step) {
  const given = step.input ?? {};
  const said = step.output?.response;
  return [["Instructions", given.system], ["Prompt", given.prompt], ["Answer", said]].filter(([, text]) => typeof text === "string" && text);
}

/** Text of several lines, of which each is safe to show. */
function clean(text) {
  return text.slice(0, 20_000).split("\n").map((one) => line(one, 4000)).join("\n");
}
