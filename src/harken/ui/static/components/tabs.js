// Tabs whose choice stands in the address.
import { html } from "../vendor/preact.js";
import { query, setQuery } from "../router.js";

/** `name`: the parameter in the address. `tabs`: [[value, words], …]; the first is chosen where the address says nothing. */
export function Tabs({ name, tabs, label, panel }) {
  const chosen = useTab(name, tabs);
  const choose = (value) => setQuery({ [name]: value === tabs[0][0] ? "" : value }, { push: true });
  const onKeyDown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (tabs.findIndex(([value]) => value === chosen) + step + tabs.length) % tabs.length;
    choose(tabs[next][0]);
    event.currentTarget.children[next].focus();
    event.preventDefault();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${onKeyDown}>
    ${tabs.map(
      ([value, words]) => html`<button key=${value} role="tab" aria-selected=${value === chosen} aria-controls=${panel}
        tabindex=${value === chosen ? 0 : -1} onClick=${() => choose(value)}>${words}</button>`,
    )}
  </div>`;
}

export function useTab(name, tabs) {
  const given = query.value[name];
  return tabs.some(([value]) => value === given) ? given : tabs[0][0];
}
