// Beside the form: what the trigger would do with the events that are there, hour by hour, and what an event looks like.
import { html, useMemo, useState } from "../vendor/preact.js";
import { copy } from "../components/copy.js";
import { JsonView } from "../components/json_view.js";
import { Chart } from "../components/lazy.js";
import { Link } from "../components/link.js";
import { Pill } from "../components/pill.js";
import { Loading } from "../components/states.js";
import { Clock } from "../components/time_text.js";
import { count, line, number } from "../format.js";
import { useHours } from "./builder_draft.js";

const FIRING = new Set(["fired", "gathered"]);
const SHOWN = 12;
const SPANS = [[24, "24 h"], [168, "7 days"]];

export function DryRun({ check, draft }) {
  const { answer, error, reading } = check;
  const run = answer?.dry_run;
  const [side, setSide] = useState("");
  const [most, setMost] = useState(SHOWN);
  const firing = run?.shown.filter((row) => FIRING.has(row.outcome)) ?? [];
  const rest = run?.shown.filter((row) => !FIRING.has(row.outcome)) ?? [];
  const chosen = side || (firing.length ? "fire" : "not");
  const rows = chosen === "fire" ? firing : rest;
  return html`<section class="card stack dry-run" aria-labelledby="dry-run" aria-busy=${check.checking || reading}>
    <div class="card-head"><h2 id="dry-run">Dry run</h2>${run?.can_read && run.source !== "stored" && html`<button class="quiet" onClick=${check.readAgain}>Read again</button>`}</div>
    <div role="status">${error ? html`<p class="wrong">${error.message}${error.fix && `. ${error.fix}`}</p>` : html`<${Sentence} run=${run} answer=${answer} reading=${reading} draft=${draft} />`}</div>
    ${run?.trouble && html`<p class="wrong">${line(run.trouble.message, 300)}${run.trouble.fix && `. ${run.trouble.fix}`}</p>`}
    ${run?.notes.map((note) => html`<p key=${note} class="dim">${line(note, 300)}</p>`)}
    ${run?.events > 0 && html`<div class="ratio" aria-hidden="true"><span style=${{ width: `${(100 * run.would_fire) / run.events}%` }}></span></div>
      <div class="tabs" role="group" aria-label="Which events">${[["fire", `Would fire (${number(firing.length)})`], ["not", `Would not (${number(rest.length)})`]].map(([value, words]) => html`<button key=${value} aria-pressed=${chosen === value} class=${chosen === value ? "on" : ""} onClick=${() => setSide(value)}>${words}</button>`)}</div>
      ${rows.length ? html`<ul class="feed-list">${rows.slice(0, most).map((row, at) => html`<${Judged} key=${row.id ?? at} row=${row} />`)}</ul>` : html`<p class="dim">${chosen === "fire" ? "None of them." : "All of them fire."}</p>`}
      ${rows.length > most && html`<button class="quiet" onClick=${() => setMost(most + 100)}>Show more of ${number(rows.length)}</button>`}`}
    <${About} answer=${answer} draft=${draft} />
  </section>`;
}

function Sentence({ run, answer, reading, draft }) {
  if (reading) return html`<p><span class="spinner" aria-hidden="true"></span> Reading the service, to see what would fire…</p>`;
  if (!answer) return html`<p class="dim">${draft.provider ? "Asking…" : "Choose what it listens to, and this shows what it would do."}</p>`;
  if (!run) return html`<p class="dim">${count(answer.problems.filter((one) => one.severity === "error").length, "thing")} to correct first, marked in the form.</p>`;
  if (!run.events) return html`<p class="dim">${nothingYet(answer, run, draft)}</p>`;
  return html`<p class="big"><strong>${number(run.would_fire)}</strong> would fire, <strong>${number(run.would_not)}</strong> not</p>
    <p class="dim">of ${run.source === "read" ? "what the service shows of the last 7 days" : `the newest ${count(run.events, "stored event")} of ${line(run.feed, 60)}`}${!run.complete && ", and there is more"}</p>`;
}

function nothingYet(answer, run, draft) {
  if (run.trouble) return "The service could not be read:";
  if (draft.provider === "webhook") return "Nothing was sent to this address yet. Save it, send something, and it appears here.";
  if (draft.provider === "schedule" && answer.next.length) return "It has not come due yet.";
  return run.source === "read" ? "The service shows nothing of the last 7 days." : "No event of it is stored yet.";
}

function Judged({ row }) {
  const words = line([row.key, row.title].filter(Boolean).join(" · "), 120);
  return html`<li><${Clock} at=${row.recorded_at ?? row.occurred_at} />${row.id ? html`<${Link} to="/events/${row.id}" class="title">${words}<//>` : html`<span class="title">${words}</span>`}
    <${Pill} status=${row.outcome} />${row.reason && html`<span class="why">${line(row.reason, 300)}</span>`}</li>`;
}

/** Where a webhook is sent to, when a schedule comes next. */
function About({ answer, draft }) {
  if (answer?.address) {
    const address = location.origin + answer.address;
    return html`<p class="dim">Its address is <button class="command" title="Copy it" onClick=${() => copy(address, "The address")}>${address}</button></p>`;
  }
  if (draft.provider === "schedule" && answer?.next.length) return html`<p class="dim">Next: ${answer.next.map((at, index) => html`<span key=${at}>${index > 0 && ", "}<${Clock} at=${at} /></span>`)}</p>`;
  return null;
}

const NONE = [];

/** Events and would-be runs of each hour. */
export function Backtest({ check, draft }) {
  const [hours, setHours] = useState(24);
  const isThere = check.answer?.dry_run?.source === "stored";
  const known = useHours(draft, hours, isThere);
  const found = known ?? NONE;
  const at = useMemo(() => found.map((row) => Date.parse(row.at)), [found]);
  const series = useMemo(() => [
    { words: "events", values: found.map((row) => row.events), colour: "--chart-1", kind: "bars" },
    { words: "would fire", values: found.map((row) => row.would_fire), colour: "--chart-2", kind: "bars" },
  ], [found]);
  if (!isThere) return null;
  const sum = (name) => found.reduce((total, row) => total + row[name], 0);
  return html`<section class="card" aria-labelledby="backtest"><div class="card-head"><h2 id="backtest">Per hour</h2>
      <div class="tabs" role="group" aria-label="Span">${SPANS.map(([value, words]) => html`<button key=${value} aria-pressed=${value === hours} class=${value === hours ? "on" : ""} onClick=${() => setHours(value)}>${words}</button>`)}</div></div>
    ${!known && html`<${Loading} what="the events of each hour" />`}
    ${found.length > 0 && html`<${Chart} at=${at} series=${series} label="Events and would-be runs per hour" height=${150} />
      <p class="dim">${count(sum("events"), "event")}, ${number(sum("would_fire"))} would fire: ${rate(sum("would_fire") / found.length)}</p>`}</section>`;
}

const rate = (perHour) => (perHour >= 1 ? `${Math.round(perHour * 10) / 10} runs an hour` : `${Math.round(perHour * 240) / 10} runs a day`);

/** The newest event: a click on a value requires it. */
export function Sample({ check, require }) {
  const sample = check.answer?.dry_run?.sample;
  if (!sample) return null;
  return html`<section class="card" aria-labelledby="sample"><h2 id="sample">The newest event</h2><p class="dim">Click a value to require it.</p><${JsonView} value=${sample} onLeaf=${require} label="Payload of the newest event" open=${2} /></section>`;
}
