// When a trigger fires: rows of field, operator and value, or CEL; beside each clause, for how many events it is true.
import { html, useState } from "../vendor/preact.js";
import { OPERATORS, clauseOf, splitClauses, toCondition, toRows } from "../components/condition_rows.js";
import { NumberInput, readNumber } from "../components/number_input.js";
import { count, line, number } from "../format.js";

const TYPES = [["string", "text"], ["number", "number"], ["boolean", "yes or no"], ["null", "nothing"]];
const NAMES = { bigint: "number", boolean: "boolean", number: "number" };
const typeOf = (value) => (value === null ? "null" : NAMES[typeof value] ?? "string");

/** `fields`: the paths that events have, for completion. `clauses`: what Harken says of each clause. */
export function Conditions({ draft, change, problems, answer, fields }) {
  const { rows } = draft;
  const [text, setText] = useState(null);
  const set = (next, what = "rows") => change({ rows: next }, what);
  const put = (at, row, what) => set(rows.map((one, index) => (index === at ? row : one)), what);
  const wrong = problems.filter((one) => one.path[0] === "trigger" && one.path[1] === "condition");
  const said = clausesOf(rows, answer);
  const edit = () => setText(toCondition(rows));
  const type = (written) => {
    setText(written);
    set(toRows(written), "condition");
  };
  return html`<section class="card stack" aria-labelledby="when"><div class="card-head"><h2 id="when">When should it fire?</h2>
      ${text === null ? html`<button class="quiet" onClick=${edit}>Edit as CEL</button>` : html`<button class="quiet" onClick=${() => setText(null)}>Edit as rows</button>`}</div>
    ${text === null
      ? html`${rows.length === 0 && html`<p class="dim">At every event. Add a condition, or click a value of the payload.</p>`}
        <ul class="conditions">${rows.map((row, at) => html`<li key=${at}><${Row} row=${row} at=${at} put=${put} remove=${() => set(rows.filter((_, index) => index !== at))} said=${said[at]} /></li>`)}</ul>
        <datalist id="event-fields">${fields.map((field) => html`<option key=${field} value=${field} />`)}</datalist>
        <p class="row-buttons"><button onClick=${() => set([...rows, { field: "event.", operator: "is" }])}>Add a condition</button><button class="quiet" onClick=${() => set([...rows, { cel: "" }])}>Add CEL</button></p>`
      : html`<label class="field"><span class="sr">Condition in CEL</span><textarea class="mono" rows="4" spellcheck=${false} value=${toCondition(rows) === toCondition(toRows(text)) ? text : toCondition(rows)}
          placeholder='event.service == "checkout" && event.size > 3' aria-invalid=${wrong.length > 0} onInput=${(event) => type(event.currentTarget.value)}></textarea></label>
        ${answer?.clauses.length > 0 && html`<ul class="clause-list">${answer.clauses.map((one) => html`<li key=${one.clause}><code>${line(one.clause, 200)}</code> <${Said} ...${one} /></li>`)}</ul>`}`}
    <div role="alert">${wrong.map((one) => html`<div key=${one.message}><p class="wrong">${one.message}${one.fix && `. ${one.fix}`}</p>${one.excerpt && html`<pre class="excerpt">${one.excerpt}</pre>`}</div>`)}</div>
  </section>`;
}

/** For each row what its clauses say together; a row of CEL may have several. */
function clausesOf(rows, answer) {
  const clauses = answer?.clauses ?? [];
  const sizes = rows.map((row) => splitClauses(clauseOf(row)).length);
  if (sizes.reduce((sum, size) => sum + size, 0) !== clauses.length) return [];
  let from = 0;
  return sizes.map((size) => clauses.slice(from, (from += size)));
}

