// What to do, in words; the commands in it can be copied.
import { html } from "../vendor/preact.js";
import { copy } from "./copy.js";

// a command ends where the sentence does
const COMMAND = /(harken [a-z][^.;,]*?(?:\.[a-z0-9/_-]+[^.;,]*?)*)(?=[.;,]?(?:\s+[A-Z]|;|,|$)|\.$)/g;

export function Advice({ text }) {
  const parts = String(text ?? "").split(COMMAND);
  return html`<span class="advice">${parts.map((part, at) =>
    at % 2
      ? html`<button class="command" title="Copy this command" onClick=${() => copy(part.trim(), "The command")}>${part.trim()}</button>`
      : part,
  )}</span>`;
}
