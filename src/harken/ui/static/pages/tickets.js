// Tickets as a board: a column for each state of their life, a board for each tracker.
import { html, useEffect } from "../vendor/preact.js";
import { get, post } from "../api.js";
import { Action } from "../components/action.js";
import { Advice } from "../components/advice.js";
import { Dialog } from "../components/dialog.js";
import { Link } from "../components/link.js";
import { Pill } from "../components/pill.js";
import { Empty, Shown } from "../components/states.js";
import { Tabs, useTab } from "../components/tabs.js";
import { Ago } from "../components/time_text.js";
import { count, line, words } from "../format.js";
import { useInterval, useResource } from "../resource.js";
import { query, setQuery } from "../router.js";
import { onStream } from "../stream.js";

const REFRESH_MS = 15000;
const WEB = /^https?:\/\//;
/** The columns: what a ticket shows, and the states of runs that have shown nothing yet. */
const COLUMNS = [
  ["pending", ["pending", "enqueued", "ready", "held"]],
  ["in progress", ["in-progress", "running"]],
  ["needs you", ["waiting"]],
  ["done", ["done"]],
  ["failed", ["failed", "dead", "cancelled"]],
];

export default function Tickets() {
  const trackers = useResource(async (signal) => (await get("/api/trackers", { limit: 500 }, { signal })).items, []);
  return html`<div class="page-head"><h1>Tickets</h1></div>
    <${Shown} of=${trackers} what="trackers" show=${(rows) => (rows.length
      ? html`<${Boards} trackers=${rows} />`
      : html`<${Empty} title="No tracker is configured."><p>A tracker watches the tickets of GitHub, GitLab, Jira or Azure DevOps; a label starts a pipeline. Try it without an account: <code>harken demo tickets</code></p><//>`)} />`;
}

function Boards({ trackers }) {
  const usable = (tracker) => tracker.state !== "refused";
  const tabs = [...trackers.filter(usable), ...trackers.filter((one) => !usable(one))].map(({ name }) => [name, name]);
  const chosen = useTab("tracker", tabs);
  const tracker = trackers.find((one) => one.name === chosen);
  const found = useResource((signal) => get("/api/tickets", { tracker: chosen, limit: 500 }, { signal }), [chosen]);
  useInterval(found.refresh, REFRESH_MS);
  useEffect(() => onStream("run", (row) => row.trigger.startsWith(chosen) && found.reload()), [chosen, found.reload]);
  const open = query.value.ticket;
  return html`<div class="stack">
    <div class="card-head"><${Tabs} name="tracker" tabs=${tabs} label="Trackers" panel="board" /><${TrackerState} tracker=${tracker} /></div>
    <div id="board" role="tabpanel" aria-label="Tickets of ${chosen}"><${Shown} of=${found} what="tickets" show=${(page) => html`<${Board} page=${page} />`} /></div>
    ${open && html`<${Ticket} tracker=${chosen} ticket=${open} reload=${found.reload} />`}
  </div>`;
}

/** What a circuit breaker's state means for whoever waits. */
const TRACKER_WORDS = { closed: "ok", open: "failing", half_open: "trying again" };

function TrackerState({ tracker }) {
  if (tracker.state === "refused") return html`<p class="dim"><${Pill} status="refused">refused<//> <span class="wrong">${line(tracker.message, 300)}</span></p>`;
  return html`<p class="dim"><${Pill} status=${tracker.state === "closed" ? "ok" : tracker.state}>${TRACKER_WORDS[tracker.state] ?? words(tracker.state)}<//> ${tracker.kind}, ${count(tracker.projects.length, "project")}, read <${Ago} at=${tracker.last_read} />
    ${tracker.message && html`<span class="wrong"> ${line(tracker.message, 300)}</span>`}</p>`;
}

function Board({ page }) {
  if (!page.items.length) return html`<${Empty} title="No ticket has had a run yet."><p>Put the label of a pipeline on a ticket, and it appears here.</p><//>`;
  return html`<div class="board">${COLUMNS.map(([name]) => {
    const rows = page.items.filter((row) => columnOf(row) === name);
    return html`<section key=${name} class="board-column" aria-label=${name}>
      <h2>${name} <span class="dim">${rows.length}</span></h2>
      <ul>${rows.map((row) => html`<li key=${row.run} class="card">
        <button class="board-title" onClick=${() => setQuery({ ticket: row.ticket }, { push: true })}>${line(row.ticket, 60)}</button>
        <p>${line(row.title, 140)}</p>
        <p class="dim">${row.pipeline}, <${Ago} at=${row.since} /></p>
        <${CardResult} of=${row} />
        ${row.error && html`<p class="wrong">${line(row.error, 160)}</p>`}
      </li>`)}</ul>
    </section>`;
  })}</div>
  ${page.more && html`<p class="dim">Older tickets are left out here: harken tickets list</p>`}`;
}

