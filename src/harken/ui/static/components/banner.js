// Says that the server is away, and that nothing which was typed is lost. It goes away by itself.
import { html } from "../vendor/preact.js";
import { awaySince } from "../connection.js";
import { now, span } from "../time.js";

export function Banner() {
  const since = awaySince.value;
  return html`<div role="status" aria-live="polite">
    ${since !== 0 &&
    html`<p class="banner">
      <strong>Harken does not answer.</strong> It is asked again every few seconds, and this page goes on by itself. What
      you have typed stays. <span class="dim">${span(Math.max(1, Math.round((now.value - since) / 1000)))}</span>
    </p>`}
  </div>`;
}
