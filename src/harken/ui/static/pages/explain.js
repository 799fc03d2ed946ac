// Why did it run, or why not? The way of one item through the stages, in words, with what to do next.
import { html, useState } from "../vendor/preact.js";
import { at, get, getAll } from "../api.js";
import { Advice } from "../components/advice.js";
import { toneOf } from "../components/pill.js";
import { Empty, Failed, Shown } from "../components/states.js";
import { line, words } from "../format.js";
import { useResource } from "../resource.js";
import { navigate, href, query } from "../router.js";
import { fromField, toField, zoneName } from "../time.js";

const STAGES = [["read", "Read"], ["memory", "Known already?"], ["match", "Condition"], ["gather", "Gathered"], ["held", "Held"], ["run", "Run"]];
const MOST_TRIGGERS = 20;
const LONGEST = 1000; // of a subject that a filter may name
const MOMENT = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;

export default function Explain() {
  const { trigger = "", key = "" } = query.value;
  return html`<div class="page-head"><h1>Explain</h1><p class="dim">Why did it run, or why not?</p></div>
    <${Question} key=${`${trigger} ${key}`} trigger=${trigger} asked=${key} />
    ${MOMENT.test(key) && !trigger ? html`<${Empty} title="Which trigger should have run then?"><p>Choose it: a time is looked up in what its feed has read.</p><//>`
      : trigger || key ? html`<${Answers} trigger=${trigger} asked=${key} />`
      : html`<${Empty} title="Ask about something that should have happened."><p>Type what the service calls it (an id, a key, <code>#12</code> for event 12), or choose a time at which you missed something.</p><//>`}`;
}

function Question({ trigger, asked }) {
  const triggers = useResource((signal) => getAll("/api/triggers", { fields: "name" }, { signal }), []);
  const isTime = MOMENT.test(asked);
  const [form, setForm] = useState({ trigger, key: isTime ? "" : asked, time: isTime ? toField(asked) : "" });
  const change = (name) => (event) => setForm({ ...form, [name]: event.currentTarget.value });
  const names = (triggers.data ?? []).map((row) => row.name);
  const submit = (event) => {
    event.preventDefault();
    const key = form.key.trim() || (form.time ? fromField(form.time) : "");
    navigate(href("/explain", { trigger: form.trigger, key }));
  };
  return html`<form class="card explain-form" onSubmit=${submit}>
    <label>Trigger <select value=${form.trigger} onChange=${change("trigger")}>
      <option value="">any that looked at it</option>
      ${[...new Set([...names, ...(trigger ? [trigger] : [])])].map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
    <label>Key, subject or #event <input data-search type="text" value=${form.key} onInput=${change("key")} spellcheck=${false} autocomplete="off" placeholder="INC-42" /></label>
    <label>or a time, ${zoneName()} <input type="datetime-local" step="1" value=${form.time} disabled=${Boolean(form.key.trim())} onInput=${change("time")} /></label>
    <button class="primary">Explain</button>
  </form>`;
}

function Answers({ trigger, asked }) {
  const found = useResource((signal) => explain(trigger, asked, signal), [trigger, asked]);
  if (found.error) return html`<${Failed} error=${found.error} retry=${found.reload} />`;
  if (found.loading && found.data?.asked !== `${trigger} ${asked}`) return html`<${Shown} of=${{}} what="the answer" />`;
  return html`<${Shown} of=${found} what="the answer" show=${({ answers }) => answers.length
    ? html`<div class="stack">${answers.map((answer) => html`<${Answer} key=${answer.trigger} answer=${answer} />`)}</div>`
    : html`<${Empty} title="No event is stored under exactly ${line(asked, 80)}."><p>Choose the trigger that should have run: then what its feed remembers, its reads and similar names are looked through too.</p><//>`} />`;
}

/** The answer of one trigger, or of each that decided about the events of this key. */
async function explain(trigger, key, signal) {
  const names = trigger ? [trigger] : await deciding(key, signal);
  const answers = await Promise.all(names.map((name) => get(at`/api/triggers/${name}/explain`, { key }, { signal })));
  return { asked: `${trigger} ${key}`, answers };
}

/** The triggers that looked at an event of this id, of this key, or else of this subject among the newest. */
async function deciding(key, signal) {
  const number = /^#(\d+)$/.exec(key)?.[1];
  const find = async (params) => (await get("/api/events", { ...params, limit: 20, fields: "verdicts" }, { signal })).items;
  let events = number ? [await get(`/api/events/${number}`, {}, { signal })] : await find({ key });
  if (!events.length && key.length <= LONGEST) events = await find({ where: `subject == ${JSON.stringify(key)}` });
  return [...new Set(events.flatMap((event) => event.verdicts.map((verdict) => verdict.trigger)))].slice(0, MOST_TRIGGERS);
}

function Answer({ answer }) {
  const details = Object.entries(answer.details ?? {}).filter(([, value]) => !isNothing(value));
  return html`<section class="card" aria-label="Answer of ${answer.trigger}">
    <h2>${answer.trigger}${answer.key && html` <span class="dim">${line(answer.key, 100)}</span>`}</h2>
    <${Stages} stage=${answer.stage} outcome=${answer.outcome} />
    <p class="answer">${line(answer.sentence, 2000)}.</p>
    <dl class="facts">${details.map(([name, value]) => html`<dt key=${name}>${words(name)}</dt><dd><${Fact} name=${name} value=${value} /></dd>`)}</dl>
    ${answer.advice?.length > 0 && html`<ul class="next" aria-label="What to do next">${answer.advice.map((text) => html`<li key=${text}>→ <${Advice} text=${text} /></li>`)}</ul>`}
  </section>`;
}

const isNothing = (value) => value === "" || value == null || (typeof value === "object" && !Object.keys(value).length);

/** How far it got. A whole trigger has no stage. */
function Stages({ stage, outcome }) {
  const reached = STAGES.findIndex(([name]) => name === stage);
  if (reached < 0) return null;
  return html`<ol class="stages" aria-label="Stages">${STAGES.map(([name, said], index) => html`<li key=${name} aria-current=${index === reached ? "step" : undefined}
    class=${index < reached ? "passed" : index === reached ? `here ${toneOf(outcome)}` : ""}>${said}${index === reached ? `: ${words(outcome)}` : ""}</li>`)}</ol>`;
}

function Fact({ name, value }) {
  if (name === "event_id") return html`<a href="/events/${value}">#${value}</a>`;
  if (name === "run_id" || name === "run") return html`<a href="/runs/${value}">${line(String(value), 40)}</a>`;
  if (Array.isArray(value)) return html`<ul>${value.map((item) => html`<li>${line(typeof item === "string" ? item : JSON.stringify(item), 400)}</li>`)}</ul>`;
  if (typeof value === "object") return line(Object.entries(value).map(([key, one]) => `${key} ${one}`).join(", "), 400);
  return line(String(value), 600);
}
