// Copy to the clipboard and say so; and the menu that offers a thing in several forms.
import { html } from "../vendor/preact.js";
import { at, get, post } from "../api.js";
import { may } from "../session.js";
import { toast, toastError } from "./toast.js";

export async function copy(text, what = "It") {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} is copied`);
  } catch {
    toast("The browser does not allow to copy here: select the text by hand", { tone: "bad" });
  }
}

/** `forms`: {JSON: () => text, cURL: () => text or a promise, …}; those that are null are left out. */
export function CopyMenu({ forms, label = "Copy as" }) {
  const choose = async (event, name) => {
    event.currentTarget.closest("details").open = false;
    try {
      await copy(await forms[name](), name);
    } catch (error) {
      toastError(error);
    }
  };
  return html`<details class="menu" onFocusOut=${closeWhenLeft}>
    <summary>${label}</summary>
    <ul>${Object.keys(forms).filter((name) => forms[name]).map(
      (name) => html`<li key=${name}><button onClick=${(event) => choose(event, name)}>${name}</button></li>`,
    )}</ul>
  </details>`;
}

function closeWhenLeft(event) {
  if (!event.currentTarget.contains(event.relatedTarget)) event.currentTarget.open = false;
}

/** A GET or POST of ours as a command line. The token is named, never written. */
export function asCurl(path, body) {
  const parts = ["curl -sf", '-H "Authorization: Bearer $HARKEN_TOKEN"'];
  if (body !== undefined) parts.push("-X POST -H 'Content-Type: application/json'", `-d ${quote(JSON.stringify(body))}`);
  return `${parts.join(" ")} ${quote(location.origin + path)}`;
}

/** A webhook that is accepted, signed at this moment by the server; its secret stays there. Of a sample, or of an event. */
export function signedCurl(feed, event) {
  if (!may("webhooks.curl") || !feed?.startsWith("webhook/")) return null;
  return async () => (await post("/api/webhooks/curl", { id: feed, ...(event ? { event } : {}) })).command;
}

/** An event as a test: the case itself, without secrets and people, and the command that writes it to a file. */
export function testForms(event, trigger, of = "") {
  return {
    [`Test${of}`]: may("events.case") ? async () => (await get(at`/api/events/${event}/case?trigger=${trigger}`)).yaml : null,
    [`Command for a test${of}`]: () => command("test", "add", String(event), "--trigger", trigger),
  };
}

/** A command of ours: command("runs", "show", id). Words that a shell would take apart are quoted. */
export function command(...words) {
  return ["harken", ...words].map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : quote(word))).join(" ");
}

/** A text as one word of a shell. */
export function quote(text) {
  return `'${String(text).replaceAll("'", `'\\''`)}'`;
}
