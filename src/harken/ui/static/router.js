// The address is the state: page, filter, tab and selection stand in it, so that every view can be linked to,
// reloaded, and found again with back and forward.
import { signal, computed } from "./vendor/preact.js";
import { pages } from "./pages/index.js";

const here = signal(read());

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

/** An address with a query; parameters that are empty are left out. */
export function href(path, params = {}) {
  const kept = Object.entries(params).filter(([, value]) => value !== "" && value != null);
  return kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
}

export function navigate(address, { replace = false } = {}) {
  keepScroll();
  history[replace ? "replaceState" : "pushState"](replace ? history.state : {}, "", address);
  here.value = read();
  if (!replace) scrollTo(0, 0);
}

/** Change parts of the query. A filter that is typed replaces the entry; what a person chooses should be a new one. */
export function setQuery(changes, { push = false } = {}) {
  const address = href(location.pathname, { ...query.value, ...changes });
  if (address === location.pathname + location.search) return;
  const before = push ? {} : history.state;
  if (push) keepScroll();
  history[push ? "pushState" : "replaceState"](before, "", address);
  here.value = read();
}

/** Keep a value with this entry of the history, such as how far a list was scrolled. */
export function remember(key, value) {
  history.replaceState({ ...history.state, [key]: value }, "");
}

export function recall(key) {
  return history.state?.[key];
}

function keepScroll() {
  remember("scroll", scrollY);
}

/** Scroll to where this entry was left, as soon as the page is high enough; gives up after two seconds. */
function restoreScroll() {
  const wanted = recall("scroll");
  if (!wanted) return;
  const end = Date.now() + 2000;
  const attempt = () => {
    if (document.documentElement.scrollHeight - innerHeight >= wanted) scrollTo(0, wanted);
    else if (Date.now() < end) requestAnimationFrame(attempt);
  };
  requestAnimationFrame(attempt);
}

export function startRouter() {
  history.scrollRestoration = "manual";
  let waiting = 0;
  addEventListener("scroll", () => {
    clearTimeout(waiting);
    waiting = setTimeout(keepScroll, 150);
  }, { passive: true });
  addEventListener("popstate", () => {
    clearTimeout(waiting);
    here.value = read();
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
