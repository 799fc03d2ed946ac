// All triggers of every kind: how they are, when they last fired, and what they wait for.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { at, getLines, post } from "../api.js";
import { Action } from "../components/action.js";
import { triggerPath } from "../components/link.js";
import { Pill } from "../components/pill.js";
import { Sparkline } from "../components/sparkline.js";
import { Empty, Failed, FilteredOut, Loading } from "../components/states.js";
import { Ago, Due } from "../components/time_text.js";
import { VirtualList } from "../components/virtual_list.js";
import { count, line, number, words } from "../format.js";
import { useInterval } from "../resource.js";
import { navigate, query, setQuery } from "../router.js";
import { may } from "../session.js";
import { span } from "../time.js";
import { useTriggerActivity } from "../trigger_activity.js";

const PAGE = 200;
const LARGEST_PAGE = 500;
const REFRESH_MS = 10_000;
const ROW = 60;
const SAME_MS = 2000;
const STATUSES = ["new", "healthy", "degraded", "paused", "stale", "refused", "disabled"];

export default function Triggers() {
  const filter = { q: query.value.q ?? "", status: query.value.status ?? "", where: query.value.where ?? "" };
  const list = usePages(filter);
  return html`<div class="page-head"><h1>Triggers</h1><div class="tools">${may("triggers.create") && html`<a class="button primary" href="/triggers/new">New trigger</a>`}</div></div>
    <div class="stack"><${Filter} filter=${filter} error=${list.error} /><${List} list=${list} filter=${filter} /></div>`;
}

/** The pages of the list, one after the other as they are needed; the pages that are there are read again in a while. */
function usePages({ q, status, where }) {
  const [state, setState] = useState({ rows: null, next: null, chosen: "", error: null }); // `next` is of the rows that were chosen so
  const asking = useRef(0);
  const busy = useRef({ refreshing: false, growing: "" });
  const chosen = [status && `status == ${JSON.stringify(status)}`, q && `name.contains(${JSON.stringify(q)})`].filter(Boolean);
  // alone it is sent as it was typed, so that what is wrong with it is said with its own place
  const condition = where && chosen.length ? [`(${where}\n)`, ...chosen].join(" && ") : [where, ...chosen].filter(Boolean).join(" && ");
  /** The rows behind the cursor, at least so many where there are so many, after those that stay. */
  const load = async (first, wanted, kept = []) => {
    const mine = (asking.current += 1);
    const rows = [...kept];
    let cursor = first;
    try {
      do {
        const page = await getLines("/api/triggers", { where: condition, cursor, limit: Math.min(LARGEST_PAGE, kept.length + wanted - rows.length) });
        if (mine !== asking.current) return;
        rows.push(...page.items);
        cursor = page.next;
      } while (cursor && rows.length < kept.length + wanted);
      setState({ rows, next: cursor, chosen: condition, error: null });
    } catch (error) {
      if (mine === asking.current) setState((before) => ({ ...before, error }));
    }
  };
  /** What is shown, as it is now. A look that takes longer than the time between two is let end. */
  const refresh = async () => {
    if (busy.current.refreshing || busy.current.growing) return;
    busy.current.refreshing = true;
    await load("", Math.max(PAGE, state.rows?.length ?? 0));
    busy.current.refreshing = false;
  };
  const more = async () => {
    const { rows, next } = state;
    if (!next || state.chosen !== condition || busy.current.growing === next) return;
    busy.current.growing = next;
    await load(next, LARGEST_PAGE, rows);
    if (busy.current.growing === next) busy.current.growing = "";
  };
  useEffect(() => {
    const wait = setTimeout(() => load("", PAGE), state.rows ? 150 : 0);
    return () => clearTimeout(wait);
  }, [condition]);
  useInterval(refresh, REFRESH_MS);
  return { ...state, more, reload: () => load("", PAGE) };
}

/** Whether the condition that was typed is what the server refused. */
const isWrong = (filter, error) => filter.where && error?.status >= 400 && error.status < 500;

function Filter({ filter, error }) {
  const wrong = isWrong(filter, error);
  return html`<section class="card" aria-label="Filter"><div class="form-row">
      <label>Name<input data-search type="search" value=${filter.q} onInput=${(event) => setQuery({ q: event.target.value })} /></label>
      <label>Status<select value=${filter.status} onChange=${(event) => setQuery({ status: event.target.value }, { push: true })}>
        <option value="">any</option>${STATUSES.map((status) => html`<option key=${status} value=${status}>${status}</option>`)}</select></label>
      <label>Condition (CEL)<input spellcheck="false" placeholder='fired > 10 && type == "poll"' value=${filter.where} aria-invalid=${wrong ? "true" : undefined}
        onInput=${(event) => setQuery({ where: event.target.value })} /></label>
    </div>
    ${wrong && html`<p class="wrong" role="alert">${error.message} <span class="dim">${error.fix}</span></p>`}</section>`;
}