/** The column of a ticket. A state that no column names goes by the run, so that no ticket is left out. */
export function columnOf(row) {
  for (const state of [row.status === "waiting" ? "waiting" : row.shown, row.status]) {
    const found = COLUMNS.find(([, states]) => states.includes(state));
    if (found) return found[0];
  }
  return "pending";
}

function Ticket({ tracker, ticket, reload }) {
  const found = useResource((signal) => get("/api/tickets/show", { ticket, tracker }, { signal }), [ticket, tracker]);
  const act = async (verb, said) => {
    await post(`/api/tickets/${verb}`, { ticket, tracker });
    return said;
  };
  const then = () => Promise.all([found.reload(), reload()]);
  return html`<${Dialog} title=${line(ticket, 80)} wide=${true} onClose=${() => setQuery({ ticket: "" }, { push: true })}>
    <${Shown} of=${found} what="the ticket" show=${(shown) => html`
      <p><strong>${line(shown.title)}</strong></p>
      <dl class="facts">
        <dt>Where it stands</dt><dd><${Pill} status=${shown.standing}>${words(shown.standing).replace(":", ", ")}<//> ${line(shown.reason, 300)}</dd>
        <dt>Pipeline</dt><dd>${shown.pipeline || "none"}</dd>
        <dt>At its platform</dt><dd>${words(shown.status)}${shown.closed ? ", closed" : ""}; ${shown.labels.length ? `labels ${shown.labels.map((label) => line(label, 40)).join(", ")}` : "no labels"} ${webLink(shown.url, "Open it there")}</dd>
        ${shown.memory && html`<dt>What it shows</dt><dd>${words(shown.memory.shown ?? "nothing")}</dd>`}
        ${shown.runs.length > 0 && html`<${Result} of=${shown} />`}
      </dl>
      <h3>Runs</h3>
      <ul class="feed-list">${shown.runs.map((run) => html`<li key=${run.id}><${Ago} at=${run.created_at} /><${Link} to="/runs/${run.id}" class="title">${run.workflow}<//><${Pill} status=${run.outcome} />${run.error && html`<span class="why">${line(run.error, 300)}</span>`}</li>`)}</ul>
      ${shown.next && html`<p class="dim">Next: <${Advice} text=${shown.next} /></p>`}
      <p class="buttons">${isOver(shown.runs[0])
        ? html`<${Action} key="claim" operation="tickets.claim" act=${() => act("claim", `${ticket} is claimed`)} then=${then}>Claim<//>
          ${shown.runs.length > 0 && html`<${Action} key="retry" operation="tickets.retry" act=${() => act("retry", `${ticket} runs once more`)} then=${then}>Retry<//>`}`
        : html`<${Action} key="cancel" operation="tickets.cancel" tone="danger" ask=${`Cancel the run of ${ticket}?`} act=${() => act("cancel", `the run of ${ticket} is asked to stop`)} then=${then}>Cancel its run<//>`}
      </p>`} />
  <//>`;
}

const OVER = new Set(["done", "failed", "dead", "cancelled"]);

/** Whether a ticket may have another run: it has had none, or its newest, this one, is over. */
const isOver = (run) => !run || OVER.has(run.status);

/** `0.12 USD, 4,210 tokens`; nothing where no model was asked. */
function costWords({ usd, tokens }) {
  return [usd > 0 && `${usd.toFixed(2)} USD`, tokens > 0 && count(tokens, "token")].filter(Boolean).join(", ");
}

/** Who was trusted to start the newest run, what it cost, and the pull request that it made, as facts of the ticket. */
function Result({ of }) {
  return html`<dt>Trust</dt><dd>${of.labelled_by ? `${line(of.labelled_by, 80)} put the label on, and was trusted` : "nobody was trusted to start it by a label"}</dd>
    <dt>Cost</dt><dd>${costWords(of) || "no model was asked"}</dd>
    <dt>Pull request</dt><dd>${webLink(of.pull_request, line(of.pull_request, 120)) ?? "none"}</dd>`;
}

/** The same on a card: only what is there. */
function CardResult({ of }) {
  return html`${of.labelled_by && html`<p class="dim">label by ${line(of.labelled_by, 60)}</p>`}
    ${costWords(of) && html`<p class="dim">${costWords(of)}</p>`}
    ${of.pull_request && html`<p>${webLink(of.pull_request, `Pull request ${shortName(of.pull_request)}`)}</p>`}`;
}

/** The last part of an address: the number of a pull request. */
function shortName(address) {
  return line(address.replace(/[/#?]+$/, "").split("/").at(-1), 24);
}

/** A link to the platform, for web addresses only: what a source sends is never a script. */
function webLink(address, words) {
  if (!WEB.test(address ?? "")) return null;
  return html`<a href=${address} target="_blank" rel="noreferrer noopener">${words}</a>`;
}
