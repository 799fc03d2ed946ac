// One trigger: how it is and what helps, what it decided and why, how it reads, and how it is defined.
import { html, useState } from "../vendor/preact.js";
import { at, del, get, patch, post } from "../api.js";
import { Action } from "../components/action.js";
import { Advice } from "../components/advice.js";
import { asCurl, command, CopyMenu, signedCurl } from "../components/copy.js";
import { Coverage } from "../components/coverage.js";
import { JsonView } from "../components/json_view.js";
import { Editor } from "../components/lazy.js";
import { Link, triggerPath, workflowPath } from "../components/link.js";
import { Pill } from "../components/pill.js";
import { Empty, Shown, Working } from "../components/states.js";
import { Table } from "../components/table.js";
import { Tabs, useTab } from "../components/tabs.js";
import { Ago, Clock, Due } from "../components/time_text.js";
import { count, line, number, plural, words } from "../format.js";
import { useDraft, useInterval, useResource } from "../resource.js";
import { href, navigate, query, setQuery } from "../router.js";
import { may } from "../session.js";
import { span } from "../time.js";
import { FileEditor, mayEdit, RefusedFile } from "./file_editor.js";
import { TriggerActions } from "./triggers.js";

const TABS = [["decisions", "Decisions"], ["reads", "Reads"], ["try", "Try a condition"], ["definition", "Definition"]];
const VIEWS = { decisions: Decisions, reads: Reads, try: TryCondition, definition: Definition };
const REFRESH_MS = 5000;

export default function Trigger({ name }) {
  const found = useResource((signal) => get(at`/api/triggers/${name}`, {}, { signal }), [name]);
  useInterval(found.refresh, REFRESH_MS);
  if (may("workflows.write") && found.data === undefined && isRefusedFile(found.error)) {
    return html`<${RefusedFile} name=${name} error=${found.error} reload=${found.reload} />`;
  }
  return html`<${Shown} of=${found} what=${name} show=${(trigger) => html`<${trigger.ticks ? Whole : Idle} trigger=${trigger} reload=${found.reload} />`} />`;
}

/** Whether it is a workflow file that was never loaded as it is written, and not a job. */
const isRefusedFile = (error) => error?.code === "misconfigured" && /\bworkflows\//.test(error.message);

/** A row that is not enabled, or that cannot be used as it is: nothing listens, so there is nothing but its definition. */
function Idle({ trigger, reload }) {
  return html`<div class="page-head"><h1>${line(trigger.name)}</h1><${Pill} status=${trigger.status} />
      <div class="tools"><${RowActions} trigger=${trigger} reload=${reload} /></div></div>
    <div class="stack"><${Reason} trigger=${trigger} /><${Definition} trigger=${trigger} reload=${reload} /></div>`;
}

function Reason({ trigger }) {
  if (!trigger.reason) return null;
  return html`<section class="card notice"><p class="what">${line(trigger.reason, 600)}</p><p class="do"><${Advice} text=${trigger.advice} /></p></section>`;
}

/** What can be done with a trigger that is a row in the store. */
function RowActions({ trigger, reload }) {
  const { name, row, revision } = trigger;
  const enable = async () => (await patch(at`/api/triggers/${name}`, { enabled: true }, revision), `${name} is enabled, and listens`);
  const remove = async () => {
    await del(at`/api/triggers/${name}`, revision);
    navigate("/triggers");
    return `${name} is deleted`;
  };
  const question = { title: `Delete ${name}?`, text: "It listens no more, and its secrets are forgotten. What it has recorded stays until it is old.", yes: "Delete it" };
  return html`${may("triggers.replace") && html`<a class="button" href=${href("/triggers/new", { edit: name })}>Edit</a>`}
    ${!row.enabled && html`<${Action} operation="triggers.edit" tone="primary" act=${enable} then=${reload}>Enable<//>`}
    <${Action} operation="triggers.delete" ask=${question} act=${remove}>Delete…<//>`;
}

