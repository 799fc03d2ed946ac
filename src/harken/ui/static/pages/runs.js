// Runs: what ran, what runs now, and what waits for a person; newest first, as it happens.
import { html } from "../vendor/preact.js";
import { get, getAll, getLines } from "../api.js";
import { BulkPlan, PlanButton } from "../components/bulk_plan.js";
import { Choice } from "../components/choice.js";
import { Pill } from "../components/pill.js";
import { Empty, Failed, FilteredOut, Loading } from "../components/states.js";
import { Clock } from "../components/time_text.js";
import { VirtualList } from "../components/virtual_list.js";
import { isAboutFilter, WhereField } from "../components/where_field.js";
import { count, line, number, words } from "../format.js";
import { usePagedRows } from "../paged_rows.js";
import { useResource } from "../resource.js";
import { navigate, query, setQuery } from "../router.js";
import { span } from "../time.js";

const STATUSES = ["running", "waiting", "held", "failed", "dead", "done", "ready", "blocked", "gathering", "cancelled"];
const OVER = ["done", "failed", "dead", "cancelled"];
const STATUS_CHOICES = [["", "Every status"], ...STATUSES.map((name) => [name, words(name)])];
const SINCE_CHOICES = [["", "Any time"], ["10m", "Last 10 minutes"], ["1h", "Last hour"], ["24h", "Last day"], ["7d", "Last week"]];
const FILTERS = { status: "", trigger: "", workflow: "", since: "", where: "" };

export default function Runs() {
  const { status = "", trigger = "", workflow = "", since = "", where = "", selected = "" } = query.value;
  const fits = (row) => (!status || row.status === status) && (!trigger || row.trigger === trigger) && (!workflow || row.workflow === workflow);
  const list = usePagedRows("/api/runs", { status, trigger, workflow, since, where }, { kind: "run", fits });
  const filtered = Boolean(status || trigger || workflow || since || where);
  return html`<div class="page-head"><h1>Runs</h1><p class="dim" role="status">${told(list)}</p>
      <div class="tools">${filtered && !isEmpty(list) && html`<${Bulk} />`}</div></div>
    <div class="filters">
      <${Choice} name="status" label="Status" options=${STATUS_CHOICES} />
      <${TriggerChoice} />
      <${Choice} name="since" label="Since" options=${SINCE_CHOICES} />
      <${WhereField} error=${list.error} example='attempt > 1 && error.contains("timeout")' />
    </div>
    <${List} list=${list} filtered=${filtered} selected=${selected} />
    <${BulkPlan} then=${list.reload} />`;
}

const isEmpty = ({ rows, next, error }) => !error && rows?.length === 0 && !next;

function told({ rows, next }) {
  return rows?.length ? `${next ? "the newest " : ""}${count(rows.length, "run")}` : "";
}

/** Offers the triggers that there are. */
export function TriggerChoice() {
  const found = useResource((signal) => getAll("/api/triggers", { fields: "name" }, { signal }), []);
  const options = [["", "Every trigger"], ...(found.data ?? []).map((row) => [row.name, row.name])];
  return html`<${Choice} name="trigger" label="Trigger" options=${options} />`;
}

/** What may be done to all runs that fit the filter, as far as their status lets it. */
function Bulk() {
  const { status = "", trigger = "", workflow = "", since = "", where = "" } = query.value;
  const filter = async () => {
    const equal = Object.entries({ status, trigger, workflow }).filter(([, value]) => value).map(([name, value]) => `${name} == ${JSON.stringify(value)}`);
    // what is no filter by itself could become one between parentheses, and mean more than is shown
    if (where) await getLines("/api/runs", { where, limit: 1 });
    return [...equal, ...(where ? [`(${where}\n)`] : [])].join(" && ") || 'id != ""';
  };
  const isOver = OVER.includes(status);
  return html`${(!status || (isOver && status !== "done")) && html`<${PlanButton} key="retry" action="retry" where=${filter} since=${since}>Retry these…<//>`}
    ${status === "held" && html`<${PlanButton} key="release" action="release" where=${filter} since=${since}>Release these…<//>`}
    ${!isOver && html`<${PlanButton} key="cancel" action="cancel" where=${filter} since=${since}>Cancel these…<//>`}`;
}

function List({ list, filtered, selected }) {
  const { rows, next, error, lookedAt } = list;
  const clear = () => setQuery(FILTERS, { push: true });
  if (error && !isAboutFilter(error)) return html`<${Failed} error=${error} retry=${list.reload} />`;
  if (!rows) return error ? null : html`<${Loading} what="runs" />`;
  if (!rows.length && next) {
    return html`<div class="state"><p><strong>None of the newest ${count(lookedAt, "run")} fits the filter.</strong></p><button onClick=${list.loadMore}>Look further back</button></div>`;
  }
  if (!rows.length && filtered) return html`<${FilteredOut} what="runs" clear=${clear} />`;
  if (!rows.length) return html`<${Empty} title="No runs yet."><p>A run starts when an event passes a trigger's condition.</p><//>`;
  return html`<${VirtualList} rows=${rows} row=${(row) => html`<${Row} row=${row} />`} keyOf=${(row) => row.id} height=${56} label="Runs" name="runs"
    selected=${selected} onSelect=${(id) => setQuery({ selected: id })} onOpen=${(row) => navigate(`/runs/${row.id}`)} onEnd=${list.loadMore} />`;
}

function Row({ row }) {
  return html`<span class="row-time"><${Clock} at=${row.created_at} /></span>
    <span class="row-main"><strong class="row-title">${row.workflow}</strong><span class="row-why">${line(whyOf(row), 300)}</span></span>
    <span class="row-side"><${Pill} status=${row.outcome} /><span class="dim">${row.seconds == null ? "" : span(row.seconds)}</span></span>`;
}

/** What a run was about, or what is wrong with it, in a line. */
export function whyOf(row) {
  if (row.error) return row.error;
  if (row.hold) return `held: ${words(row.hold)}`;
  if (row.waiting_for) return `waits for ${words(row.waiting_for)}`;
  const keys = row.event_keys.slice(0, 3).join(", ");
  const more = row.event_keys.length > 3 ? ` and ${number(row.event_keys.length - 3)} more` : "";
  return [keys + more, row.trigger !== row.workflow && row.trigger ? `by ${row.trigger}` : "", row.attempt > 1 ? count(row.attempt, "try", "tries") : ""].filter(Boolean).join(" · ");
}
