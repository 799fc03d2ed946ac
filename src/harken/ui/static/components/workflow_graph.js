// The steps of a workflow as a graph: one below the other, branches side by side, with the state of a run on it.
// It is a nested list, so that screen readers and small screens have the same picture.
import { html } from "../vendor/preact.js";
import { Pill } from "./pill.js";
import { line } from "../format.js";
import { span } from "../time.js";

/** `steps`: as the workflow defines them. `journal`: the steps of a run (GET /api/runs/ID), or nothing. */
export function WorkflowGraph({ steps, journal = null }) {
  const done = journal && new Map(journal.map((entry) => [entry.path, entry]));
  return html`<${Steps} steps=${steps} prefix="" done=${done} label="Steps" />`;
}

/**
 * The branches of a step as [{name, why, steps, prefix}]; `prefix` is how the journal's paths inside begin.
 * A step in a loop has one path for each item; `prefix` is then a pattern.
 */
export function branchesOf(step, path) {
  const { action, cases = {}, branches = {} } = step;
  if (action === "if") {
    return [["then", step.then], ["else", step.else]].filter(([, steps]) => steps?.length)
      .map(([name, steps]) => ({ name, why: name === "then" ? step.condition : "", steps, prefix: `${path}.${name}.` }));
  }
  if (action === "switch") {
    const found = Array.isArray(cases)
      ? cases.map((one, at) => ({ name: `case ${at + 1}`, why: one.when, steps: one.steps, prefix: `${path}.cases[${at}].` }))
      : Object.entries(cases).map(([name, inside]) => ({ name, why: "", steps: inside, prefix: `${path}.cases[${name}].` }));
    return step.default?.length ? [...found, { name: "otherwise", why: "", steps: step.default, prefix: `${path}.default.` }] : found;
  }
  if (action === "foreach") return [{ name: "for each item", why: "", steps: step.steps, prefix: `${path}[`, each: true }];
  if (action === "parallel") return Object.entries(branches).map(([name, inside]) => ({ name, why: "", steps: inside, prefix: `${path}.${name}.` }));
  return [];
}

function Steps({ steps, prefix, done, label, each = false }) {
  return html`<ol class="graph" aria-label=${label}>
    ${steps.map((step, at) => html`<${Step} key=${step.id ?? at} step=${step} path=${`${prefix}${step.id}`} done=${each ? null : done} />`)}
  </ol>`;
}

function Step({ step, path, done }) {
  const entry = done?.get(path);
  const branches = branchesOf(step, path);
  const state = !done ? "" : entry ? STATES[entry.status] ?? entry.status : "not reached";
  return html`<li class="graph-step">
    <div class="graph-box ${state.replace(" ", "-")}">
      <span class="graph-id">${step.id}</span> <span class="dim">${step.action}</span>
      ${state && html` <${Pill} status=${state}>${state}${entry?.seconds ? ` in ${span(entry.seconds)}` : ""}<//>`}
      <div class="graph-what">${line(summary(step), 120)}</div>
      ${entry?.error && html`<div class="wrong">${line(entry.error, 300)}</div>`}
    </div>
    ${branches.length > 0 && html`<div class="graph-branches">${branches.map((branch) => html`<section key=${branch.name} aria-label="${step.id}, ${branch.name}">
      <h3>${branch.name}${branch.why && html` <code>${line(String(branch.why), 80)}</code>`}</h3>
      ${branch.each && done && html`<p class="dim">${iterations(done, branch.prefix)}</p>`}
      <${Steps} steps=${branch.steps ?? []} prefix=${branch.prefix} done=${done} each=${branch.each} label="${step.id}, ${branch.name}" />
    </section>`)}</div>`}
  </li>`;
}

const STATES = { ok: "done" };

/** What a step does, in a few words: the first of its own settings that tells it. */
function summary(step) {
  const told = step.name ?? step.condition ?? step.url ?? step.prompt ?? step.message ?? step.text ?? step.command ?? step.workflow ?? step.topic;
  if (told != null) return typeof told === "string" ? told : JSON.stringify(told);
  return step.set ? `sets ${Object.keys(step.set).join(", ")}` : "";
}

function iterations(done, prefix) {
  const numbers = new Set([...done.keys()].filter((path) => path.startsWith(prefix)).map((path) => path.slice(prefix.length).split("]")[0]));
  return numbers.size ? `${numbers.size} ${numbers.size === 1 ? "item" : "items"} begun` : "no item yet";
}
