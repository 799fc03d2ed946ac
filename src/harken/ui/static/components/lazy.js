// A component whose module is loaded when it is first shown: charts and the editor bring large libraries along.
import { html, useEffect, useState } from "../vendor/preact.js";
import { wholeModule } from "../connection.js";

/**
 * `load`: () => import(…) of a module with a default component. `placeholder` stands there meanwhile.
 * The placeholder stays while it does not come, and the page is loaded anew for it (`wholeModule`).
 * A page that is sure to need it calls its `begin`, so that the module comes while the page waits for its data.
 */
export function lazy(load, placeholder = null) {
  let found = null;
  const begin = () => wholeModule(load()).then((module) => (found = module.default));
  function Lazy(props) {
    const [Component, setComponent] = useState(() => found);
    useEffect(() => {
      // also if it came after this was drawn and before this effect: it has to be drawn again
      if (!Component) begin().then(() => setComponent(() => found), () => {});
    }, []);
    return Component ? html`<${Component} ...${props} />` : placeholder;
  }
  return Object.assign(Lazy, { begin: () => begin().catch(() => {}) });
}

export const Chart = lazy(() => import("./chart.js"), html`<div class="chart-space"></div>`);
export const Editor = lazy(() => import("./editor.js"), html`<div class="editor-space"></div>`);
