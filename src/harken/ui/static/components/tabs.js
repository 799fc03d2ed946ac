// Tabs whose choice stands in the address.
import { html, useEffect, useRef } from "../vendor/preact.js";
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
  const frame = useRef(null);
  // on a phone they are wider than the page
  useEffect(() => reveal(frame.current, "[aria-selected=true]"), [chosen]);
  return html`<div ref=${frame} class="tabs" role="tablist" aria-label=${label} onKeyDown=${onKeyDown}>
    ${tabs.map(
      ([value, words]) => html`<button key=${value} role="tab" aria-selected=${value === chosen} aria-controls=${panel}
        tabindex=${value === chosen ? 0 : -1} onClick=${() => choose(value)}>${words}</button>`,
    )}
  </div>`;
}

/** Scroll a row that is wider than its frame until the chosen one is seen; the page itself stays where it is. */
export function reveal(frame, selector) {
  const chosen = frame?.querySelector(selector);
  if (!chosen) return;
  const [inner, outer] = [chosen.getBoundingClientRect(), frame.getBoundingClientRect()];
  frame.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
}

export function useTab(name, tabs) {
  const given = query.value[name];
  return tabs.some(([value]) => value === given) ? given : tabs[0][0];
}
