// "live", or since when what is shown is stale.
import { html } from "../vendor/preact.js";
import { streamState } from "../stream.js";
import { clock, now } from "../time.js";

const GRACE_MS = 1500; // a new page connects within this time; until then it says nothing

export function LiveState() {
  const { name, since } = streamState.value;
  if (name === "live") return html`<span class="live"><span class="dot good" aria-hidden="true"></span>live</span>`;
  if (name === "connecting" && now.value - since < GRACE_MS) return html`<span class="live dim">connecting</span>`;
  return html`<span class="live" title="New events are not shown as they come">
    <span class="dot warn" aria-hidden="true"></span>stale since ${clock(since)}
  </span>`;
}
