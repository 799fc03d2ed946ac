// A time: relative or as a clock, with the full stamp as its title.
import { html } from "../vendor/preact.js";
import { ago, clock, stamp } from "../time.js";

export function Ago({ at, never }) {
  if (!at) return html`<span class="dim">${never ?? "never"}</span>`;
  return html`<time datetime=${at} title=${stamp(at)}>${ago(at)}</time>`;
}

export function Clock({ at }) {
  return at ? html`<time datetime=${at} title=${stamp(at)}>${clock(at)}</time>` : null;
}
