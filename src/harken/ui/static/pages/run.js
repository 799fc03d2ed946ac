// One run: what it did step by step, with what and why, and what may be done about it.
import { html, useEffect } from "../vendor/preact.js";
import { at, get, post } from "../api.js";
import { Action } from "../components/action.js";
import { asCurl, command, CopyMenu, testForms } from "../components/copy.js";
import { Link, triggerPath } from "../components/link.js";
import { Pill } from "../components/pill.js";
import { Empty, Loading, Shown } from "../components/states.js";
import { Tabs, useTab } from "../components/tabs.js";
import { Ago, Clock } from "../components/time_text.js";
import { count, line, number, words } from "../format.js";
import { useKeys } from "../keys.js";
import { useInterval, useResource } from "../resource.js";
import { navigate, query, setQuery } from "../router.js";
import { may } from "../session.js";
import { onStream } from "../stream.js";
import { span, stamp } from "../time.js";
import { RunCompare } from "./run_compare.js";
import { RerunDialog } from "./run_rerun.js";
import { RunSteps } from "./run_steps.js";
import { RunValue } from "./run_value.js";

const TABS = [["steps", "Steps"], ["values", "In and out"], ["events", "Events"], ["compare", "Compare"]];
const FINAL = ["done", "failed", "dead", "cancelled"];
const LARGE = 50_000;
const REFRESH_MS = 2000;

export default function RunPage({ id }) {
  const found = useResource((signal) => get(at`/api/runs/${id}`, { cut: LARGE }, { signal }), [id]);
  useEffect(() => onStream("run", (row) => row.id === found.data?.id && found.reload()), [found.data?.id, found.reload]);
  useInterval(() => found.data && !FINAL.includes(found.data.status) && found.refresh(), REFRESH_MS);
  if (found.data && !found.data.id.startsWith(id)) return html`<${Loading} what="the run" />`;
  return html`<${Shown} of=${found} what="the run" show=${(run) => html`<${Whole} run=${run} reload=${found.reload} />`} />`;
}

function Whole({ run, reload }) {
  const tab = useTab("tab", TABS);
  useKeys([["u", "Back to the runs", () => navigate("/runs")]]);
  return html`<div class="stack">
    <${Head} run=${run} reload=${reload} />
    ${run.error && html`<p class="run-error" role="note">${line(run.error, 2000)}</p>`}
    <div><${Tabs} name="tab" tabs=${TABS} label="Parts of the run" panel="run-part" /></div>
    <section id="run-part" role="tabpanel" aria-label=${TABS.find(([name]) => name === tab)[1]} class="card">
      ${tab === "steps" && html`<${RunSteps} run=${run} />`}
      ${tab === "values" && html`<${Values} run=${run} />`}
      ${tab === "events" && html`<${Events} run=${run} />`}
      ${tab === "compare" && html`<${RunCompare} run=${run} />`}
    </section>
    ${query.value.rerun && may("runs.rerun") && html`<${RerunDialog} key=${query.value.rerun} run=${run} from=${query.value.rerun} />`}
  </div>`;
}