function Whole({ trigger, reload }) {
  const tab = useTab("tab", TABS);
  const View = VIEWS[tab];
  const forms = {
    YAML: async () => (await get(at`/api/triggers/${trigger.name}/export`)).yaml,
    JSON: () => JSON.stringify(trigger, null, 2),
    CEL: trigger.condition ? () => trigger.condition : null,
    cURL: () => asCurl(at`/api/triggers/${trigger.name}`),
    "cURL, signed": signedCurl(trigger.feed_id),
    Command: () => command("triggers", "show", trigger.name),
    Link: () => location.origin + triggerPath(trigger.name),
  };
  return html`<div class="page-head"><h1>${line(trigger.name)}</h1><${Pill} status=${trigger.status} />
      <span class="dim">${words(trigger.type)}, starts <${Link} to=${workflowPath(trigger.workflow)}>${trigger.workflow}<//></span>
      <div class="tools">${trigger.row && html`<${RowActions} trigger=${trigger} reload=${reload} />`}${mayEdit(trigger.source) && !query.value.edit && html`<button onClick=${() => setQuery({ tab: "definition", edit: "1" }, { push: true })}>Edit</button>`}<${CopyMenu} forms=${forms} /><${TriggerActions} row=${trigger} then=${reload} /></div></div>
    <div class="stack">
      <${Reason} trigger=${trigger} />
      <${Facts} trigger=${trigger} />
      <div><${Tabs} name="tab" tabs=${TABS} label="About this trigger" panel="trigger-panel" /></div>
      <div id="trigger-panel" role="tabpanel" aria-label=${TABS.find(([one]) => one === tab)[1]} class="stack"><${View} trigger=${trigger} reload=${reload} /></div>
    </div>`;
}

function Facts({ trigger }) {
  const recent = Object.entries(trigger.recent ?? {}).map(([outcome, times]) => `${number(times)} ${words(outcome)}`).join(", ");
  return html`<dl class="tiles">
    <${Fact} words="Fired" value=${number(trigger.fired)} unit=${plural(trigger.fired, "time")} note=${trigger.last_fired_at ? html`last <${Ago} at=${trigger.last_fired_at} />` : "never yet"} />
    <${Fact} words="Lately" value=${recent || "nothing"} small=${true} note="of the newest events" />
    <${Fact} words="Held" value=${number(trigger.held)} unit=${plural(trigger.held, "run")} note=${Object.keys(trigger.held_by ?? {}).map(words).join(", ")} />
    <${Fact} words="Dead" value=${number(trigger.dead)} unit=${plural(trigger.dead, "run")} />
    <${Fact} words=${trigger.next_read_at ? "Next read" : "Last heard"} value=${trigger.next_read_at ? html`<${Due} at=${trigger.next_read_at} />` : html`<${Ago} at=${trigger.last_read_at} />`} small=${true}
      note=${trigger.late_seconds > 1 ? `${span(trigger.late_seconds)} late` : trigger.schedule} />
  </dl>`;
}

function Fact({ words: name, value, unit, note, small }) {
  return html`<div class="tile"><dt>${name}</dt><dd class=${small ? "small" : ""}>${value}${unit && html` <small>${unit}</small>`}${note && html`<div class="note">${note}</div>`}</dd></div>`;
}

/** What it decided about the newest events of each outcome, and which clause held most of them back. */
function Decisions({ trigger }) {
  const found = useResource((signal) => get(at`/api/triggers/${trigger.name}/bank`, { limit: 20 }, { signal }), [trigger.name]);
  useInterval(found.refresh, REFRESH_MS);
  return html`${trigger.clauses?.length > 0 && html`<section class="card" aria-labelledby="clauses"><h2 id="clauses">What the condition holds back</h2>
      <${Table} label="Clauses" columns=${CLAUSES} rows=${trigger.clauses} keyOf=${(row) => row.clause} /></section>`}
    ${trigger.timeline?.length > 0 && html`<section class="card" aria-labelledby="timeline"><h2 id="timeline">How events are gathered</h2><pre class="timeline">${trigger.timeline.join("\n")}</pre></section>`}
    ${trigger.refused_webhooks?.length > 0 && html`<section class="card" aria-labelledby="refused"><h2 id="refused">Refused webhooks</h2>
      <ul class="feed-list">${trigger.refused_webhooks.map((one, index) => html`<li key=${index}><${Clock} at=${one.at} /><span class="title">${line(one.reason, 200)}</span><span class="dim">${line(one.sender ?? "", 60)}</span></li>`)}</ul></section>`}
    <${Shown} of=${found} what="the event bank" show=${(bank) => html`<div class="columns">
      <${Banked} title="Fired" rows=${bank.fired} empty="It has not fired yet." />
      <${Banked} title="Filtered" rows=${bank.filtered} empty="Nothing was filtered." />
      ${bank.error.length > 0 && html`<${Banked} title="Errors" rows=${bank.error} />`}
      ${bank.starred.length > 0 && html`<${Banked} title="Starred" rows=${bank.starred} />`}
    </div>`} />`;
}

