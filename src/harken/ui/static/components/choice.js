// A select whose choice stands in the address.
import { html } from "../vendor/preact.js";
import { query, setQuery } from "../router.js";

/** `options`: [[value, words], …]; the first stands for no parameter. A value of the address that is not among them is offered too. */
export function Choice({ name, options, label }) {
  const chosen = query.value[name] ?? "";
  const known = options.some(([value]) => value === chosen);
  const onChange = (event) => setQuery({ [name]: event.currentTarget.value }, { push: true });
  return html`<label class="choice"><span class="sr">${label}</span>
    <select value=${chosen} onChange=${onChange}>
      ${options.map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}
      ${!known && html`<option value=${chosen}>${chosen}</option>`}
    </select>
  </label>`;
}
