// The address is the state: page, filter, tab and selection stand in it, so that every view can be linked to,
// reloaded, and found again with back and forward.
import { signal, computed } from "./vendor/preact.js";
import { pages } from "./pages/index.js";

const SOON_MS = 150;
const RESTORE_MS = 30_000; // a busy server may take so long for what makes the page high enough

const here = signal(read());
const kept = new Map(); // what is to be kept with the entry of the history that is shown
let keeping = 0;
let stopRestoring = () => {};

function read() {
  return { path: location.pathname, query: Object.fromEntries(new URLSearchParams(location.search)) };
}

/** What of the address matches a pattern such as `/runs/:id` or `/triggers/:name*` (takes slashes); null if nothing. */
export function match(pattern, path) {
  const names = [];
  const source = pattern.replace(/:(\w+)(\*?)/g, (_, name, rest) => {
    names.push(name);
    return rest ? "(.+)" : "([^/]+)";
  });
  const found = new RegExp(`^${source}/?$`).exec(path);
  return found && Object.fromEntries(names.map((name, at) => [name, safeDecode(found[at + 1])]));
}

function safeDecode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The page for a path with its parameters, or undefined. */
export function pageFor(path) {
  for (const page of pages) {
    const params = match(page.path, path);
    if (params) return { page, params };
  }
}

/** {page, params, path, query} of the address now. `page` is undefined where there is none. */
export const route = computed(() => ({ ...here.value, ...pageFor(here.value.path) }));
export const query = computed(() => here.value.query);
/** Rises when an entry of the history is shown again: then there may be something else to `recall`. */
export const returns = signal(0);

/** An address with a query; parameters that are empty are left out. */
export function href(path, params = {}) {
  const kept = Object.entries(params).filter(([, value]) => value !== "" && value != null);
  return kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
}

export function navigate(address, { replace = false } = {}) {
  keepScroll();
  stopRestoring();
  history[replace ? "replaceState" : "pushState"](replace ? history.state : {}, "", address);
  here.value = read();
  if (!replace) scrollTo(0, 0);
}

/** Change parts of the query. A filter that is typed replaces the entry; what a person chooses should be a new one. */
export function setQuery(changes, { push = false } = {}) {
  const address = href(location.pathname, { ...query.value, ...changes });
  if (address === location.pathname + location.search) return;
  if (push) keepScroll();
  const before = push ? {} : history.state;
  history[push ? "pushState" : "replaceState"](before, "", address);
  here.value = read();
}

/**
 * Keep a value with this entry of the history, such as how far a list was scrolled: soon, as it changes often and browsers
 * take few such changes, and at the latest when another entry follows.
 */
export function remember(key, value) {
  kept.set(key, value);
  clearTimeout(keeping);
  keeping = setTimeout(keep, SOON_MS);
}

export function recall(key) {
  return kept.has(key) ? kept.get(key) : history.state?.[key];
}

function keep() {
  clearTimeout(keeping);
  if (kept.size) history.replaceState({ ...history.state, ...Object.fromEntries(kept) }, "");
  kept.clear();
}

function keepScroll() {
  remember("scroll", scrollY);
  keep();
}

/** Scroll to where this entry was left, as soon as the page is high enough, unless somebody does something before. */
function restoreScroll() {
  stopRestoring();
  const wanted = recall("scroll");
  if (!wanted) return;
  const watch = new ResizeObserver(() => {
    if (document.documentElement.scrollHeight - innerHeight < wanted) return;
    stopRestoring();
    scrollTo(0, wanted);
  });
  const acts = new AbortController();
  const end = setTimeout(() => stopRestoring(), RESTORE_MS);
  stopRestoring = () => {
    watch.disconnect();
    acts.abort();
    clearTimeout(end);
  };
  for (const act of ["wheel", "touchstart", "pointerdown", "keydown"]) addEventListener(act, stopRestoring, { passive: true, signal: acts.signal });
  watch.observe(document.body);
}

export function startRouter() {
  history.scrollRestoration = "manual";
  addEventListener("scroll", () => remember("scroll", scrollY), { passive: true });
  addEventListener("popstate", () => {
    // it was of the entry before this one, which can no longer be changed
    clearTimeout(keeping);
    kept.clear();
    here.value = read();
    returns.value += 1;
    restoreScroll();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !plain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
    if (link.origin !== location.origin || !pageFor(link.pathname)) return;
    event.preventDefault();
    if (link.pathname + link.search !== location.pathname + location.search) navigate(link.pathname + link.search);
  });
  restoreScroll();
}
