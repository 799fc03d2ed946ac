// Whether the server answers. One place knows it, so that one banner says it and everything loads again afterwards.
import { signal } from "./vendor/preact.js";

/** Since when (ms) the server does not answer; 0 while it does. */
export const awaySince = signal(0);
/** Rises by one each time the server is back: whoever shows data reads it and loads again. */
export const recoveries = signal(0);

const PING_MS = 2000;
const PATIENCE_MS = 2500;
const BEAT_MS = 250; // with PING_MS and PATIENCE_MS: who looks at a page knows within five seconds
const MODULE_MS = 30_000; // an editor on a slow line takes long; a request that hangs would take for ever
const missing = new Set();
let lastAnswer = Date.now();
let pinging = false;

export function noteLost() {
  if (!awaySince.value) awaySince.value = Date.now();
}

export function noteAnswer() {
  lastAnswer = Date.now();
  if (missing.size) window.loadAnew();
  if (awaySince.value) {
    awaySince.value = 0;
    recoveries.value += 1;
  }
}

/**
 * Wait for a module: `loading` is its import(). A browser does not ask again for one that failed, and waits for ever for
 * one that hangs, so the page is loaded anew when the server answers and the module is still missing.
 */
export async function wholeModule(loading) {
  const part = {};
  const late = setTimeout(() => missing.add(part), MODULE_MS);
  try {
    const module = await loading;
    missing.delete(part);
    return module;
  } catch (error) {
    missing.add(part);
    noteLost();
    throw error;
  } finally {
    clearTimeout(late);
  }
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
