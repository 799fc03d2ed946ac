// Dead letters: runs whose tries are used up, and events that the store would not take. They stay until someone decides.
import { html } from "../vendor/preact.js";
import { at, getAll, post } from "../api.js";
import { Action } from "../components/action.js";
import { BulkPlan, PlanButton } from "../components/bulk_plan.js";
import { asCurl, command, CopyMenu } from "../components/copy.js";
import { Link } from "../components/link.js";
import { Pill } from "../components/pill.js";
import { Empty, Failed, FilteredOut, Loading } from "../components/states.js";
import { Ago } from "../components/time_text.js";
import { VirtualList } from "../components/virtual_list.js";
import { isAboutFilter, WhereField } from "../components/where_field.js";
import { count, line, number } from "../format.js";
import { usePagedRows } from "../paged_rows.js";
import { query, setQuery } from "../router.js";

const MOST_NAMED = 90; // ids that a filter can name, as it has at most 4,096 characters

export default function Dead() {
  const { where = "", selected = "" } = query.value;
  const list = usePagedRows("/api/dead", { where }, { kind: "run" });
  const chosen = list.rows?.find((row) => row.id === selected);
  return html`<div class="page-head"><h1>Dead letters</h1><p class="dim" role="status">${told(list)}</p>
      <div class="tools">${list.rows?.length > 0 && html`<${Bulk} rows=${list.rows} where=${where} />`}</div></div>
    <div class="filters one"><${WhereField} error=${list.error} example='trigger == "oncall" && reason.contains("timeout")' /></div>
    <${List} list=${list} where=${where} selected=${selected} />
    ${chosen && html`<${Letter} row=${chosen} reload=${list.reload} />`}
    <${BulkPlan} then=${list.reload} />`;
}

function told({ rows, next }) {
  return rows?.length ? `${next ? "the newest " : ""}${count(rows.length, "letter")}` : "";
}

/** Whatever is dead now and fits the filter; the plan then has exact ids. */
function Bulk({ rows, where }) {
  const hasRuns = rows.some((row) => row.what === "run");
  return html`${hasRuns && html`<${PlanButton} action="retry" where=${() => deadRuns(where)}>Retry ${where ? "these" : "all"}…<//>`}
    <${PlanButton} action="drop" where=${() => where || 'id != ""'}>Drop ${where ? "these" : "all"}…<//>`;
}

/** A filter of runs for the dead letters that fit: they have other fields, so those that fit are named. */
async function deadRuns(where) {
  if (!where) return 'status == "dead"';
  const rows = (await getAll("/api/dead", { where }, { most: MOST_NAMED + 1 })).filter((row) => row.what === "run");
  if (!rows.length) throw new Error("No dead run fits the filter");
  if (rows.length > MOST_NAMED) throw new Error(`More than ${number(MOST_NAMED)} fit: narrow the filter, or retry all`);
  return `status == "dead" && id in ${JSON.stringify(rows.map((row) => row.id))}`;
}

function List({ list, where, selected }) {
  const { rows, next, error, lookedAt } = list;
  if (error && !isAboutFilter(error)) return html`<${Failed} error=${error} retry=${list.reload} />`;
  if (!rows) return error ? null : html`<${Loading} what="dead letters" />`;
  if (!rows.length && next) {
    return html`<div class="state"><p><strong>None of the newest ${count(lookedAt, "letter")} fits the filter.</strong></p><button onClick=${list.loadMore}>Look further back</button></div>`;
  }
  if (!rows.length && where) return html`<${FilteredOut} what="dead letters" clear=${() => setQuery({ where: "" }, { push: true })} />`;
  if (!rows.length) return html`<${Empty} title="No dead letters."><p>A run comes here when its tries are used up, an event when the store refuses it. That is good news.</p><//>`;
  return html`<${VirtualList} rows=${rows} row=${(row) => html`<${Row} row=${row} />`} keyOf=${(row) => row.id} height=${56} label="Dead letters" name="dead"
    selected=${selected} onSelect=${(id) => setQuery({ selected: id })} onEnd=${list.loadMore} />`;
}

function Row({ row }) {
  return html`<span class="row-time"><${Ago} at=${row.at} /></span>
    <span class="row-main"><strong class="row-title">${line(row.trigger)}</strong><span class="row-why">${line(row.reason, 300)}</span></span>
    <span class="row-side"><${Pill} status=${row.what === "run" ? "dead" : "refused"}>${row.what}<//><span class="dim row-key">${line(row.key, 30)}</span></span>`;
}

function Letter({ row, reload }) {
  const isRun = row.what === "run";
  const retry = (body, said) => async () => {
    const tried = await post(at`/api/dead/${row.id}/retry`, body);
    return `${said}: ${REASONS[tried.chosen_because] ?? "it is tried again"}`;
  };
  return html`<section class="card letter" aria-label="The chosen letter">
    <div class="card-head"><h2>${line(row.trigger)} <span class="dim">${line(row.key, 120)}</span></h2>
      <div class="buttons">
        ${isRun && html`<${Action} operation="dead.retry" tone="primary" then=${reload} act=${retry({}, "The run is tried again")}>Retry<//>`}
        ${isRun && html`<${Action} operation="dead.retry" then=${reload} act=${retry({ latest: true }, "The run is tried again")}>Retry with the current workflow<//>`}
        <${Action} operation="dead.drop" tone="danger" then=${reload} ask=${{ title: "Drop this letter?", text: "It cannot be brought back.", yes: "Drop it" }}
          act=${async () => (await post(at`/api/dead/${row.id}/drop`), "It is dropped")}>Drop<//>
        <${CopyMenu} forms=${formsOf(row)} />
      </div></div>
    <p class="run-error">${line(row.reason, 4000)}</p>
    <p class="dim">${isRun ? html`See <${Link} to="/runs/${row.id}">what the run did<//>` : "The store refused this event"} · <${Ago} at=${row.at} /> · <code>${line(row.id, 60)}</code></p>
  </section>`;
}

function formsOf(row) {
  const isRun = row.what === "run";
  return {
    JSON: () => JSON.stringify(row, null, 2),
    CEL: () => `id == ${JSON.stringify(row.id)}`,
    cURL: isRun ? () => asCurl(at`/api/dead/${row.id}/retry`, {}) : null,
    Command: () => (isRun ? command("dead", "retry", row.id) : command("dead", "list")),
    Link: () => location.href,
  };
}

const REASONS = {
  asked: "with the current workflow",
  unchanged: "the workflow is what it was",
  may_work: "with the workflow it began with, as the error may pass",
  steps_done: "with the workflow it began with, as the current one would do steps twice",
  cannot_work: "with the current workflow, as the old one cannot work",
  not_configured: "with the workflow it began with, as there is no current one",
};
