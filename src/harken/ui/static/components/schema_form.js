// A form of a JSON Schema: a field for each setting, with its description, default, and what is wrong with it.
import { html, useState } from "../vendor/preact.js";
import { NumberInput, readNumber } from "./number_input.js";
import { count } from "../format.js";

const FEW = 5;

/**
 * `schema`: of an object. `value`: what is set, `onChange(value)`. `path`: where the object stands, such as ["trigger", "poll", "query"].
 * `problems`: [{path, message, fix}]. `suggestions`: {name: [texts]}. `skip`: names that stand elsewhere, `first`: those to
 * begin with.
 */
export function SchemaForm({ schema, root = schema, value, onChange, path, problems, suggestions = {}, skip = [], first = [] }) {
  const rank = ([name]) => (first.includes(name) ? first.indexOf(name) : first.length);
  const properties = Object.entries(schema?.properties ?? {}).filter(([name]) => !skip.includes(name)).sort((one, other) => rank(one) - rank(other));
  const given = value && typeof value === "object" ? value : {};
  const required = new Set(schema?.required ?? []);
  const isSeen = ([name]) => required.has(name) || given[name] !== undefined || problems.some((one) => startsWith(one.path, [...path, name]));
  const rest = properties.filter((one) => !isSeen(one));
  const hidden = rest.length > FEW ? rest.slice(properties.length - rest.length >= FEW ? 0 : FEW - (properties.length - rest.length)) : [];
  const shown = properties.filter((one) => !hidden.includes(one));
  const field = ([name, inner]) => html`<${Field} key=${name} name=${name} schema=${resolve(inner, root)} root=${root} required=${required.has(name)} value=${given[name]}
    onChange=${(next) => onChange(withValue(given, name, next))} path=${[...path, name]} problems=${problems} suggestions=${suggestions[name]} />`;
  return html`<div class="fields">${shown.map(field)}
    ${hidden.length > 0 && html`<details class="more-fields"><summary>${count(hidden.length, "more setting")}</summary><div class="fields">${hidden.map(field)}</div></details>`}
    <${Others} given=${given} known=${[...Object.keys(schema?.properties ?? {}), ...skip]} onChange=${onChange} path=${path} problems=${problems} /></div>`;
}

/** One setting by its schema. */
export function Field({ name, schema, root = schema, value, onChange, path, problems, required = false, suggestions, label }) {
  const id = fieldId(path);
  const kind = kindOf(schema);
  const wrong = problems.filter((one) => (isLeaf(kind) ? startsWith(one.path, path) : same(one.path, path)));
  const Input = INPUTS[kind];
  const title = label ?? words(name);
  const about = html`<${About} id=${id} schema=${schema} wrong=${wrong} kind=${kind} />`;
  if (kind === "object") {
    return html`<fieldset class="field-group"><legend>${title}</legend>${about}
      <${SchemaForm} schema=${schema} root=${root} value=${value} onChange=${onChange} path=${path} problems=${problems} /></fieldset>`;
  }
  const attributes = { id, "aria-invalid": wrong.length > 0, "aria-describedby": `${id}-about`, "aria-required": required || undefined };
  return html`<div class="field field-${kind}"><label for=${id}>${title}${required && html`<span class="needed" title="required"> *</span>`}</label>
    <${Input} attributes=${attributes} schema=${schema} value=${value} onChange=${onChange} suggestions=${suggestions} />${about}</div>`;
}

function About({ id, schema, wrong, kind }) {
  const secret = kind === "secret" ? " It is kept as a secret, and never shown again; or write ${secret:NAME}." : "";
  return html`<div id="${id}-about" class="about">
    ${wrong.map((one) => html`<p key=${one.message} class="wrong">${one.message}${one.fix && `. ${one.fix}`}</p>`)}
    ${(schema.description || secret) && html`<p class="dim">${sentence(schema.description)}${secret}</p>`}</div>`;
}

/** Settings that the schema does not have: they stay as they are, and can be taken out. */
function Others({ given, known, onChange, path, problems }) {
  const names = Object.keys(given).filter((name) => !known.includes(name));
  return names.map((name) => html`<div key=${name} class="field field-other"><span class="field-name">${name}</span><code>${JSON.stringify(given[name])}</code>
    <button class="quiet" onClick=${() => onChange(withValue(given, name, undefined))}>Remove ${name}</button>
    <div class="about">${problems.filter((one) => startsWith(one.path, [...path, name])).map((one) => html`<p key=${one.message} class="wrong">${one.message}${one.fix && `. ${one.fix}`}</p>`)}</div></div>`);
}

const INPUTS = { text: TextInput, secret: TextInput, number: NumberField, flag: FlagInput, choice: ChoiceInput, texts: TextsInput, json: JsonInput };
const isLeaf = (kind) => kind !== "object";

function kindOf(schema) {
  if (schema.enum) return "choice";
  if (schema.format === "password") return "secret";
  if (schema.type === "boolean") return "flag";
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (schema.type === "string") return "text";
  if (schema.type === "array" && ["string", undefined].includes(schema.items?.type) && !schema.items?.$ref && !schema.items?.anyOf) return "texts";
  return schema.type === "object" && schema.properties ? "object" : "json";
}