const CLAUSES = [
  { name: "clause", words: "Clause", cell: (row) => html`<code>${line(row.clause, 200)}</code>` },
  { name: "failed", words: "Not true for", number: true, cell: (row) => count(row.failed, "event") },
  { name: "alone", words: "Alone held back", number: true, cell: (row) => count(row.alone, "event") },
];

function Banked({ title, rows, empty }) {
  const id = `bank-${title.toLowerCase()}`;
  return html`<section class="card" aria-labelledby=${id}><h2 id=${id}>${title}</h2>
    ${rows.length
      ? html`<ul class="feed-list">${rows.map((row) => html`<li key=${row.id}><${Clock} at=${row.recorded_at} />
          <${Link} to="/events/${row.id}" class="title">${line([row.subject || row.key, row.title].filter(Boolean).join(" · "))}<//>
          <${Pill} status=${row.verdicts[0]?.outcome ?? "stored"} />
          ${row.verdicts[0]?.reason && html`<span class="why">${line(row.verdicts[0].reason, 300)}</span>`}</li>`)}</ul>`
      : html`<${Empty} title=${empty} />`}</section>`;
}

/** How it reads its source: where it stands, its last reads, and what it may have missed. */
function Reads({ trigger }) {
  const rows = [
    ["Feed", trigger.feed], ["Begins", trigger.start_line && html`with events since <${Clock} at=${trigger.start_line} />`],
    ["Cursor", trigger.cursor && html`<code>${line(trigger.cursor, 300)}</code>`], ["Read until", trigger.watermark && html`<${Clock} at=${trigger.watermark} />`],
    ["Remembers", trigger.memory != null && count(trigger.memory, "item")], ["Behind", trigger.lag_messages != null && `${count(trigger.lag_messages, "message")}, ${span(trigger.lag_seconds)}`],
    ["Calls left", trigger.calls_left != null && number(trigger.calls_left)], ["Last error", trigger.last_error && html`${line(trigger.last_error, 400)}${trigger.last_error_at && html` <${Ago} at=${trigger.last_error_at} />`}`],
  ].filter(([, value]) => value);
  return html`<section class="card" aria-labelledby="stands"><h2 id="stands">Where it stands</h2>
      <dl class="facts">${rows.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl></section>
    <section class="card" aria-labelledby="gaps"><h2 id="gaps">What was read, and gaps</h2>
      ${trigger.type === "webhook" && !trigger.coverage.length
        ? html`<p>A webhook is told what happens and reads nothing, so there is no time that it could prove to have read. Requests that were refused are listed under Decisions.</p>`
        : html`<${Coverage} spans=${trigger.coverage} gaps=${trigger.gaps} reads=${trigger.ticks} />`}
    </section>
    ${trigger.ticks.length > 0 && html`<section class="card" aria-labelledby="ticks"><h2 id="ticks">Last reads</h2>
      <${Table} label="Last reads" columns=${TICKS} rows=${trigger.ticks} keyOf=${(row) => row.at ?? row.started_at} /></section>`}`;
}

const TICKS = [
  { name: "at", words: "When", cell: (row) => html`<${Clock} at=${row.at ?? row.started_at} />` },
  { name: "result", words: "Result", cell: (row) => html`<${Pill} status=${row.result === "ok" ? "ok" : row.result} />` },
  { name: "seen", words: "Seen", number: true, cell: (row) => count(row.seen ?? 0, "item") },
  { name: "new", words: "New", number: true, cell: (row) => count(row.new ?? 0, "item") },
  { name: "error", words: "Error", cell: (row) => line(row.error ?? "", 200) },
];

