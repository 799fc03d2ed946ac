// Conditions as rows (field, operator, value) and as CEL, and back. What a row cannot express stays CEL, letter by letter.
import { parseJson } from "../api.js";

/** Name → [words, how its CEL looks, what kind of value it takes: "any", "text", "number", "list", "time" or "none"]. */
export const OPERATORS = {
  is: ["is", "any"],
  isNot: ["is not", "any"],
  more: ["is more than", "number"],
  atLeast: ["is at least", "number"],
  less: ["is less than", "number"],
  atMost: ["is at most", "number"],
  oneOf: ["is one of", "list"],
  contains: ["contains the text", "text"],
  startsWith: ["starts with", "text"],
  endsWith: ["ends with", "text"],
  matches: ["matches the pattern", "text"],
  hasItem: ["has the item", "any"],
  since: ["is not before", "time"],
  before: ["is before", "time"],
  sizeIs: ["has so many items", "number"],
  sizeMore: ["has more items than", "number"],
  exists: ["is there", "none"],
  missing: ["is not there", "none"],
};

const COMPARED = { is: "==", isNot: "!=", more: ">", atLeast: ">=", less: "<", atMost: "<=" };
const CALLED = ["contains", "startsWith", "endsWith", "matches"];
const TEXT = '"(?:[^"\\\\]|\\\\.)*"';
const NUMBER = "-?\\d+(?:\\.\\d+)?(?:[eE][+-]?\\d+)?";
const SCALAR = `(?:${TEXT}|${NUMBER}|true|false|null)`;
const LIST = `\\[\\s*(?:${SCALAR}(?:\\s*,\\s*${SCALAR})*)?\\s*\\]`;
const PATH = `(?:event|meta)(?:\\.[A-Za-z_]\\w*|\\[${TEXT}\\]|\\[\\d+\\])*`;
const LAST = new RegExp(`^(.*)\\[(${TEXT})\\]$`);

/** The shapes of clauses that are rows: [pattern, made of its groups]. What is made has to give the same text again. */
const SHAPES = [
  [`(${PATH}) (==|!=|<=|>=|<|>) (${SCALAR})`, (field, sign, value) => ({ field, operator: keyOf(COMPARED, sign), value: parseJson(value) })],
  [`(${PATH}) in (${LIST})`, (field, values) => ({ field, operator: "oneOf", value: parseJson(values) })],
  [`(${SCALAR}) in (${PATH})`, (value, field) => ({ field, operator: "hasItem", value: parseJson(value) })],
  [`(${PATH})\\.(${CALLED.join("|")})\\((${TEXT})\\)`, (field, operator, value) => ({ field, operator, value: parseJson(value) })],
  [`has\\((${PATH})\\)`, (field) => ({ field, operator: "exists", value: null })],
  [`!has\\((${PATH})\\)`, (field) => ({ field, operator: "missing", value: null })],
  [`(!?)\\(?(${TEXT}) in (${PATH})\\)?`, (not, name, field) => ({ field: `${field}[${name}]`, operator: not ? "missing" : "exists", value: null })],
  [`timestamp\\((${PATH})\\) (>=|<) timestamp\\((${TEXT})\\)`, (field, sign, value) => ({ field, operator: sign === "<" ? "before" : "since", value: parseJson(value) })],
  [`size\\((${PATH})\\) (==|>) (\\d+)`, (field, sign, value) => ({ field, operator: sign === ">" ? "sizeMore" : "sizeIs", value: Number(value) })],
].map(([pattern, make]) => [new RegExp(`^${pattern}$`), make]);

const keyOf = (table, wanted) => Object.keys(table).find((key) => table[key] === wanted);

/** The rows of a condition: {field, operator, value} or {cel}. No condition is no rows. */
export function toRows(condition) {
  return splitClauses(condition).map(toRow);
}

function toRow(clause) {
  for (const [pattern, make] of SHAPES) {
    const found = pattern.exec(clause);
    const row = found && parsed(() => make(...found.slice(1)));
    if (row && clauseOf(row) === clause) return row;
  }
  return { cel: clause };
}

function parsed(read) {
  try {
    return read();
  } catch {
    // such as a number or an escape that JSON writes in another way: it stays CEL
    return null;
  }
}

