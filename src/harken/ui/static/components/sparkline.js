// Numbers over time as small as a word. It says in words what it shows, as it is no more than a picture to some.
import { html } from "../vendor/preact.js";

/** A bar for each value; `part` is how much of each has the stronger colour. */
export function Sparkline({ values, part = [], label, width = 120, height = 22 }) {
  const most = Math.max(1, ...values);
  const step = width / values.length;
  const bar = (kind) => (value, at) => {
    if (!value) return null;
    const size = Math.max(2, (value / most) * height);
    return html`<rect key=${`${kind}${at}`} class=${kind} x=${(at * step).toFixed(1)} y=${(height - size).toFixed(1)} width=${(step * 0.75).toFixed(1)} height=${size.toFixed(1)} />`;
  };
  return html`<svg class="sparkline" role="img" aria-label=${label} viewBox="0 0 ${width} ${height}" width=${width} height=${height}>
    <line x1="0" x2=${width} y1=${height - 0.5} y2=${height - 0.5} />${values.map(bar("all"))}${part.map(bar("part"))}
  </svg>`;
}