function Row({ row, at, put, remove, said }) {
  const which = `Condition ${at + 1}`;
  const close = html`<button class="quiet remove" aria-label="Remove condition ${at + 1}" title="Remove it" onClick=${remove}>✕</button>`;
  const told = said?.map((one) => html`<${Said} key=${one.clause} ...${one} />`);
  if (row.cel !== undefined) {
    return html`<div class="condition cel"><input class="mono" aria-label="${which}, in CEL" placeholder="CEL" spellcheck=${false} value=${row.cel} onInput=${(event) => put(at, { cel: event.currentTarget.value }, `row ${at}`)} />${close}</div>${told}`;
  }
  const kind = OPERATORS[row.operator][1];
  const choose = (operator) => put(at, { ...row, operator, value: converted(row.value, OPERATORS[operator][1]) });
  return html`<div class="condition"><input class="mono" list="event-fields" aria-label="${which}: field" placeholder="event.field" spellcheck=${false} value=${row.field}
      onInput=${(event) => put(at, { ...row, field: event.currentTarget.value }, `field ${at}`)} />
    <select aria-label="${which}: operator" value=${row.operator} onChange=${(event) => choose(event.currentTarget.value)}>${Object.entries(OPERATORS).map(([name, [words]]) => html`<option key=${name} value=${name}>${words}</option>`)}</select>
    ${kind !== "none" && html`<${Value} which=${which} kind=${kind} value=${row.value} onChange=${(value) => put(at, { ...row, value }, `value ${at}`)} />`}${close}</div>${told}`;
}

function Value({ which, kind, value, onChange }) {
  const label = `${which}: value`;
  if (kind === "list") return html`<${ListValue} label=${label} value=${value} onChange=${onChange} />`;
  if (kind === "number") return html`<${NumberInput} aria-label=${label} placeholder="a number" value=${value} onChange=${onChange} />`;
  if (kind !== "any") return html`<input aria-label=${label} placeholder=${kind === "time" ? "2026-01-31T09:00:00Z" : "text"} value=${value ?? ""} onInput=${(event) => onChange(event.currentTarget.value)} />`;
  const type = typeOf(value);
  return html`<span class="typed"><select aria-label="${which}: type of the value" value=${type} onChange=${(event) => onChange(as(event.currentTarget.value, value))}>${TYPES.map(([name, words]) => html`<option key=${name} value=${name}>${words}</option>`)}</select>
    ${type === "boolean" && html`<select aria-label=${label} value=${String(value)} onChange=${(event) => onChange(event.currentTarget.value === "true")}><option value="true">true</option><option value="false">false</option></select>`}
    ${type === "number" && html`<${NumberInput} aria-label=${label} value=${value} read=${numberOrNone} onChange=${onChange} />`}
    ${type === "string" && html`<input aria-label=${label} placeholder="value" value=${value ?? ""} onInput=${(event) => onChange(event.currentTarget.value)} />`}</span>`;
}

function ListValue({ label, value, onChange }) {
  const given = Array.isArray(value) ? value : [];
  const [text, setText] = useState(given.map(shown).join(", "));
  const same = JSON.stringify(split(text)) === JSON.stringify(given);
  return html`<input aria-label=${label} placeholder="one, two, 3" value=${same ? text : given.map(shown).join(", ")} onInput=${({ currentTarget: { value: written } }) => {
    setText(written);
    onChange(split(written));
  }} />`;
}

const shown = (one) => (typeof one === "string" && !looksOtherwise(one) ? one : JSON.stringify(one));
const looksOtherwise = (text) => text === "" || /[",]/.test(text) || /^\s|\s$/.test(text) || typeof scalar(text) !== "string";
const split = (text) => (text.match(/\s*"(?:[^"\\]|\\.)*"|[^,]+/g) ?? []).map((one) => one.trim()).filter(Boolean).map(scalar);

function scalar(text) {
  if (!/^("|-?\d|true$|false$|null$)/.test(text)) return text;
  try {
    return readNumber(text) ?? JSON.parse(text);
  } catch {
    return text;
  }
}

const numberOrNone = (text) => readNumber(text) ?? 0;

function as(type, value) {
  if (type === "null") return null;
  if (type === "boolean") return true;
  return type === "number" ? numberOrNone(String(value ?? "")) : value == null ? "" : String(value);
}

/** A value for an operator of another kind; what does not fit is asked for again. */
function converted(value, kind) {
  if (kind === "none") return null;
  if (kind === "list") return Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];
  const one = Array.isArray(value) ? value[0] : value ?? undefined;
  if (kind === "number") return readNumber(String(one ?? ""));
  return kind === "any" || one === undefined ? one : String(one);
}

function Said({ passed, failed, errors, alone }) {
  if (!passed && !failed && !errors) return null;
  const tone = errors ? "bad" : failed ? (passed ? "warn" : "bad") : "good";
  return html`<p class="said ${tone}"><span class="dot ${tone}" aria-hidden="true"></span>true for ${count(passed, "event")}${failed > 0 && `, not for ${number(failed)}`}${errors > 0 && `, an error for ${count(errors, "event")}`}${alone > 0 && html`<span class="dim"> · alone holds back ${number(alone)}</span>`}</p>`;
}
