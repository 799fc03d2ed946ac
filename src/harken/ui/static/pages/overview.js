// Is everything all right? What needs a person first, then how much happens, then what happened last.
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { at, get, getAll, getLines, post } from "../api.js";
import { Action } from "../components/action.js";
import { Advice } from "../components/advice.js";
import { Chart } from "../components/lazy.js";
import { Link, triggerPath } from "../components/link.js";
import { Pill } from "../components/pill.js";
import { Empty, Shown } from "../components/states.js";
import { Table } from "../components/table.js";
import { Tabs, useTab } from "../components/tabs.js";
import { Ago, Clock, Due } from "../components/time_text.js";
import { count, line, number, plural, words } from "../format.js";
import { useInterval, useResource } from "../resource.js";
import { href } from "../router.js";
import { may } from "../session.js";
import { onStream } from "../stream.js";
import { clock, span } from "../time.js";
import { outcomeOf, titleOf, wayOf } from "./event_words.js";

const REFRESH_MS = 5000;
const NEWEST = 8;
const SPANS = [["30m", "30 min"], ["24h", "24 h"], ["30d", "30 days"]];

export default function Overview() {
  const status = useResource((signal) => loadStatus(signal), []);
  useEffect(() => may("activity") && void Chart.begin(), []);
  useInterval(status.refresh, REFRESH_MS);
  useReloadOnTrouble(status.reload);
  return html`<${Shown} of=${status} what="the overview" show=${(data) => html`<${Whole} status=${data} reload=${status.reload} />`} />`;
}

const TROUBLE = new Set(["failed", "dead", "held"]);
const SOON_MS = 500;

/** What just went wrong is shown at once, and not only with the next look; many such runs make one reload. */
function useReloadOnTrouble(reload) {
  useEffect(() => {
    let soon = 0;
    const stop = onStream("run", (run) => {
      if (!TROUBLE.has(run.status) || soon) return;
      soon = setTimeout(() => {
        soon = 0;
        reload();
      }, SOON_MS);
    });
    return () => {
      stop();
      clearTimeout(soon);
    };
  }, [reload]);
}

/** The status; for a token that may not see everything, as much of it as its triggers tell. */
async function loadStatus(signal) {
  if (may("status")) return get("/api/status", {}, { signal });
  const items = await getAll("/api/triggers", {}, { signal, most: Infinity });
  const triggers = {};
  for (const row of items) triggers[row.status] = (triggers[row.status] ?? 0) + 1;
  const attention = items.filter((row) => !["healthy", "new", "disabled"].includes(row.status));
  return { running: true, triggers, attention: attention.map((row) => ({ ...row, fixes: [] })), needs_person: attention.some((row) => row.needs_person) };
}

function Whole({ status, reload }) {
  return html`<div class="stack">
    <${Verdict} status=${status} />
    ${status.controller?.notice && html`<${Notice} ...${status.controller.notice} />`}
    <${Attention} status=${status} reload=${reload} />
    ${status.counts && html`<${Tiles} status=${status} />`}
    ${may("activity") && html`<${Activity} />`}
    <div class="columns"><${LatestEvents} /><${LatestRuns} /></div>
    ${may("budget.list") && html`<${Budgets} />`}
    ${(status.fleet?.replicas?.length ?? 0) > 1 && html`<${Replicas} fleet=${status.fleet} />`}
  </div>`;
}

/** One sentence that answers the question. */
function Verdict({ status }) {
  const urgent = status.attention.filter((row) => row.needs_person).length + troubles(status).length;
  const mending = status.attention.length - status.attention.filter((row) => row.needs_person).length;
  const total = Object.values(status.triggers).reduce((sum, each) => sum + each, 0);
  const [tone, text] = urgent
    ? ["bad", urgent === 1 ? "One thing needs you" : `${number(urgent)} things need you`]
    : mending
      ? ["warn", `Nothing needs you; ${mending === 1 ? "one trigger is" : `${number(mending)} triggers are`} not quite right`]
      : total ? ["good", "Everything is all right"] : ["none", "Nothing is watched yet"];
  const parts = Object.entries(status.triggers).map(([name, each]) => `${number(each)} ${words(name)}`);
  return html`<div class="overview-top">
    <h1 class="verdict"><span class="dot ${tone}" aria-hidden="true"></span>${text}</h1>
    <p class="verdict-line">${total ? `${count(total, "trigger")}: ${parts.join(", ")}.` : html`Write a workflow, or ${may("triggers.create") ? html`<a href="/triggers/new">make a trigger</a>` : "make a trigger"}.`} <${SinceLastVisit} /></p>
  </div>`;
}

const VISIT = "harken.last_visit";
const AWAY_MS = 10 * 60_000;

