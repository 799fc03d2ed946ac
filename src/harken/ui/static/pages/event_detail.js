// An event: what each trigger decided and ran, its payload, and what changed since the subject's event before.
import { html, useState } from "../vendor/preact.js";
import { at, get, post } from "../api.js";
import { Action } from "../components/action.js";
import { clauseFor } from "../components/clause.js";
import { asCurl, command, copy, CopyMenu, signedCurl, testForms } from "../components/copy.js";
import { JsonDiff } from "../components/json_diff.js";
import { JsonView, pathText } from "../components/json_view.js";
import { Link } from "../components/link.js";
import { Pill } from "../components/pill.js";
import { Empty, Shown } from "../components/states.js";
import { Tabs, useTab } from "../components/tabs.js";
import { Ago } from "../components/time_text.js";
import { count, line, words } from "../format.js";
import { useResource } from "../resource.js";
import { href, navigate } from "../router.js";
import { may } from "../session.js";
import { span, stamp } from "../time.js";
import { titleOf } from "./event_words.js";

const TABS = [["payload", "Payload"], ["changes", "Changes"]];

/** `require(clause)`: add a clause to the filter of the list beside it. `alone`: it is the whole page. */
export function EventDetail({ id, require, alone = false }) {
  const found = useResource((signal) => get(at`/api/events/${id}`, {}, { signal }), [id]);
  return html`<${Shown} of=${found} what="the event" show=${(event) => html`<${Whole} event=${event} reload=${found.reload} require=${require} alone=${alone} />`} />`;
}

function Whole({ event, reload, require, alone }) {
  const [clicked, setClicked] = useState(null);
  const tab = useTab("view", TABS);
  const onLeaf = (path, value) => {
    setClicked({ path, value });
    require?.(clauseFor(path, value));
  };
  const Title = alone ? "h1" : "h2";
  return html`<div class="event">
    <${Title} class="event-title">${titleOf(event)}<//>
    <p class="dim">${event.type} from <strong>${event.feed}</strong> · recorded <${Ago} at=${event.recorded_at} />${event.occurred_at && ` · happened ${stamp(event.occurred_at)}`}
      ${event.repeats > 0 && ` · came ${count(event.repeats, "time")} more`}</p>
    <p class="dim">key <code>${line(event.key, 300)}</code>${event.state != null && html` · state <code>${line(event.state, 100)}</code>`}</p>
    <${Buttons} event=${event} reload=${reload} alone=${alone} />
    <${Verdicts} event=${event} />
    <div class="card-head"><${Tabs} name="view" tabs=${TABS} label="Parts of the event" panel="event-part" /></div>
    ${clicked && html`<${Clause} ...${clicked} event=${event} applied=${Boolean(require)} />`}
    <div id="event-part" role="tabpanel" aria-label=${TABS.find(([name]) => name === tab)[1]}>
      ${tab === "payload" ? html`<${JsonView} value=${event.data} onLeaf=${onLeaf} label="Payload" open=${3} />` : html`<${Changes} event=${event} onLeaf=${onLeaf} />`}
    </div>
  </div>`;
}

