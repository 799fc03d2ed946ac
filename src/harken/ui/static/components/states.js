// What stands in place of data: it is being loaded or made, there is none yet, a filter hides all of it, or it cannot be had.
import { html, useRef, useState } from "../vendor/preact.js";
import { useInterval } from "../resource.js";

export function Loading({ what = "" }) {
  return html`<p class="state" role="status"><span class="spinner" aria-hidden="true"></span>Loading ${what}…</p>`;
}

/** Something that was asked for takes long: after two seconds it says for how long. */
export function Working({ what }) {
  const began = useRef(performance.now());
  const [seconds, setSeconds] = useState(0);
  useInterval(() => setSeconds(Math.round((performance.now() - began.current) / 1000)), 1000);
  return html`<p class="state"><span class="spinner" aria-hidden="true"></span><span role="status">Working: ${what}…</span>${seconds > 1 && html` ${seconds} s`}</p>`;
}

/** There is nothing: `children` say how to get something. */
export function Empty({ title, children }) {
  return html`<div class="state empty"><p><strong>${title}</strong></p>${children}</div>`;
}

/** There is something, but the filter fits none of it. */
export function FilteredOut({ what = "rows", total, clear }) {
  return html`<div class="state filtered">
    <p><strong>No ${what} fit the filter.</strong>${total != null && html` There are ${total} without it.`}</p>
    ${clear && html`<button onClick=${clear}>Clear the filter</button>`}
  </div>`;
}

/** An error in words, with what to do about it. */
export function Failed({ error, retry }) {
  return html`<div class="state failed" role="alert">
    <p><strong>${error.message}</strong></p>
    ${error.fix && html`<p>${error.fix}</p>`}
    ${error.requestId && html`<p class="dim">In the log: request ${error.requestId}</p>`}
    ${retry && html`<button onClick=${retry}>Try again</button>`}
  </div>`;
}

export function NoPage() {
  return html`<div class="state empty"><h1>There is no page at this address.</h1>
    <p>Go to the <a href="/">overview</a>, or press <kbd>Ctrl K</kbd> and say what you look for.</p></div>`;
}

/** Loading, failed or `show(data)`: what a resource (see resource.js) is now. Data that is there stays while it loads again. */
export function Shown({ of, what, show }) {
  if (of.data !== undefined) return show(of.data);
  if (of.error) return html`<${Failed} error=${of.error} retry=${of.reload} />`;
  return html`<${Loading} what=${what} />`;
}
