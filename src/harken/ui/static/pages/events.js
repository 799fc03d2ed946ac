// The live tail: what comes in, what each trigger did about it, and the payload beside it.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { both } from "../components/clause.js";
import { Choice } from "../components/choice.js";
import { LiveState } from "../components/live_state.js";
import { Pill } from "../components/pill.js";
import { Empty, Failed, FilteredOut, Loading } from "../components/states.js";
import { Clock } from "../components/time_text.js";
import { VirtualList } from "../components/virtual_list.js";
import { isAboutFilter, WhereField } from "../components/where_field.js";
import { recoveries } from "../connection.js";
import { count, number, words } from "../format.js";
import { useKeys } from "../keys.js";
import { useInterval } from "../resource.js";
import { query, setQuery } from "../router.js";
import { onStream } from "../stream.js";
import { EventDetail } from "./event_detail.js";
import { EventTail, MOST_ROWS } from "./event_tail.js";
import { outcomeOf, titleOf, wayOf } from "./event_words.js";
import { TriggerChoice } from "./runs.js";

const OUTCOMES = ["fired", "filtered", "duplicate", "before_start", "gathered", "held", "skipped", "error"];
const OUTCOME_CHOICES = [["", "Every verdict"], ...OUTCOMES.map((name) => [name, words(name)])];
const LOOK_MS = 5000; // without a stream too

export default function Events() {
  const { where = "", trigger = "", outcome = "", selected = "" } = query.value;
  const filter = whole(where, trigger, outcome);
  const [paused, setPaused] = useState(false);
  const [atTop, setAtTop] = useState(true);
  const tail = useTail(filter, paused || !atTop);
  const frame = useRef(null);
  const goOn = () => {
    setPaused(false);
    const list = frame.current?.querySelector(".virtual");
    if (list) list.scrollTop = 0;
  };
  useKeys([["p", "Pause, or go on", () => (paused || !atTop ? goOn() : setPaused(true))]]);
  const require = (clause) => setQuery({ where: both(where, clause) }, { push: true });
  return html`<div class="page-head"><h1>Events</h1><${LiveState} /><p class="dim">${told(tail)}</p>
      <div class="tools"><${Pause} tail=${tail} paused=${paused} atTop=${atTop} pause=${() => setPaused(true)} goOn=${goOn} /></div></div>
    <div class="filters three">
      <${TriggerChoice} /><${Choice} name="outcome" label="Verdict" options=${OUTCOME_CHOICES} />
      <${WhereField} error=${tail.error} example='type == "issue.opened" && data.priority <= 2' />
    </div>
    <div class="split ${selected ? "has-detail" : ""}" ref=${frame}>
      <div class="split-list"><${List} tail=${tail} filter=${filter} selected=${selected} onTop=${setAtTop} /></div>
      ${selected && html`<section class="card split-detail" aria-label="The chosen event">
        <p class="buttons"><button class="quiet" onClick=${() => setQuery({ selected: "" }, { push: true })}>Close</button></p>
        <${EventDetail} key=${selected} id=${selected} require=${require} />
      </section>`}
    </div>`;
}

function told({ rows, older }) {
  return rows ? `${older ? "the newest " : ""}${count(rows.length, "event")}` : "";
}

/** One filter of all that was chosen. */
function whole(where, trigger, outcome) {
  const verdict = [trigger && `v.trigger == ${JSON.stringify(trigger)}`, outcome && `v.outcome == ${JSON.stringify(outcome)}`].filter(Boolean).join(" && ");
  return verdict ? both(where, `verdicts.exists(v, ${verdict})`) : where;
}

function useTail(filter, paused) {
  const [, redraw] = useState(0);
  const tail = useMemo(() => new EventTail(filter, () => redraw((before) => before + 1)), [filter]);
  const before = useRef(null);
  useEffect(() => {
    const stopStream = onStream("event", (row) => tail.note(row.id));
    tail.start();
    return () => {
      stopStream();
      tail.stop();
      before.current = tail;
    };
  }, [tail]);
  useEffect(() => tail.setPaused(paused), [tail, paused]);
  useEffect(() => {
    if (!recoveries.value) return;
    if (tail.rows) tail.pull();
    else tail.start();
  }, [recoveries.value]);
  useInterval(() => tail.pull(), LOOK_MS);
  // what is typed may be wrong for a moment: what was there stays
  return tail.rows || !before.current ? tail : Object.assign(Object.create(before.current), { error: tail.error });
}

function Pause({ tail, paused, atTop, pause, goOn }) {
  const waiting = tail.waiting ? `+${number(tail.waiting)} waiting` : "nothing waits";
  if (!paused && atTop) return html`<button onClick=${pause} title="Key p">Pause</button>`;
  return html`<span class="waiting" role="status">${paused ? "Paused" : "Held while you scroll"}: ${waiting}</span>
    <button class="primary" onClick=${goOn} title="Key p">${paused ? "Resume" : "Back to the top"}</button>`;
}

function List({ tail, filter, selected, onTop }) {
  const { rows, error, older, lookedAt } = tail;
  if (error && !isAboutFilter(error) && !rows) return html`<${Failed} error=${error} retry=${() => tail.start()} />`;
  if (!rows) return error ? null : html`<${Loading} what="events" />`;
  if (!rows.length && older) {
    return html`<div class="state"><p><strong>None of the newest ${count(lookedAt, "event")} fits the filter.</strong></p><button onClick=${() => tail.readOlder()}>Look further back</button></div>`;
  }
  if (!rows.length && filter) return html`<${FilteredOut} what="events" clear=${() => setQuery({ where: "", trigger: "", outcome: "" }, { push: true })} />`;
  if (!rows.length) return html`<${Empty} title="No events yet."><p>They appear here as soon as a feed has something new.</p><//>`;
  const select = (id) => setQuery({ selected: id });
  return html`<${VirtualList} rows=${rows} row=${(row) => html`<${Row} row=${row} />`} keyOf=${(row) => String(row.id)} height=${56} label="Events" name="events"
      selected=${selected} onSelect=${select} onEnd=${() => tail.readOlder()} onTop=${onTop} />
    ${rows.length >= MOST_ROWS && older && html`<p class="dim">The newest ${number(MOST_ROWS)} are kept here; a filter finds older ones.</p>`}`;
}

function Row({ row }) {
  return html`<span class="row-time"><${Clock} at=${row.recorded_at} /></span>
    <span class="row-main"><strong class="row-title">${titleOf(row)}</strong><span class="row-why">${wayOf(row)}</span></span>
    <span class="row-side"><${Pill} status=${outcomeOf(row)} /><span class="dim">#${row.id}</span></span>`;
}
