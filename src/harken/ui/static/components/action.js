// A button that changes something: not shown to those who may not, busy while it works, and it says how it went.
import { html, useState } from "../vendor/preact.js";
import { confirm } from "./dialog.js";
import { toast, toastError } from "./toast.js";
import { may } from "../session.js";

/**
 * `operation`: what has to be allowed, such as "triggers.resume". `act` does it and returns what to say.
 * `ask`: a question to answer first, for what cannot be taken back. `then` is called after it worked. `disabled`: while
 * something else has to be decided first.
 */
export function Action({ operation, act, ask, then, children, tone = "", disabled = false }) {
  const [busy, setBusy] = useState(false);
  if (operation && !may(operation)) return null;
  const press = async () => {
    if (ask && !(await confirm(ask))) return;
    setBusy(true);
    try {
      const said = await act();
      if (said) toast(said);
      await then?.();
    } catch (error) {
      toastError(error);
    } finally {
      setBusy(false);
    }
  };
  return html`<button class=${tone} disabled=${busy || disabled} aria-busy=${busy} onClick=${press}>${children}</button>`;
}
