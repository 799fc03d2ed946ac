// A line of numbers as small as a word. It says in words what it shows, as it is no more than a picture to some.
import { html } from "../vendor/preact.js";

export function Sparkline({ values, label, width = 120, height = 24 }) {
  const most = Math.max(1, ...values);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(height - 1 - (value / most) * (height - 2)).toFixed(1)}`);
  return html`<svg class="sparkline" role="img" aria-label=${label} viewBox="0 0 ${width} ${height}" width=${width} height=${height}>
    <polyline points=${points.join(" ")} />
  </svg>`;
}
