// One stream of events and runs for all tabs of a browser: the tab that holds a lock reads it and tells the others, and when
// it is closed the next one goes on at the same position. A browser has six connections to a server; this takes one.
import { signal } from "./vendor/preact.js";
import { noteAnswer, noteLost } from "./connection.js";
import { signInNeeded } from "./session.js";

const LOCK = "harken.stream";
const SILENCE_MS = 40_000; // the server sends a line every 15 seconds
const RETRY_MS = [300, 1000, 2000, 4000];
const TOLD_MS = 5000;

/** "connecting", "live" or "stale"; `since` is when (ms) it became so. */
export const streamState = signal({ name: "connecting", since: Date.now() });
/** Whether this tab is the one that reads the stream. */
export const isReader = signal(false);

const listeners = { event: new Set(), run: new Set(), begin: new Set() };
const channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(LOCK) : null;
let position = "";
let lastNews = Date.now();

/**
 * Call `listener` with each event (without its data) or run that comes from now on. Returns how to stop that.
 * "begin": the stream begins only now, so what happened since a list was loaded is not told; the list is loaded again.
 */
export function onStream(kind, listener) {
  listeners[kind].add(listener);
  return () => listeners[kind].delete(listener);
}

export function startStream() {
  channel?.addEventListener("message", ({ data }) => (data.asks ? isReader.value && tellState() : take(data)));
  // a new tab need not wait until the one that reads speaks by itself
  tell({ asks: true });
  // a tab that follows hears from the one that reads every five seconds; where that is hidden, and its browser lets it do so
  // only once a minute, it still answers
  setInterval(() => {
    const silent = Date.now() - lastNews;
    if (isReader.value || silent < 2 * TOLD_MS) return;
    if (silent > 3 * TOLD_MS) become("stale");
    tell({ asks: true });
  }, 1000);
  if (navigator.locks) navigator.locks.request(LOCK, read);
  else read();
}

async function read() {
  isReader.value = true;
  const telling = setInterval(tellState, TOLD_MS);
  try {
    for (let failures = 0; ; ) {
      const began = Date.now();
      await connect();
      failures = Date.now() - began > 10_000 ? 0 : failures + 1;
      publish({ state: "stale", position });
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]));
    }
  } finally {
    clearInterval(telling);
  }
}

/** Read until the connection ends, for whatever reason. */
async function connect() {
  const control = new AbortController();
  let silence = setTimeout(() => control.abort(), SILENCE_MS);
  try {
    const headers = position ? { "last-event-id": position } : {};
    const answer = await fetch("/api/live", { headers, cache: "no-store", signal: control.signal });
    if (answer.status === 401) signInNeeded();
    if (!answer.ok) return;
    noteAnswer();
    publish({ state: "live", position, begins: !position });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      clearTimeout(silence);
      silence = setTimeout(() => control.abort(), SILENCE_MS);
      noteAnswer();
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      const news = frames.map(parse).filter(Boolean);
      if (news.length) publish({ state: "live", position: news.at(-1).id, news: news.filter((one) => one.row) });
    }
    noteLost();
  } catch {
    noteLost();
  } finally {
    clearTimeout(silence);
  }
}

/** A frame of server-sent events; null for a comment. */
export function parse(frame) {
  const fields = {};
  for (const line of frame.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
  }
  if (!fields.id) return null;
  return { id: fields.id, kind: fields.event, row: fields.event === "position" ? null : JSON.parse(fields.data) };
}

function publish(message) {
  tell(message);
  take(message);
}

function tellState() {
  tell({ state: streamState.value.name, position });
}

function tell(message) {
  channel?.postMessage(message);
}

function take({ state, position: reached, begins = false, news = [] }) {
  lastNews = Date.now();
  if (reached) position = reached;
  become(state);
  if (state === "live" && !isReader.value) noteAnswer();
  if (begins) for (const listener of listeners.begin) listener();
  for (const { kind, row } of news) for (const listener of listeners[kind] ?? []) listener(row);
}

function become(name) {
  if (streamState.value.name !== name) streamState.value = { name, since: Date.now() };
}