/** The condition of rows; those that are not complete yet are left out. */
export function toCondition(rows) {
  const clauses = rows.map(clauseOf).filter(Boolean);
  return clauses.length === 1 ? clauses[0] : clauses.map((clause) => (bindsLoosely(clause) ? `(${clause})` : clause)).join(" && ");
}

/** The CEL of one row; empty while it is not complete. */
export function clauseOf({ cel, field: written, operator, value }) {
  if (cel !== undefined) return cel.trim();
  const field = written?.trim();
  if (!field || !operator) return "";
  if (operator === "exists" || operator === "missing") return presence(field, operator === "missing");
  if (value === undefined || value === "" && OPERATORS[operator][1] !== "any") return "";
  const literal = JSON.stringify(value);
  if (COMPARED[operator]) return `${field} ${COMPARED[operator]} ${literal}`;
  if (CALLED.includes(operator)) return `${field}.${operator}(${JSON.stringify(String(value))})`;
  if (operator === "oneOf") return Array.isArray(value) && value.length ? `${field} in [${value.map((one) => JSON.stringify(one)).join(", ")}]` : "";
  if (operator === "hasItem") return `${literal} in ${field}`;
  if (operator === "sizeIs" || operator === "sizeMore") return `size(${field}) ${operator === "sizeIs" ? "==" : ">"} ${literal}`;
  return `timestamp(${field}) ${operator === "before" ? "<" : ">="} timestamp(${literal})`;
}

function presence(field, missing) {
  const odd = LAST.exec(field);
  if (odd) return missing ? `!(${odd[2]} in ${odd[1]})` : `${odd[2]} in ${odd[1]}`;
  return `${missing ? "!" : ""}has(${field})`;
}

/** The clauses that && joins at the top. A condition with || or ? at its top is one clause; so is one that is not whole. */
export function splitClauses(condition) {
  const text = condition.trim();
  if (!text) return [];
  const marks = marksOf(text);
  if (!marks || marks.some(({ sign }) => sign !== "&&")) return [text];
  const clauses = [];
  let from = 0;
  for (const { at } of [...marks, { at: text.length }]) {
    clauses.push(text.slice(from, at).trim());
    from = at + 2;
  }
  return clauses.every(Boolean) ? clauses.flatMap(unwrapped) : [text];
}

/** A clause without the parentheses around all of it, which rows put back where they are needed; `(a && b)` is two. */
function unwrapped(clause) {
  if (!clause.startsWith("(") || endOf(clause) !== clause.length - 1) return [clause];
  const inside = clause.slice(1, -1).trim();
  return inside ? splitClauses(inside) : [clause];
}

const bindsLoosely = (clause) => !marksOf(clause) || marksOf(clause).length > 0;

/** Where the parenthesis that the text begins with ends. */
function endOf(text) {
  let end = -1;
  scan(text, (at, depth) => {
    if (end < 0 && depth === 0 && at > 0) end = at;
  });
  return end;
}

/** The operators &&, || and ? outside of strings and brackets; null if the text is not whole, or has a comment. */
function marksOf(text) {
  const marks = [];
  const whole = scan(text, (at, depth) => {
    if (depth) return;
    const two = text.slice(at, at + 2);
    if (two === "&&" || two === "||") marks.push({ at, sign: two });
    else if (text[at] === "?") marks.push({ at, sign: "?" });
  });
  return whole ? marks : null;
}

/** Call `each(at, depth)` for every character outside of strings; false if a string, bracket or comment is open. */
function scan(text, each) {
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    const sign = text[at];
    if (sign === '"' || sign === "'") {
      // a raw or triple string has other rules, and is left to CEL
      if (/[rRbB]$/.test(text.slice(0, at)) && !/\w\w$/.test(text.slice(0, at)) || text.startsWith(sign.repeat(3), at)) return false;
      const end = stringEnd(text, at);
      if (end < 0) return false;
      at = end;
      continue;
    }
    if (text.startsWith("//", at)) return false;
    if ("([{".includes(sign)) depth += 1;
    if (")]}".includes(sign)) depth -= 1;
    if (depth < 0) return false;
    each(at, depth);
  }
  return depth === 0;
}

function stringEnd(text, begin) {
  for (let at = begin + 1; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === text[begin]) return at;
  }
  return -1;
}
