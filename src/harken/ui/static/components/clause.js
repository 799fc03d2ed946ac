// A value that somebody clicks on, as a clause of CEL which is true for it and has the right type.

const LONGEST = 120;
const NAME = /^[A-Za-z_]\w*$/;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/;
const RESERVED = new Set(
  "as break const continue else false for function if import in let loop namespace null package return true var void while".split(" "),
);

/**
 * `path`: such as ["labels", 0]; `value`: what is there, `undefined` for a field that is missing. `root`: what the payload is
 * called, `data` in filters and `event` in conditions. Of a list it is asked whether some item is so, wherever it stands.
 */
export function clauseFor(path, value, root = "data") {
  const at = path.findIndex((part) => typeof part === "number");
  if (at < 0) return plainClause(celPath(path, root), value, path, root);
  const list = celPath(path.slice(0, at), root);
  const inside = path.slice(at + 1);
  const isSimple = !inside.length && (value === null || ["string", "number", "boolean"].includes(typeof value)) && !isLong(value) && !isTime(value) && isExact(value);
  if (isSimple) return `${literal(value)} in ${list}`;
  const item = `i${path.slice(0, at).length}`;
  return `${list}.exists(${item}, ${clauseFor(inside, value, item)})`;
}

/** Both have to be true; either may be empty. */
export function both(first, second) {
  if (!first.trim() || first.trim() === second.trim()) return second;
  const kept = first.includes("||") || first.includes("?") ? `(${first})` : first;
  return `${kept} && ${second}`;
}

function plainClause(place, value, path, root) {
  if (value === undefined) return missingClause(path, root);
  if (Array.isArray(value) || (value !== null && typeof value === "object")) return `size(${place}) == ${Array.isArray(value) ? value.length : Object.keys(value).length}`;
  if (isTime(value)) return `timestamp(${place}) >= timestamp(${literal(value)})`;
  if (isLong(value)) return `${place}.startsWith(${literal(whole(value.slice(0, LONGEST)))})`;
  // a number that the browser cannot hold exactly is told by its type
  if (!isExact(value)) return `type(${place}) == type(1)`;
  return `${place} == ${literal(value)}`;
}

function missingClause(path, root) {
  const name = path.at(-1);
  const parent = celPath(path.slice(0, -1), root);
  return isPlain(name) ? `!has(${parent}.${name})` : `!(${literal(String(name))} in ${parent})`;
}

const isTime = (value) => typeof value === "string" && TIME.test(value) && !Number.isNaN(Date.parse(value));
const isLong = (value) => typeof value === "string" && value.length > LONGEST;
const isExact = (value) => typeof value !== "number" || !Number.isInteger(value) || Number.isSafeInteger(value);
const isPlain = (name) => NAME.test(name) && !RESERVED.has(name);
/** Without half a character at its end. */
const whole = (text) => text.replace(/[\ud800-\udbff]$/, "");

function celPath(path, root) {
  return path.reduce((text, part) => text + (typeof part === "number" ? `[${part}]` : isPlain(part) ? `.${part}` : `[${literal(part)}]`), root);
}

/** What JSON writes is CEL too. */
function literal(value) {
  return JSON.stringify(value);
}