/** What happened since this browser was here before; only after an absence of more than ten minutes. */
function SinceLastVisit() {
  const [since] = useState(() => {
    const before = Number(localStorage.getItem(VISIT) ?? 0);
    return before && Date.now() - before > AWAY_MS ? before : 0;
  });
  useInterval(() => localStorage.setItem(VISIT, String(Date.now())), REFRESH_MS);
  const found = useResource(
    (signal) => (since && may("activity") ? get("/api/activity", { since: new Date(since).toISOString() }, { signal }) : null), [since]);
  if (!since || !found.data) return null;
  const { events, done, failed } = found.data.total;
  return html`<span class="since">Since you were here <${Ago} at=${new Date(since).toISOString()} />: ${count(events, "event")},
    ${" "}${count(done, "run")} done, ${number(failed)} failed.</span>`;
}

function Notice({ title, text, commands }) {
  return html`<section class="card notice">
    <h2>${title}</h2><p>${text}</p>
    <details><summary>What to do next</summary>
      ${Object.entries(commands).map(([what, lines]) => html`<h3>${what}</h3><pre>${lines.join("\n")}</pre>`)}
    </details>
  </section>`;
}

/** What is wrong with Harken itself, not with one trigger. */
function troubles(status) {
  const found = [];
  if (!status.running) found.push({ name: "Controller", page: "/settings", status: "down", reason: "No controller runs", advice: "Start it: harken start" });
  if (status.store_trouble) found.push({ name: "Store", page: "/settings", status: "error", reason: status.store_trouble, advice: "Look at it: harken doctor" });
  if (status.config_errors) found.push({ name: "Configuration", page: "/settings", tab: "configuration", status: "error", reason: `${count(status.config_errors, "error")} in the files; what was loaded before runs on`, advice: "See them: harken config check" });
  return found;
}

function Attention({ status, reload }) {
  const urgent = [...troubles(status), ...status.attention.filter((row) => row.needs_person)];
  const others = status.attention.filter((row) => !row.needs_person);
  return html`
    <${Troubles} id="attention" title="Needs you" rows=${urgent} reload=${reload} all="needs_person" />
    <${Troubles} id="mending" title="Not quite right" rows=${others} reload=${reload} all='!needs_person && !(status in ["healthy", "new", "disabled"])' />`;
}

const MOST_TROUBLES = 20;

/** `all`: the filter of the triggers that are meant, as an outage may concern a thousand of them. */
function Troubles({ id, title, rows, reload, all }) {
  if (!rows.length) return null;
  const left = rows.length - MOST_TROUBLES;
  return html`<section class="card" aria-labelledby=${id}>
    <h2 id=${id}>${title}</h2>
    <ul class="attention">${rows.slice(0, MOST_TROUBLES).map((row) => html`<${Trouble} key=${row.name} row=${row} reload=${reload} />`)}</ul>
    ${left > 0 && html`<p class="dim">and <a href=${href("/triggers", { where: all })}>${count(left, "more trigger")}</a></p>`}
  </section>`;
}

function Trouble({ row, reload }) {
  return html`<li>
    <div>
      <p><${Link} to=${row.page ?? triggerPath(row.name)} query=${{ tab: row.tab }} class="name">${line(row.name)}<//><${Pill} status=${row.status} /></p>
      <p class="what">${line(row.reason, 400)}</p>
      <p class="do"><${Advice} text=${row.advice} /></p>
    </div>
    <div class="buttons">${(row.fixes ?? []).map((fix) => FIXES[fix]?.(row, reload))}</div>
  </li>`;
}

/** A button for each operation that may mend a trigger. */
const FIXES = {
  "triggers.resume": (row, then) => html`<${Action} key="resume" operation="triggers.resume" tone="primary" then=${then}
    act=${async () => (await post(at`/api/triggers/${row.name}/resume`), `${row.name} is resumed`)}>Resume<//>`,
  "dead.retry_all": (row, then) => html`<${Action} key="retry" operation="dead.retry_all" tone="primary" then=${then}
    act=${async () => (await post("/api/dead/retry", { trigger: row.name }), `The dead runs of ${row.name} are tried again`)}>
    Retry ${count(row.dead, "run")}<//>`,
  "triggers.release": (row, then) => html`<${Action} key="release" operation="triggers.release" tone="primary" then=${then}
    act=${async () => (await post(at`/api/triggers/${row.name}/release`), `The held runs of ${row.name} start`)}>
    Release ${count(row.held, "run")}<//>`,
  "triggers.run": (row, then) => html`<${Action} key="run" operation="triggers.run" then=${then}
    act=${async () => (await post(at`/api/triggers/${row.name}/run`), `${row.name} was read`)}>Read now<//>`,
};