function Head({ run, reload }) {
  const forms = {
    JSON: async () => JSON.stringify(await get(at`/api/runs/${run.id}`), null, 2),
    CEL: () => `id == ${JSON.stringify(run.id)}`,
    cURL: () => asCurl(`/api/runs/${run.id}`),
    Command: () => command("runs", "show", run.id),
    "Command to rerun": () => command("runs", "rerun", run.id),
    ...(run.trigger && run.event_ids.length === 1 ? testForms(run.event_ids[0], run.trigger) : {}),
    YAML: async () => (await get(at`/api/workflows/${run.workflow}`)).yaml,
    Link: () => location.href,
  };
  return html`<div class="run-head">
    <p class="crumbs"><a href="/runs">Runs</a> / <code>${run.id.slice(0, 12)}</code></p>
    <div class="page-head"><h1>${run.workflow}</h1><${Pill} status=${run.outcome} />
      <div class="tools"><${Buttons} run=${run} reload=${reload} /><${CopyMenu} forms=${forms} /></div></div>
    <p class="dim">${facts(run)}
      ${run.trigger && html` · by <${Link} to=${triggerPath(run.trigger)}>${run.trigger}<//>`}
      ${run.replay_of && html` · again for <a href="/runs/${run.replay_of}">${run.replay_of.slice(0, 12)}</a>`}
      ${run.parent && html` · part of <a href="/runs/${run.parent}">${run.parent.slice(0, 12)}</a>`}</p>
    ${run.hold && html`<p>It is held: ${words(run.hold)}.</p>`}
    ${run.waiting_for && html`<p>It waits for ${words(run.waiting_for)}.${question(run) && html` <strong>${line(question(run), 1000)}</strong>`}</p>`}
    ${run.cancel_requested && run.status === "running" && html`<p>It was asked to stop.</p>`}
  </div>`;
}

/** What a person is asked, where the run waits for one. */
function question(run) {
  return run.waiting_for === "approval" ? run.steps.findLast((step) => step.status === "waiting")?.output?.prompt : "";
}

function facts(run) {
  const took = run.seconds == null ? "" : ` and took ${span(run.seconds)}`;
  const begun = run.started_at ? `began ${stamp(run.started_at)}${took}` : `made ${stamp(run.created_at)}, not begun`;
  return [begun, count(run.attempt, "try", "tries"), count(run.steps.length, "step")].join(" · ");
}

function Buttons({ run, reload }) {
  const over = FINAL.includes(run.status);
  const act = (verb, body, said) => async () => (await post(`/api/runs/${encodeURIComponent(run.id)}/${verb}`, body), said);
  return html`
    ${run.waiting_for === "approval" && html`<${Action} operation="runs.approve" tone="primary" then=${reload} act=${act("approve", { approved: true }, "It is approved, and goes on")}>Approve<//>
      <${Action} operation="runs.approve" then=${reload} act=${act("approve", { approved: false }, "It is rejected")}>Reject<//>`}
    ${over && run.status !== "done" && html`<${Action} operation="runs.retry" tone="primary" then=${reload} act=${act("retry", {}, "It is tried again")}>Retry<//>`}
    ${over && may("runs.rerun") && html`<button onClick=${() => setQuery({ rerun: "start" }, { push: true })}>Rerun…</button>`}
    ${!over && html`<${Action} operation="runs.cancel" then=${reload} ask=${{ title: "Cancel this run?", text: "What it has done stays done.", yes: "Cancel the run" }}
      act=${act("cancel", {}, "It is asked to stop")}>Cancel<//>`}`;
}

function Values({ run }) {
  return html`<h2>Input</h2>${run.input === null && !run.cut?.some((one) => one.place === "input")
      ? html`<p class="dim">It takes its event as it is: see Events.</p>` : html`<${RunValue} run=${run} place="input" />`}
    <h2>Output</h2><${RunValue} run=${run} place="output" />`;
}

const MOST_EVENTS = 50;

function Events({ run }) {
  const ids = run.event_ids.slice(0, MOST_EVENTS);
  const found = useResource((signal) => Promise.all(ids.map((id) => get(`/api/events/${id}`, {}, { signal }).catch((error) => missing(error, id)))), [run.id, ids.length]);
  if (!ids.length) return html`<${Empty} title="No event started this run."><p>It was started by hand, or by another run.</p><//>`;
  return html`<${Shown} of=${found} what="its events" show=${(rows) => html`<ul class="feed-list">${rows.map((row) => html`<li key=${row.id}>
      <${Clock} at=${row.recorded_at} />${row.gone ? html`<span class="title">Event ${row.id} is no longer stored</span>`
        : html`<a class="title" href="/events/${row.id}">${line([row.subject, row.title].filter(Boolean).join(" · ") || row.key)}</a><span class="dim">${row.type}</span>
      <span class="why">${row.feed} · <${Ago} at=${row.occurred_at ?? row.recorded_at} /></span>`}</li>`)}</ul>
    ${run.event_ids.length > MOST_EVENTS && html`<p class="dim">and ${number(run.event_ids.length - MOST_EVENTS)} more</p>`}`} />`;
}

function missing(error, id) {
  if (error.status !== 404) throw error;
  return { id, gone: true };
}
