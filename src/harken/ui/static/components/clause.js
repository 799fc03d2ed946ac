// A value that somebody clicks on, as a clause of CEL which is true for it and has the right type.

const LONGEST = 120;
const NAME = /^[A-Za-z_]\w*$/;
const TIME = /^\d{4}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/;
const TEXT_OR_COMMENT = /("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\/\/.*/g;
const FIRST_DAY = "0001-01-02"; // of the times that CEL knows, in every zone
const LAST_DAY = "9999-12-30";
const LARGEST = 2n ** 63n - 1n; // of the whole numbers of CEL; Harken reads larger ones as decimals
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
  if (!inside.length && value === undefined) return `size(${list}) <= ${path[at]}`;
  const isSimple = !inside.length && !isBranch(value) && !isLong(value) && !isTime(value);
  if (isSimple) return `${literal(value)} in ${list}`;
  const item = `i${path.slice(0, at).length}`;
  return `${list}.exists(${item}, ${clauseFor(inside, value, item)})`;
}

/** Both have to be true; either may be empty. */
export function both(first, second) {
  const before = first.replace(TEXT_OR_COMMENT, "$1").trim(); // what stands after a comment would be part of it
  if (!before || before === second.trim()) return second;
  const kept = before.includes("||") || before.includes("?") ? `(${before})` : before;
  return `${kept} && ${second}`;
}

function plainClause(place, value, path, root) {
  if (value === undefined) return missingClause(path, root);
  if (isBranch(value)) return `size(${place}) == ${Array.isArray(value) ? value.length : Object.keys(value).length}`;
  if (isTime(value)) return `timestamp(${place}) >= timestamp(${literal(value)})`;
  if (isLong(value)) return `${place}.startsWith(${literal(whole(value.slice(0, LONGEST)))})`;
  return `${place} == ${literal(value)}`;
}

function missingClause(path, root) {
  const name = path.at(-1);
  const parent = celPath(path.slice(0, -1), root);
  return isPlain(name) ? `!has(${parent}.${name})` : `!(${literal(String(name))} in ${parent})`;
}

const isBranch = (value) => value !== null && typeof value === "object";
const isTime = (value) => typeof value === "string" && TIME.test(value) && isDay(value.slice(0, 10));
/** A browser takes the 30th of February for the 2nd of March, and CEL refuses it. */
const isDay = (day) => FIRST_DAY <= day && day <= LAST_DAY && new Date(day).toJSON()?.startsWith(day);
const isLong = (value) => typeof value === "string" && value.length > LONGEST;
const isPlain = (name) => NAME.test(name) && !RESERVED.has(name);
/** Without half a character at its end. */
const whole = (text) => text.replace(/[\ud800-\udbff]$/, "");

function celPath(path, root) {
  return path.reduce((text, part) => text + (typeof part === "number" ? `[${part}]` : isPlain(part) ? `.${part}` : `[${literal(part)}]`), root);
}

/** What JSON writes is CEL too, but for large numbers and for the character that CEL has no text for. */
function literal(value) {
  if (typeof value === "bigint" && -LARGEST <= value && value <= LARGEST) return String(value);
  if (typeof value === "bigint" || (Number.isInteger(value) && !Number.isSafeInteger(value))) return decimal(Number(value));
  return JSON.stringify(typeof value === "string" ? value.replaceAll("\0", "\ufffd") : value);
}

function decimal(value) {
  const text = String(value);
  return /^-?\d+$/.test(text) ? `${text}.0` : text;
}
