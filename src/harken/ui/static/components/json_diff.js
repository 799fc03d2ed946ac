// What differs between two values, as a list of places: what was there and what is there now.
import { html } from "../vendor/preact.js";
import { pathText } from "./json_view.js";
import { count, line } from "../format.js";

const MOST = 200;
const SHORT = 300;

/** [{path, before, after}] in the order of the values; what only one side has is `undefined` on the other. Stops after `most`. */
export function differences(before, after, most = MOST) {
  const found = [];
  compare(before, after, [], found, most);
  return found;
}

function compare(before, after, path, found, most) {
  if (found.length >= most || Object.is(before, after)) return;
  const kind = kindOf(before);
  if (kind !== kindOf(after) || kind === "leaf") {
    if (before !== after) found.push({ path, before, after });
    return;
  }
  const keys = kind === "list" ? Array.from({ length: Math.max(before.length, after.length) }, (_, at) => at) : [...new Set([...Object.keys(before), ...Object.keys(after)])];
  for (const key of keys) compare(own(before, key), own(after, key), [...path, key], found, most);
}

function own(value, key) {
  return Object.hasOwn(value, key) ? value[key] : undefined;
}

function kindOf(value) {
  if (Array.isArray(value)) return "list";
  return value !== null && typeof value === "object" ? "object" : "leaf";
}

/** `names`: what the two sides are called. `root`: what the value is called, such as `data`. `onLeaf(path, value)`: a click on what is there now. */
export function JsonDiff({ before, after, names = ["before", "now"], root = "data", onLeaf }) {
  const found = differences(before, after);
  if (!found.length) return html`<p class="dim">Nothing differs.</p>`;
  return html`<div class="diff-frame"><table class="diff">
    <thead><tr><th scope="col">${count(found.length, "place")}${found.length >= MOST ? " or more" : ""}</th><th scope="col">${names[0]}</th><th scope="col">${names[1]}</th></tr></thead>
    <tbody>${found.map((one) => html`<tr key=${pathText(one.path, root)}>
      <th scope="row">${line(pathText(one.path, root))}</th>
      <td class="was"><${Side} value=${one.before} /></td>
      <td class="is">${onLeaf ? html`<button class="json-leaf" onClick=${() => onLeaf(one.path, one.after)}><${Side} value=${one.after} /></button>` : html`<${Side} value=${one.after} />`}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

function Side({ value }) {
  if (value === undefined) return html`<span class="dim">missing</span>`;
  return html`<code>${line(typeof value === "string" ? JSON.stringify(value.slice(0, SHORT)) : JSON.stringify(value)?.slice(0, SHORT), SHORT)}</code>`;
}
