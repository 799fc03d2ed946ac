// A unified diff, as `diff -u` prints it: what goes is marked with −, what comes with +, and not by colour alone.
import { html } from "../vendor/preact.js";

const KINDS = { "+": "added", "-": "removed", "@": "place", "\\": "place" };

export function TextDiff({ text, label }) {
  const rows = text.split("\n").slice(0, -1).filter((row) => !/^(---|\+\+\+) /.test(row));
  if (!rows.length) return html`<p class="dim">Nothing is different.</p>`;
  return html`<pre class="text-diff" role="group" aria-label=${label} tabindex="0">${rows.map(
    (row, index) => html`<span key=${index} class=${KINDS[row[0]] ?? ""}>${row}${"\n"}</span>`,
  )}</pre>`;
}