/** Another condition over the recorded events: what would fire, what would not, and which clause decides. */
function TryCondition({ trigger }) {
  const [condition, setCondition] = useDraft(`condition.${trigger.name}`, trigger.condition);
  const [answer, setAnswer] = useState(null);
  const [working, setWorking] = useState(false);
  const test = async () => {
    setAnswer(null);
    setWorking(true);
    try {
      setAnswer(await post(at`/api/triggers/${trigger.name}/backtest`, { condition, last: "7d" }));
    } finally {
      setWorking(false);
    }
  };
  const read = async () => setAnswer({ preview: await post(at`/api/triggers/${trigger.name}/test`, {}) });
  if (!may("triggers.backtest")) return html`<${Empty} title="Your token may not try conditions."><p>An operator may.</p><//>`;
  return html`<section class="card stack" aria-labelledby="try"><h2 id="try">What would another condition have done?</h2>
      <${Editor} value=${condition} onChange=${setCondition} language="text" label="Condition in CEL" />
      <p class="buttons">${trigger.interval_seconds != null && html`<${Action} operation="triggers.test" act=${read}>Dry run: read the source now<//>`}
        <${Action} operation="triggers.backtest" tone="primary" act=${test}>Try it on the last 7 days<//></p></section>
    ${working && html`<${Working} what="deciding the events of the last 7 days again" />`}
    ${answer?.preview && html`<${Preview} preview=${answer.preview} />`}
    ${answer?.lines && html`<${Backtest} answer=${answer} />`}`;
}

function Backtest({ answer }) {
  const { diff, runs } = answer;
  return html`<section class="card stack" role="status" aria-label="Answer of the backtest">
    <p><strong>${count(diff.would_fire, "more event")} would fire, ${number(diff.would_no_longer_fire)} would no longer</strong>, ${number(diff.unchanged)} stay as they are.
      ${" "}${count(runs.recorded, "run")} recorded, ${number(runs.now)} with this condition.</p>
    <p class="dim">Checked on ${count(answer.checked, "event")}: the rules as they are give the recorded verdict for ${number(answer.reproduced)} of them.</p>
    <div class="columns"><${Changed} title="Would fire now" rows=${answer.would_fire} /><${Changed} title="Would no longer fire" rows=${answer.would_no_longer_fire} /></div>
    ${answer.clauses.length > 0 && html`<${Table} label="Clauses of the condition" columns=${[...CLAUSES, { name: "change", words: "Smallest change", cell: (row) => row.change && html`<code>${line(row.change, 160)}</code> lets ${number(row.adds)} more through` }]} rows=${answer.clauses} keyOf=${(row) => row.clause} />`}
  </section>`;
}

function Changed({ title, rows }) {
  return html`<div><h3>${title}</h3>${rows.length
    ? html`<ul class="feed-list">${rows.slice(0, 20).map((row) => html`<li key=${row.id}><${Clock} at=${row.recorded_at} /><${Link} to="/events/${row.id}" class="title">${line([row.key, row.title].filter(Boolean).join(" · "))}<//><${Pill} status=${row.recorded} /></li>`)}</ul>`
    : html`<p class="dim">none</p>`}</div>`;
}

function Preview({ preview }) {
  return html`<section class="card" role="status" aria-label="Answer of the dry run"><h2>${preview.sentence}</h2>
    ${preview.notes.map((note) => html`<p class="dim">${note}</p>`)}
    <ul class="feed-list">${preview.shown.slice(0, 100).map((row, index) => html`<li key=${index}><${Clock} at=${row.occurred_at} /><span class="title">${line([row.key, row.title].filter(Boolean).join(" · "))}</span><${Pill} status=${row.outcome} />${row.reason && html`<span class="why">${line(row.reason, 300)}</span>`}</li>`)}</ul></section>`;
}

function Definition({ trigger, reload }) {
  const editing = query.value.edit && mayEdit(trigger.source);
  const found = useResource((signal) => get(at`/api/triggers/${trigger.name}/export`, {}, { signal }), [trigger.name, trigger.revision]);
  return html`<section class="card stack" aria-labelledby="definition"><h2 id="definition">Definition</h2>
      <p class="dim">${trigger.row
        ? "It is a row in the store."
        : html`It is defined in <code>${trigger.source}</code>: change it ${mayEdit(trigger.source) ? "here or there" : "there"}, and Harken loads it by itself.`}</p>
      ${editing
        ? html`<${FileEditor} name=${trigger.source} yaml=${found.data?.yaml} then=${reload} close=${() => setQuery({ edit: "" }, { push: true })} />`
        : html`<${Shown} of=${found} what="its YAML" show=${(data) => html`<${Editor} value=${data.yaml} readOnly=${true} label="YAML of ${trigger.name}" />`} />`}
    </section>
    <section class="card" aria-labelledby="query"><h2 id="query">Everything that is known of it</h2><${JsonView} value=${trigger} open=${1} label="The trigger as JSON" /></section>`;
}
