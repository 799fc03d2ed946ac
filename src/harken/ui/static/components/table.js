// A table for up to some hundred rows; a longer list is a VirtualList.
import { html } from "../vendor/preact.js";

/**
 * `columns`: [{name, words, cell: (row) => content, number: true for right-aligned}, …]; `keyOf`: (row) => a key.
 * On a phone each row becomes a block, with the column's words before each value.
 */
export function Table({ columns, rows, keyOf, label }) {
  return html`<div class="table-frame" tabindex="0" role="region" aria-label=${label}>
    <table class="table">
      <thead><tr>${columns.map((column) => html`<th key=${column.name} scope="col" class=${column.number ? "number" : ""}>${column.words}</th>`)}</tr></thead>
      <tbody>${rows.map(
        (row) => html`<tr key=${keyOf(row)}>${columns.map(
          (column) => html`<td key=${column.name} class=${column.number ? "number" : ""} data-label=${column.words}><div>${column.cell(row)}</div></td>`,
        )}</tr>`,
      )}</tbody>
    </table>
  </div>`;
}