function TextInput({ attributes, schema, value, onChange, suggestions }) {
  const isSecret = schema.format === "password" && !String(value ?? "").startsWith("${");
  const list = suggestions?.length ? `${attributes.id}-known` : undefined;
  return html`<input ...${attributes} type=${isSecret ? "password" : "text"} value=${typeof value === "string" || value == null ? value ?? "" : JSON.stringify(value)} list=${list}
      placeholder=${schema.default ? String(schema.default) : ""} spellcheck=${false} autocomplete=${isSecret ? "new-password" : "off"}
      onInput=${(event) => onChange(event.currentTarget.value === "" ? undefined : event.currentTarget.value)} />
    ${list && html`<datalist id=${list}>${suggestions.map((one) => html`<option key=${one} value=${one} />`)}</datalist>`}`;
}

/** What is no number is kept as it is typed, and refused by the check. */
const numberOrText = (text) => readNumber(text) ?? (text.trim() || undefined);

function NumberField({ attributes, schema, value, onChange }) {
  return html`<${NumberInput} ...${attributes} value=${value} placeholder=${schema.default ?? ""} read=${numberOrText} onChange=${onChange} />`;
}

function FlagInput({ attributes, schema, value, onChange }) {
  const on = value ?? schema.default ?? false;
  const change = (event) => onChange(event.currentTarget.checked === (schema.default ?? false) ? undefined : event.currentTarget.checked);
  return html`<input ...${attributes} type="checkbox" checked=${on === true} onChange=${change} />`;
}

function ChoiceInput({ attributes, schema, value, onChange }) {
  const known = schema.enum.filter((one) => one !== null).map(String);
  const chosen = value === undefined || value === null ? "" : String(value);
  return html`<select ...${attributes} value=${chosen} onChange=${(event) => onChange(event.currentTarget.value || undefined)}>
    <option value="">${schema.default != null ? `${schema.default} (unless you say)` : "choose"}</option>
    ${known.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
    ${chosen && !known.includes(chosen) && html`<option value=${chosen}>${chosen}</option>`}</select>`;
}

/** A list of texts, one per line. */
function TextsInput({ attributes, value, onChange, suggestions }) {
  const given = Array.isArray(value) ? value.join("\n") : value === undefined ? "" : String(value);
  const [text, setText] = useState(given);
  const lines = (written) => written.split("\n").map((one) => one.trim()).filter(Boolean);
  const shown = lines(text).join("\n") === given ? text : given;
  const onInput = ({ currentTarget: { value: written } }) => {
    setText(written);
    onChange(lines(written).length ? lines(written) : undefined);
  };
  return html`<textarea ...${attributes} rows=${Math.min(6, Math.max(1, shown.split("\n").length))} placeholder=${suggestions?.[0] ?? "one per line"} spellcheck=${false} value=${shown} onInput=${onInput}></textarea>`;
}

/** Anything else as JSON. What is not JSON yet is kept as it is typed, and sent as text, so that nothing is lost. */
function JsonInput({ attributes, value, onChange }) {
  const given = value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value, null, 1);
  const [text, setText] = useState(given);
  const same = JSON.stringify(read(text)) === JSON.stringify(value);
  return html`<textarea ...${attributes} class="mono" rows="2" spellcheck=${false} placeholder="JSON" value=${same ? text : given} onInput=${({ currentTarget: { value: written } }) => {
    setText(written);
    onChange(read(written));
  }}></textarea>`;
}

function read(text) {
  if (!text.trim()) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** A schema without references; of "this or null" it is this, of several the first that is no list. */
function resolve(schema, root) {
  if (schema.$ref) return { ...resolve(root.$defs[schema.$ref.split("/").at(-1)], root), ...without(schema, "$ref") };
  const ways = (schema.anyOf ?? schema.oneOf ?? []).filter((one) => one.type !== "null");
  if (schema.allOf?.length === 1) return { ...resolve(schema.allOf[0], root), ...without(schema, "allOf") };
  if (!ways.length) return schema;
  const simple = ways.map((one) => resolve(one, root));
  const chosen = ways.length === 1 ? simple[0] : simple.find((one) => one.type === "string") ?? simple.find((one) => one.type === "array") ?? {};
  return { ...chosen, ...without(schema, "anyOf", "oneOf") };
}

function without(value, ...names) {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name)));
}

/** The object with this value; without the name where there is none. */
export function withValue(given, name, value) {
  const isNothing = value === undefined || (value !== null && typeof value === "object" && !Array.isArray(value) && !Object.keys(value).length);
  return isNothing ? without(given, name) : { ...given, [name]: value };
}

export const fieldId = (path) => `field-${path.join("-").replace(/[^\w-]/g, "_")}`;
export const startsWith = (path, beginning) => beginning.every((part, at) => String(path[at]) === String(part));
const same = (path, other) => path.length === other.length && startsWith(path, other);
const words = (name) => name.replaceAll("_", " ").replace(/^./, (letter) => letter.toUpperCase());
const sentence = (text) => (text ? text.replaceAll("`", "").replace(/^./, (letter) => letter.toUpperCase()).replace(/([^.!?])$/, "$1.") : "");
