// A status as a word with a colour; the word alone is enough to understand it.
import { html } from "../vendor/preact.js";
import { words } from "../format.js";

const TONES = {
  good: ["healthy", "done", "fired", "ok", "up", "live", "delivered", "valid", "passed"],
  bad: ["failed", "dead", "stale", "refused", "error", "down", "failing", "revoked"],
  warn: ["degraded", "paused", "held", "waiting", "late", "expired", "blocked", "retrying"],
  busy: ["running", "ready", "new", "gathered"],
};
const TONE = Object.fromEntries(Object.entries(TONES).flatMap(([tone, names]) => names.map((name) => [name, tone])));

export function toneOf(status) {
  return TONE[status] ?? "none";
}

export function Pill({ status, children }) {
  return html`<span class="pill ${toneOf(status)}">${children ?? words(status)}</span>`;
}
