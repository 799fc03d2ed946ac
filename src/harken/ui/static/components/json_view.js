// JSON as a tree that opens by parts, so that 10 MB do not stop the browser; everything is text, never markup.
import { html, useState } from "../vendor/preact.js";
import { CopyMenu } from "./copy.js";
import { bytes, count, line } from "../format.js";

const FIRST = 100;
const LONGEST = 2000;

/**
 * `value`: what to show. `onLeaf(path, value)` is called for a click on a leaf, with a path like ["labels", 0].
 * `forms`: more entries of the copy menu. `open`: how many levels are open at first.
 */
export function JsonView({ value, onLeaf, forms = {}, open = 2, label = "JSON" }) {
  const copies = { JSON: () => JSON.stringify(value, null, 2), ...forms };
  return html`<div class="json" role="group" aria-label=${label}>
    <div class="json-tools"><${CopyMenu} forms=${copies} /></div>
    <${Node} value=${value} path=${[]} open=${open} onLeaf=${onLeaf} />
  </div>`;
}

/** A path as CEL and people write it: data.labels[0], data["a b"]. */
export function pathText(path, root = "data") {
  return path.reduce(
    (text, part) => text + (typeof part === "number" ? `[${part}]` : /^[A-Za-z_]\w*$/.test(part) ? `.${part}` : `[${JSON.stringify(part)}]`),
    root,
  );
}

function Node({ name, value, path, open, onLeaf }) {
  const isBranch = value !== null && typeof value === "object";
  return isBranch
    ? html`<${Branch} ...${{ name, value, path, open, onLeaf }} />`
    : html`<${Leaf} ...${{ name, value, path, onLeaf }} />`;
}

function Branch({ name, value, path, open, onLeaf }) {
  const [isOpen, setOpen] = useState(open > 0);
  const [shown, setShown] = useState(FIRST);
  const isList = Array.isArray(value);
  const keys = isList ? null : Object.keys(value);
  const size = isList ? value.length : keys.length;
  const parts = Array.from({ length: Math.min(shown, size) }, (_, at) => (isList ? at : keys[at]));
  if (size === 0) {
    const nothing = html`<span class="dim">${isList ? "[ ]" : "{ }"}</span>`;
    return html`<div class="json-row"><${Name} name=${name} />
      ${onLeaf ? html`<button class="json-leaf" title=${pathText(path)} onClick=${() => onLeaf(path, value)}>${nothing}</button>` : nothing}</div>`;
  }
  return html`<div class="json-branch">
    <button class="json-fold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      <${Name} name=${name} /><span class="dim">${count(size, isList ? "item" : "field")}</span>
    </button>
    ${isOpen &&
    html`<div class="json-inside">
      ${parts.map((part) => html`<${Node} key=${part} name=${part} value=${value[part]} path=${[...path, part]} open=${open - 1} onLeaf=${onLeaf} />`)}
      ${size > shown && html`<button class="quiet" onClick=${() => setShown(shown + 1000)}>Show more of ${count(size, "item")}</button>`}
    </div>`}
  </div>`;
}

function Leaf({ name, value, path, onLeaf }) {
  const [whole, setWhole] = useState(false);
  const isText = typeof value === "string";
  const long = isText && value.length > LONGEST && !whole;
  const text = isText ? JSON.stringify(line(long ? value.slice(0, LONGEST) : value, Infinity)) : String(value);
  const shown = html`<span class="json-value ${value === null ? "null" : typeof value === "bigint" ? "number" : typeof value}">${text}</span>`;
  return html`<div class="json-row">
    <${Name} name=${name} />
    ${onLeaf ? html`<button class="json-leaf" title=${pathText(path)} onClick=${() => onLeaf(path, value)}>${shown}</button>` : shown}
    ${long && html`<button class="quiet" onClick=${() => setWhole(true)}>Show all ${bytes(value.length)}</button>`}
  </div>`;
}

function Name({ name }) {
  return name === undefined ? null : html`<span class="json-name">${line(String(name))}</span>`;
}
