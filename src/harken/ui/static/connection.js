// Whether the server answers. One place knows it, so that one banner says it and everything loads again afterwards.
import { signal } from "./vendor/preact.js";

/** Since when (ms) the server does not answer; 0 while it does. */
export const awaySince = signal(0);
/** Rises by one each time the server is back: whoever shows data reads it and loads again. */
export const recoveries = signal(0);

const PING_MS = 2000;
const PATIENCE_MS = 2500;
const BEAT_MS = 250; // with PING_MS and PATIENCE_MS: who looks at a page knows within five seconds
const RELOADED = "harken.reloaded";
const RELOAD_MS = 60_000;
let lastAnswer = Date.now();
let pinging = false;
let incomplete = false;

export function noteLost() {
  if (!awaySince.value) awaySince.value = Date.now();
}

export function noteAnswer() {
  lastAnswer = Date.now();
  if (incomplete && mayReload()) location.reload();
  if (awaySince.value) {
    awaySince.value = 0;
    recoveries.value += 1;
  }
}

/** A module could not be loaded. A browser does not ask for it again, so the page is loaded anew when the server answers. */
export function noteIncomplete() {
  incomplete = true;
  noteLost();
}

/** Not again within a minute: a module that never loads must not become a page that flickers for ever. */
function mayReload() {
  const may = Date.now() - Number(sessionStorage.getItem(RELOADED) ?? 0) > RELOAD_MS;
  // asking in vain must not put it off
  if (may) sessionStorage.setItem(RELOADED, String(Date.now()));
  return may;
}

/** Ask for a sign of life whenever nothing else has had an answer for a while. */
export function startPings() {
  setInterval(() => {
    if (!document.hidden && !pinging && Date.now() - lastAnswer >= PING_MS) ping();
  }, BEAT_MS);
}

async function ping() {
  pinging = true;
  try {
    const answer = await fetch("/health", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!answer.ok) throw new Error(`health answered ${answer.status}`);
    noteAnswer();
  } catch {
    noteLost();
  } finally {
    pinging = false;
  }
}
