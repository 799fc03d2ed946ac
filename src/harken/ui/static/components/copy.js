// Copy to the clipboard and say so; and the menu that offers a thing in several forms.
import { html } from "../vendor/preact.js";
import { toast } from "./toast.js";

export async function copy(text, what = "It") {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} is copied`);
  } catch {
    toast("The browser does not allow to copy here: select the text by hand", { tone: "bad" });
  }
}

/** `forms`: {JSON: () => text, cURL: () => text or a promise, …}. */
export function CopyMenu({ forms, label = "Copy as" }) {
  const choose = async (event, name) => {
    event.currentTarget.closest("details").open = false;
    await copy(await forms[name](), name);
  };
  return html`<details class="menu" onFocusOut=${closeWhenLeft}>
    <summary>${label}</summary>
    <ul>${Object.keys(forms).map(
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

/** A text as one word of a shell. */
export function quote(text) {
  return `'${String(text).replaceAll("'", `'\\''`)}'`;
}