function Buttons({ event, reload, alone }) {
  const forms = {
    JSON: () => JSON.stringify(event, null, 2),
    CEL: () => `feed == ${JSON.stringify(event.feed)} && key == ${JSON.stringify(event.key)}`,
    cURL: () => asCurl(`/api/events/${event.id}`),
    // only a generic webhook has a form that we can make again
    "cURL, signed": event.feed_id.startsWith("webhook/generic/") ? signedCurl(event.feed_id, event.id) : null,
    Command: () => command("events", "show", String(event.id)),
    ...Object.assign({}, ...event.verdicts.map(({ trigger }) => testForms(event.id, trigger, event.verdicts.length > 1 ? ` of ${trigger}` : ""))),
    Link: () => `${location.origin}/events/${event.id}`,
  };
  const replay = (trigger) => async () => {
    const { runs } = await post(at`/api/events/${event.id}/replay`, trigger ? { trigger } : {});
    if (runs.length === 1) navigate(`/runs/${runs[0].id}`);
    return `${count(runs.length, "run")} started`;
  };
  const ran = event.verdicts.some((verdict) => verdict.run_id);
  const others = event.verdicts.filter((verdict) => !verdict.run_id).map((verdict) => verdict.trigger);
  return html`<div class="event-buttons">
    ${event.starred
      ? html`<${Action} operation="events.unstar" then=${reload} act=${async () => (await post(at`/api/events/${event.id}/unstar`), "It is no longer starred")}>★ Unstar<//>`
      : html`<${Action} operation="events.star" then=${reload} act=${async () => (await post(at`/api/events/${event.id}/star`), "It is starred, and stays whatever retention says")}>☆ Star<//>`}
    ${ran && html`<${Action} operation="events.replay" ask=${{ title: "Replay this event?", text: "Its runs start again, and do what they do.", yes: "Replay", tone: "primary" }} act=${replay()}>Replay<//>`}
    ${others.map((name) => html`<${Action} key=${name} operation="events.replay" act=${replay(name)}
      ask=${{ title: `Run ${name} for it?`, text: "Its condition is not asked.", yes: "Run it", tone: "primary" }}>Run ${name} anyway<//>`)}
    ${may("triggers.create") && html`<a class="button" href=${href("/triggers/new", { like: event.id })}>New trigger like this</a>`}
    <${CopyMenu} forms=${forms} />
    ${!alone && html`<a href="/events/${event.id}">Open alone</a>`}
  </div>`;
}

function Verdicts({ event }) {
  if (!event.verdicts.length) return html`<p class="dim">No trigger listens to ${event.feed}.</p>`;
  return html`<ul class="verdicts" aria-label="Verdicts">${event.verdicts.map((verdict) => html`<li key=${verdict.trigger}>
    <p><strong>${verdict.trigger}</strong> <${Pill} status=${verdict.outcome} /> <${Link} to="/explain" query=${{ trigger: verdict.trigger, key: `#${event.id}` }}>why<//></p>
    ${verdict.reason && html`<p class="dim">${line(verdict.reason, 400)}</p>`}
    ${verdict.run_id && html`<${RunLine} id=${verdict.run_id} />`}
  </li>`)}</ul>`;
}

function RunLine({ id }) {
  const found = useResource((signal) => get(at`/api/runs/${id}`, { cut: 100 }, { signal }).catch((error) => gone(error)), [id]);
  const run = found.data;
  return html`<p>run <${Link} to="/runs/${id}">${id.slice(0, 12)}<//> ${run === null ? html`<span class="dim">is no longer stored</span>`
    : run && html`<${Pill} status=${run.outcome} /> ${run.seconds != null && span(run.seconds)} ${run.error && html`<span class="dim">${line(run.error, 160)}</span>`}`}</p>`;
}

function gone(error) {
  if (error.status === 404) return null;
  throw error;
}

/** The clause that a click gave, to be used elsewhere. */
function Clause({ path, value, event, applied }) {
  const filter = clauseFor(path, value);
  return html`<p class="clause" role="status">${applied ? "The list now requires " : ""}<code>${line(filter, 300)}</code>
    <button onClick=${() => copy(clauseFor(path, value, "event"), "The condition")} title="As a trigger's condition has it">Copy as condition</button>
    <${CopyMenu} label="Copy the value as" forms=${{ JSON: () => JSON.stringify(value, null, 2), Path: () => pathText(path), CEL: () => filter, Template: () => `{{${pathText(path, ".trigger.event")}}}` }} />
    ${may("triggers.create") && html`<a href=${href("/triggers/new", { like: event.id, condition: clauseFor(path, value, "event") })}>New trigger with this</a>`}
    ${!applied && html`<a href=${href("/events", { where: filter, selected: event.id })}>Show such events</a>`}</p>`;
}

function Changes({ event, onLeaf }) {
  const { previous } = event;
  const found = useResource((signal) => (previous ? get(`/api/events/${previous}`, {}, { signal }) : null), [previous]);
  if (!previous) return html`<${Empty} title="This is the first event of ${line(event.subject || "its subject", 60)}."><p>There is nothing before it to compare with.</p><//>`;
  return html`<${Shown} of=${found} what="the event before" show=${(before) => before && html`<p class="dim">Compared with <a href="/events/${before.id}">#${before.id}</a>, <${Ago} at=${before.recorded_at} />
      ${before.state !== event.state && `: ${words(before.state ?? "no state")} → ${words(event.state ?? "no state")}`}</p>
    <${JsonDiff} before=${before.data} after=${event.data} onLeaf=${onLeaf} />`} />`;
}
