// Short messages about what was just done.
import { html, signal } from "../vendor/preact.js";

const SECONDS = 6;
const shown = signal([]);
let last = 0;

/** `tone` is "good" or "bad"; `undo` is a function, offered as a button. */
export function toast(text, { tone = "good", undo } = {}) {
  const id = (last += 1);
  shown.value = [...shown.value.slice(-3), { id, text, tone, undo }];
  setTimeout(() => dismiss(id), SECONDS * 1000);
}

/** Show an error with its fix. */
export function toastError(error) {
  toast(error.fix ? `${error.message}. ${error.fix}` : error.message, { tone: "bad" });
}

function dismiss(id) {
  shown.value = shown.value.filter((one) => one.id !== id);
}

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${shown.value.map(
      ({ id, text, tone, undo }) => html`<p key=${id} class="toast ${tone}">
        <span>${text}</span>
        ${undo && html`<button onClick=${() => (undo(), dismiss(id))}>Undo</button>`}
        <button class="quiet" aria-label="Dismiss" onClick=${() => dismiss(id)}>×</button>
      </p>`,
    )}
  </div>`;
}