function Tiles({ status }) {
  const { counts, controller = {} } = status;
  const lags = Object.values(controller.stream_lags ?? {}).map((lag) => lag.messages ?? 0);
  const behind = lags.reduce((sum, each) => sum + each, 0);
  const waiting = counts.runs_ready ?? 0;
  return html`<dl class="tiles">
    <${Tile} words="Events stored" value=${number(counts.events)} note=${counts.refused_events ? `${number(counts.refused_events)} refused` : ""} />
    <${Tile} words="Runs now" value=${number(counts.runs_running ?? 0)} unit="running" note=${`${number(waiting)} in the queue`} />
    <${Tile} words="Held" value=${number(counts.runs_held ?? 0)} unit=${plural(counts.runs_held ?? 0, "run")} href=${counts.runs_held > 0 && href("/runs", { status: "held" })}
      note=${counts.runs_waiting > 0 && html`<a href=${href("/runs", { status: "waiting" })}>${number(counts.runs_waiting)} ${counts.runs_waiting === 1 ? "waits" : "wait"} for something</a>`} />
    <${Tile} words="Dead letters" value=${number((counts.runs_dead ?? 0) + (counts.refused_events ?? 0))} href=${(counts.runs_dead ?? 0) + (counts.refused_events ?? 0) > 0 && "/dead"} note=${`${number(counts.runs_done ?? 0)} runs done`} />
    <${Tile} words="Lag of reads" value=${span(controller.schedule_lag_seconds ?? 0)} note=${behind ? `${number(behind)} messages behind` : "no stream is behind"} />
  </dl>`;
}

function Tile({ words: name, value, unit, note, href: to }) {
  return html`<div class="tile"><dt>${to ? html`<a href=${to}>${name}</a>` : name}</dt><dd>${value}${unit && html` <small>${unit}</small>`}${note && html`<div class="note">${note}</div>`}</dd></div>`;
}

function Activity() {
  const chosen = useTab("span", SPANS);
  const found = useResource((signal) => get("/api/activity", { since: chosen }, { signal }), [chosen]);
  useInterval(found.refresh, REFRESH_MS);
  return html`<section class="card" aria-labelledby="activity">
    <div class="card-head"><h2 id="activity">Events and runs</h2><${Tabs} name="span" tabs=${SPANS} label="Time span" panel="activity-chart" /></div>
    <div id="activity-chart" role="tabpanel" aria-label="Events and runs over time">
      <${Shown} of=${found} what="the chart" show=${(data) => html`<${Counts} data=${data} />`} />
    </div>
  </section>`;
}

function Counts({ data }) {
  const drawn = useMemo(() => series(data), [data]);
  return html`<${Chart} label="Events and runs over time" ...${drawn} />
    <p class="dim">${count(data.total.events, "event")}, ${count(data.total.done, "run")} done, ${number(data.total.failed)} failed; each bar is ${span(data.bucket_seconds)}.${happened(data) && beginning(data) > 0 && ` Nothing happened before ${clock(data.at[beginning(data)])}, where the chart begins.`}</p>`;
}

const FEWEST = 30;
const happened = ({ total }) => total.events + total.done + total.failed > 0;

/** The first column that is shown: shortly before the first thing that happened, so that a new Harken is no empty chart. */
function beginning(data) {
  const first = data.at.findIndex((_, at) => data.events[at] || data.done[at] || data.failed[at]);
  return Math.max(0, Math.min((first < 0 ? data.at.length : first) - 3, data.at.length - FEWEST));
}

/** The columns of the chart. */
function series(data) {
  const from = beginning(data);
  return {
    at: data.at.slice(from).map((moment) => Date.parse(moment)),
    series: [
      { words: "events", values: data.events.slice(from), colour: "--chart-1", kind: "bars" },
      { words: "runs done", values: data.done.slice(from), colour: "--chart-2", kind: "line" },
      { words: "runs failed", values: data.failed.slice(from), colour: "--chart-3", kind: "line" },
    ],
  };
}

/** The newest rows of a list, which the stream keeps current. */
function useNewest(kind, path) {
  const first = useResource(async (signal) => (await getLines(path, { limit: NEWEST }, { signal })).items, [path]);
  const [fresh, setFresh] = useState([]);
  useEffect(() => onStream(kind, (row) => setFresh((before) => [row, ...before.filter((one) => one.id !== row.id)].slice(0, NEWEST))), [kind]);
  useEffect(() => onStream("begin", first.reload), [first.reload]);
  if (!first.data) return first;
  const known = new Set(fresh.map((row) => row.id));
  return { ...first, data: [...fresh, ...first.data.filter((row) => !known.has(row.id))].slice(0, NEWEST) };
}

