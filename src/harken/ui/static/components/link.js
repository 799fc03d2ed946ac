// A link to another page of ours. Where that page does not exist, it is plain text and leads nowhere.
import { html } from "../vendor/preact.js";
import { href, pageFor } from "../router.js";

/** The page of a trigger, whatever its name has in it; `/triggers/new` is where one is made. */
export const triggerPath = (name) => `/triggers/${name === "new" ? "%6Eew" : encodeURIComponent(name)}`;
export const workflowPath = (name) => `/workflows/${encodeURIComponent(name)}`;

/** `to`: a path, `query`: its parameters. */
export function Link({ to, query, children, ...rest }) {
  if (!pageFor(to)) return html`<span ...${rest}>${children}</span>`;
  return html`<a href=${href(to, query)} ...${rest}>${children}</a>`;
}
