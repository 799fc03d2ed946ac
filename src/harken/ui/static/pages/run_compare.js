// A run beside the last one of the same workflow that went well.
import { html } from "../vendor/preact.js";
import { at, get } from "../api.js";
import { JsonDiff } from "../components/json_diff.js";
import { Pill } from "../components/pill.js";
import { Empty, Shown } from "../components/states.js";
import { Table } from "../components/table.js";
import { Ago } from "../components/time_text.js";
import { bytes, line } from "../format.js";
import { useResource } from "../resource.js";
import { span } from "../time.js";

const LARGE = 50_000;

export function RunCompare({ run }) {
  const found = useResource((signal) => findGood(run, signal), [run.id]);
  return html`<${Shown} of=${found} what="the last good run" show=${(good) => good === null
    ? html`<${Empty} title="No other run of ${run.workflow} went well yet."><p>There is nothing to compare with.</p><//>`
    : html`<${Compared} run=${run} good=${good} />`} />`;
}

/** The newest done run before this one, or else the newest of all; null if there is none. */
async function findGood(run, signal) {
  const { items } = await get("/api/runs", { workflow: run.workflow, status: "done", limit: 200, fields: "id,outcome,created_at" }, { signal });
  const others = items.filter((row) => row.id !== run.id && row.outcome === "done");
  const chosen = others.find((row) => row.created_at < run.created_at) ?? others[0];
  if (!chosen) return null;
  const good = await get(at`/api/runs/${chosen.id}`, { cut: LARGE }, { signal });
  return { ...good, events: await Promise.all([run, good].map((one) => eventOf(one, signal))) };
}

/** The data of the event that started a run which takes its event as it is; null where it has an input of its own. */
async function eventOf(run, signal) {
  if (run.input !== null || run.cut.length || !run.event_ids.length) return null;
  try {
    return (await get(`/api/events/${run.event_ids.at(-1)}`, {}, { signal })).data;
  } catch (error) {
    if (error.status === 404) return null; // retention has it
    throw error;
  }
}

function Compared({ run, good }) {
  const paths = [...new Set([...good.steps, ...run.steps].map((step) => step.path))];
  const rows = paths.map((path) => ({ path, good: good.steps.find((step) => step.path === path), here: run.steps.find((step) => step.path === path) }));
  const columns = [
    { name: "path", words: "Step", cell: (row) => html`<strong>${line(row.path, 80)}</strong>` },
    { name: "good", words: "Good run", cell: (row) => html`<${Outcome} step=${row.good} />` },
    { name: "here", words: "This run", cell: (row) => html`<${Outcome} step=${row.here} />` },
  ];
  const [event, goodEvent] = good.events.map((data) => ({ data }));
  const values = [["Event", "data", event, goodEvent], ["Input", "input", run, good], ...rows.filter((row) => row.good && row.here).flatMap((row) => [
    [`Input of ${row.path}`, "input", row.here, row.good], [`Output of ${row.path}`, "output", row.here, row.good]]), ["Output", "output", run, good]];
  const differing = values.filter(([, name, here, there]) => JSON.stringify(here[name]) !== JSON.stringify(there[name]));
  return html`<p>Compared with <a href="/runs/${good.id}">${good.id.slice(0, 12)}</a>, which went well <${Ago} at=${good.finished_at ?? good.created_at} />.
      ${good.workflow_rev !== run.workflow_rev && " It had another revision of the workflow."}</p>
    <${Table} label="Steps of both runs" columns=${columns} rows=${rows} keyOf=${(row) => row.path} />
    ${differing.map(([title, name, here, there]) => html`<h2 class="diff-title">${line(title, 100)}</h2><${JsonDiff} before=${there[name]} after=${here[name]} names=${["good run", "this run"]} root=${name} />`)}
    ${!differing.length && html`<p class="dim">Inputs and outputs are the same.</p>`}
    ${(run.cut.length > 0 || good.cut.length > 0) && html`<p class="dim">Values of more than ${bytes(LARGE)} are not compared.</p>`}`;
}

function Outcome({ step }) {
  if (!step) return html`<span class="dim">not reached</span>`;
  return html`<${Pill} status=${step.status} /> ${step.seconds == null ? "" : span(step.seconds)}`;
}