function LatestEvents() {
  const found = useNewest("event", "/api/events");
  return html`<section class="card" aria-labelledby="events"><h2 id="events">What came in</h2>
    <${Shown} of=${found} what="events" show=${(rows) => rows.length
      ? html`<ul class="feed-list">${rows.map((row) => html`<${EventLine} key=${row.id} row=${row} />`)}</ul>`
      : html`<${Empty} title="No events yet."><p>They appear here as soon as a feed has something new.</p><//>`} />
  </section>`;
}

function EventLine({ row }) {
  return html`<li><${Clock} at=${row.recorded_at} />
    <${Link} to="/events/${row.id}" class="title">${titleOf(row)}<//>
    <${Pill} status=${outcomeOf(row)} />
    <span class="why">${wayOf(row)}</span></li>`;
}

function LatestRuns() {
  const found = useNewest("run", "/api/runs");
  return html`<section class="card" aria-labelledby="runs"><h2 id="runs">What ran</h2>
    <${Shown} of=${found} what="runs" show=${(rows) => rows.length
      ? html`<ul class="feed-list">${rows.map((row) => html`<${RunLine} key=${row.id} row=${row} />`)}</ul>`
      : html`<${Empty} title="No runs yet."><p>A run starts when an event passes a trigger's condition.</p><//>`} />
  </section>`;
}

function RunLine({ row }) {
  const took = row.seconds == null ? "" : ` in ${span(row.seconds)}`;
  const why = row.error || (row.hold ? `held: ${words(row.hold)}` : row.waiting_for ? `waits for ${words(row.waiting_for)}` : "");
  return html`<li><${Clock} at=${row.created_at} />
    <${Link} to="/runs/${row.id}" class="title">${row.workflow}<//><${Pill} status=${row.outcome}>${words(row.outcome)}${took}<//>
    <span class="why">${line(why || row.event_keys.slice(0, 3).join(", ") || row.trigger)}</span></li>`;
}

function Budgets() {
  const found = useResource(async (signal) => (await get("/api/budget", { limit: 100 }, { signal })).items, []);
  useInterval(found.refresh, 3 * REFRESH_MS);
  if (!found.data?.length) return null;
  const columns = [
    { name: "credential", words: "Credential", cell: (row) => html`<strong>${line(row.integrations.join(", ") || row.credential)}</strong>${row.integrations.length > 0 && html` <span class="dim">${row.credential}</span>`}` },
    { name: "feeds", words: "Read by", cell: (row) => (row.feeds.length ? count(row.feeds.length, "feed") : html`<span class="dim">no feed</span>`) },
    { name: "reads", words: "Reads", number: true, cell: (row) => (row.feeds.length ? `${number(row.reads_per_hour)} per hour` : "") },
    { name: "left", words: "Left", number: true, cell: (row) => html`<${Left} row=${row} />` },
    { name: "state", words: "State", cell: (row) => (row.blocked_until ? html`<${Pill} status="blocked" /> ${row.reason}` : row.resets_at ? html`resets <${Due} at=${row.resets_at} />` : "no limit known") },
  ];
  return html`<section class="card" aria-labelledby="budgets"><h2 id="budgets">Budgets per credential</h2>
    <${Table} label="Budgets per credential" columns=${columns} rows=${found.data} keyOf=${(row) => row.credential} /></section>`;
}

function Left({ row }) {
  if (row.remaining == null || !row.limit) return html`<span class="dim">not told</span>`;
  const share = Math.min(1, row.remaining / row.limit);
  return html`<div>${number(row.remaining)} of ${number(row.limit)} calls
    <div class="meter ${share < 0.2 ? "low" : ""}" aria-hidden="true"><span style=${{ width: `${share * 100}%` }}></span></div></div>`;
}

function Replicas({ fleet }) {
  const columns = [
    { name: "host", words: "Replica", cell: (row) => `${row.host} (${row.pid})` },
    { name: "role", words: "Role", cell: (row) => row.role + (row.leaving ? ", leaving" : "") },
    { name: "shards", words: "Shards", number: true, cell: (row) => `${row.shards.length} of ${fleet.shards}` },
    { name: "lag", words: "Lag", number: true, cell: (row) => span(row.lag_seconds) },
    { name: "runs", words: "Running", number: true, cell: (row) => count(row.runs_in_flight, "run") },
    { name: "since", words: "Up", cell: (row) => html`<${Ago} at=${row.started_at} />` },
    { name: "current", words: "Configuration", cell: (row) => html`<${Pill} status=${row.current ? "ok" : "late"}>${row.current ? "current" : "older"}<//>` },
  ];
  const unread = fleet.unread_shards.length;
  return html`<section class="card" aria-labelledby="replicas"><h2 id="replicas">Replicas</h2>
    ${unread > 0 && html`<p class="wrong">${count(unread, "shard")} read by nobody.</p>`}
    <${Table} label="Replicas" columns=${columns} rows=${fleet.replicas} keyOf=${(row) => row.holder} /></section>`;
}
