// Keys that work everywhere. A page adds its own with `useKeys`; a list takes j, k and Enter with `useListKeys`.
import { useLayoutEffect, useRef, signal } from "./vendor/preact.js";

const TOGETHER_MS = 1200;
const bound = []; // newest last, which is asked first
let lists = [];
let prefix = "";
let prefixTimer = 0;

/** "", "palette" or "help": which of the two is open. */
export const overlay = signal("");

/** Keys are written like "g t", "?", "Ctrl-k". `words` is what the help says; without words it is not listed. */
export function bindKey(keys, words, call) {
  const entry = { keys, words, call };
  bound.push(entry);
  return () => bound.splice(bound.indexOf(entry), 1);
}

export function boundKeys() {
  return bound.filter((entry) => entry.words);
}

/** `keys`: [["r", "Reload", call], …] while the component is shown. */
export function useKeys(keys) {
  const latest = useRef(keys);
  latest.current = keys;
  // what is seen has its keys: an effect after the paint would lose one that is pressed at once
  useLayoutEffect(() => {
    const undo = keys.map(([key, words], at) => bindKey(key, words, (event) => latest.current[at][2](event)));
    return () => undo.forEach((one) => one());
  }, []);
}

/** While it is shown, j and k call `move(1)` and `move(-1)`, Enter calls `open()`, Esc calls `clear()`. */
export function useListKeys(list) {
  const latest = useRef(list);
  latest.current = list;
  useLayoutEffect(() => {
    lists.push(latest);
    return () => (lists = lists.filter((one) => one !== latest));
  }, []);
}

function isTyping(target) {
  return target.closest?.("input, textarea, select, [contenteditable=true], .editor");
}

function onList(name, ...given) {
  const list = lists.at(-1)?.current;
  return list?.[name] ? (list[name](...given), true) : false;
}

function keyName(event) {
  const control = event.ctrlKey || event.metaKey ? "Ctrl-" : "";
  return control + event.key;
}

function onKeyDown(event) {
  const name = keyName(event);
  if (event.altKey || event.isComposing) return;
  // the editor closes its own list first
  if (name === "Escape" && event.defaultPrevented) return;
  if (name === "Escape" && !document.querySelector("dialog[open]")) {
    if (isTyping(event.target)) event.target.blur();
    else onList("clear");
    return;
  }
  const typing = isTyping(event.target);
  if (typing && !name.startsWith("Ctrl-")) return;
  if (document.querySelector("dialog[open]") && name !== "Ctrl-k") return;
  const wanted = prefix ? `${prefix} ${name}` : name;
  const found = bound.findLast((entry) => entry.keys === wanted);
  const begins = !prefix && bound.some((entry) => entry.keys.startsWith(`${name} `));
  clearTimeout(prefixTimer);
  prefix = "";
  if (found) {
    event.preventDefault();
    found.call(event);
  } else if (begins) {
    prefix = name;
    prefixTimer = setTimeout(() => (prefix = ""), TOGETHER_MS);
  } else if (moveInList(event, name)) {
    event.preventDefault();
  }
}

function moveInList(event, name) {
  if (name === "j" || name === "k") return onList("move", name === "j" ? 1 : -1);
  // a link or button that has the focus does its own
  if (name === "Enter" && !event.target.closest?.("a, button, summary")) return onList("open");
  return false;
}

export function startKeys() {
  document.addEventListener("keydown", onKeyDown);
  bindKey("?", "Show these keys", () => (overlay.value = "help"));
  bindKey("Ctrl-k", "Go to a page, or do something", () => (overlay.value = overlay.value === "palette" ? "" : "palette"));
  bindKey("/", "Search or filter", () => document.querySelector("[data-search]")?.focus());
}
