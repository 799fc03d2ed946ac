// An input or output of a run. A large one is not loaded with the run, but when somebody wants to see it.
import { html, useState } from "../vendor/preact.js";
import { at, get } from "../api.js";
import { JsonView } from "../components/json_view.js";
import { Failed } from "../components/states.js";
import { bytes } from "../format.js";

/** `place`: as in the run's `cut`, such as `output` or `steps.2.output`. */
export function RunValue({ run, place, label = place }) {
  const cut = run.cut?.find((one) => one.place === place);
  const [state, setState] = useState({});
  const value = valueAt(state.run ?? run, place);
  if (cut && !state.run) {
    const load = async () => {
      setState({ busy: true });
      try {
        setState({ run: await get(at`/api/runs/${run.id}`) });
      } catch (error) {
        setState({ error });
      }
    };
    return html`<p>It has ${bytes(cut.bytes)}. <button disabled=${state.busy} aria-busy=${Boolean(state.busy)} onClick=${load}>Load it</button></p>
      ${state.error && html`<${Failed} error=${state.error} />`}`;
  }
  if (value === null || value === undefined) return html`<p class="dim">Nothing.</p>`;
  return html`<${JsonView} value=${value} label=${label} />`;
}

/** `steps.2.output` of a run. */
export function valueAt(run, place) {
  return place.split(".").reduce((value, part) => value?.[part], run);
}
