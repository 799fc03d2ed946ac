// A time: relative or as a clock, with the full stamp as its title.
import { html } from "../vendor/preact.js";
import { ago, clock, now, stamp } from "../time.js";

export function Ago({ at, never }) {
  if (!at) return html`<span class="dim">${never ?? "never"}</span>`;
  return html`<time datetime=${at} title=${stamp(at)}>${ago(at)}</time>`;
}

/** When something is due: "in 4 s", and "now" from then on. */
export function Due({ at }) {
  return html`<time datetime=${at} title=${stamp(at)}>${Date.parse(at) - now.value >= 1000 ? ago(at) : "now"}</time>`;
}

export function Clock({ at }) {
  return at ? html`<time datetime=${at} title=${stamp(at)}>${clock(at)}</time>` : null;
}