function List({ list, filter }) {
  const { rows, error } = list;
  if (isWrong(filter, error)) return null;
  if (!rows) return error ? html`<${Failed} error=${error} retry=${list.reload} />` : html`<${Loading} what="triggers" />`;
  if (!rows.length) {
    if (filter.q || filter.status || filter.where) return html`<${FilteredOut} what="triggers" clear=${() => setQuery({ q: "", status: "", where: "" })} />`;
    return html`<${Empty} title="There are no triggers yet."><p>A trigger says what to wait for, and what to start then. <a href="/triggers/new">Make one here</a>, or write a file: <code>harken init</code></p><//>`;
  }
  return html`<${VirtualList} rows=${rows} height=${ROW} keyOf=${(row) => row.name} label="Triggers" name="triggers" selected=${query.value.at ?? ""}
      onSelect=${(name) => setQuery({ at: name })} onOpen=${(row) => navigate(triggerPath(row.name))} onEnd=${list.more} row=${(row) => html`<${Line} row=${row} />`} />
    <p class="dim">${count(rows.length, "trigger")}${list.next ? " so far; scroll for more" : ""}</p>`;
}

function Line({ row }) {
  const activity = useTriggerActivity(row.name);
  return html`<div class="trigger-line">
    <span class="trigger-name"><strong>${line(row.name, 80)}</strong><span class="dim">${words(row.type)}${row.workflow && row.workflow !== row.name ? ` → ${row.workflow}` : ""}</span></span>
    <span class="trigger-status"><${Pill} status=${row.status} /><span class="dim">${line(row.reason, 120)}</span></span>
    <span class="trigger-day">${activity && html`<${Day} activity=${activity} />`}</span>
    <span class="trigger-last"><${Last} row=${row} activity=${activity} /></span>
    <span class="trigger-next">${waits(row)}<span class="dim">${lag(row, activity)}</span></span></div>`;
}

const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);

/** The last day: a bar for each hour, of which the stronger part matched. */
function Day({ activity }) {
  const said = `${count(sum(activity.events), "event")}, ${number(sum(activity.matched))} matched`;
  return html`<${Sparkline} values=${activity.events} part=${activity.matched} label="Last 24 h: ${said}" /><span class="dim" title="In the last 24 hours">${said}</span>`;
}

function Last({ row, activity }) {
  const event = activity?.last_event_at ?? row.last_fired_at;
  const match = activity?.last_match_at ?? row.last_fired_at;
  if (!event) return html`<span class="dim">no event yet</span>`;
  const together = row.last_fired_at && Math.abs(Date.parse(row.last_fired_at) - Date.parse(match)) < SAME_MS;
  const run = row.last_fired_at && html`run <${Ago} at=${row.last_fired_at} />`;
  return html`event <${Ago} at=${event} /><span class="dim">${!match ? "no match yet" : together ? html`match and ${run}` : html`match <${Ago} at=${match} />${run && html`, ${run}`}`}</span>`;
}

/** What it does next, or what it waits for. */
function waits(row) {
  if (row.held) return html`<span class="wrong">${count(row.held, "run")} held</span>`;
  if (row.dead) return html`<span class="wrong">${count(row.dead, "dead run")}</span>`;
  if (row.next_read_at) return html`${row.type === "schedule" ? "fires" : "read"} <${Due} at=${row.next_read_at} />`;
  return html`<span class="dim">${row.last_read_at ? html`heard <${Ago} at=${row.last_read_at} />` : "waits for the first"}</span>`;
}

/** How far it is behind, where that can be known. */
function lag(row, activity) {
  if (activity?.lag_messages != null) return activity.lag_messages ? `${count(activity.lag_messages, "message")} behind` : "not behind";
  if (row.late_seconds >= 1) return `${span(row.late_seconds)} late`;
  return row.next_read_at ? "on time" : "";
}

/** What can be done with a trigger in one step; a list and a page show the same buttons. */
export function TriggerActions({ row, then }) {
  const act = (verb, said) => async () => {
    await post(at`/api/triggers/${row.name}/` + verb);
    return said;
  };
  return html`<div class="buttons">
    ${row.paused || row.status === "paused"
      ? html`<${Action} key="resume" operation="triggers.resume" tone="primary" act=${act("resume", `${row.name} is resumed`)} then=${then}>Resume<//>`
      : html`<${Action} key="pause" operation="triggers.pause" act=${act("pause", `${row.name} is paused; its events are still recorded`)} then=${then}>Pause<//>`}
    ${row.held > 0 && html`<${Action} key="release" operation="triggers.release" tone="primary" act=${act("release", `The held runs of ${row.name} start`)} then=${then}>Release ${count(row.held, "run")}<//>`}
    ${row.dead > 0 && html`<${Action} key="retry" operation="dead.retry_all" act=${async () => (await post("/api/dead/retry", { trigger: row.name }), `The dead runs of ${row.name} are tried again`)} then=${then}>Retry ${count(row.dead, "dead run")}<//>`}
    ${row.interval_seconds != null && html`<${Action} key="run" operation="triggers.run" act=${act("run", `${row.name} was read`)} then=${then}>Read now<//>`}
  </div>`;
}
