// A component whose module is loaded when it is first shown: charts and the editor bring large libraries along.
import { html, useEffect, useState } from "../vendor/preact.js";
import { noteIncomplete } from "../connection.js";

/** `load`: () => import(…) of a module with a default component. `placeholder` stands there meanwhile. */
export function lazy(load, placeholder = null) {
  let found = null;
  return function Lazy(props) {
    const [Component, setComponent] = useState(() => found);
    useEffect(() => {
      if (!found) load().then((module) => setComponent(() => (found = module.default)), noteIncomplete);
    }, []);
    return Component ? html`<${Component} ...${props} />` : placeholder;
  };
}

export const Chart = lazy(() => import("./chart.js"), html`<div class="chart-space"></div>`);
export const Editor = lazy(() => import("./editor.js"), html`<div class="editor-space"></div>`);
