// Run it again: from the beginning with other input, or from a step with other parameters of that step.
import { html, useState } from "../vendor/preact.js";
import { at, get, parseJson, post } from "../api.js";
import { Dialog } from "../components/dialog.js";
import { Loading } from "../components/states.js";
import { toast } from "../components/toast.js";
import { useDraft, useResource } from "../resource.js";
import { navigate, setQuery } from "../router.js";

/** `from`: the path of a step, or "start". */
export function RerunDialog({ run, from }) {
  const close = () => setQuery({ rerun: "" });
  const given = useResource((signal) => givenTo(run, from, signal), [run.id, from]);
  return html`<${Dialog} title=${from === "start" ? "Rerun from the beginning" : `Rerun from ${from}`} onClose=${close} wide>
    ${given.error ? html`<p class="wrong" role="alert">${given.error.message}</p>` : given.data === undefined ? html`<${Loading} what="the input" />`
      : html`<${Form} run=${run} from=${from} given=${given.data.value} close=${close} />`}
  <//>`;
}

/** {value}: the input of the step or of the run; that of a run that took its event is the event's data. */
async function givenTo(run, from, signal) {
  const whole = run.cut?.length ? await get(at`/api/runs/${run.id}`, {}, { signal }) : run;
  if (from !== "start") return { value: whole.steps.find((step) => step.path === from)?.input ?? {} };
  if (whole.input !== null) return { value: whole.input };
  const event = run.event_ids.length ? await get(`/api/events/${run.event_ids.at(-1)}`, {}, { signal }) : null;
  return { value: event?.data ?? {} };
}

function Form({ run, from, given, close }) {
  const written = JSON.stringify(given, null, 2);
  const [text, setText, clear] = useDraft(`rerun.${run.id}.${from}`, written);
  const [latest, setLatest] = useState(false);
  const [state, setState] = useState({});
  const starts = ["start", ...run.steps.map((step) => step.path)];
  const submit = async (event) => {
    event.preventDefault();
    const { changes, wrong } = changesOf(text, given);
    if (wrong) return setState({ error: { message: wrong } });
    setState({ busy: true });
    try {
      const body = { latest, ...(from === "start" ? { input: changes } : { from_step: from, step_input: changes }) };
      const started = await post(at`/api/runs/${run.id}/rerun`, body);
      clear();
      toast("A new run is started");
      navigate(`/runs/${started.id}`);
    } catch (error) {
      setState({ error });
    }
  };
  return html`<form class="rerun" onSubmit=${submit}>
    <label>Begin with <select value=${from} onChange=${(event) => setQuery({ rerun: event.currentTarget.value })}>
      ${starts.map((path) => html`<option key=${path} value=${path}>${path === "start" ? "the first step" : path}</option>`)}</select></label>
    <p class="dim">${from === "start" ? "Fields that you change replace those of the input." : "What came before is taken from this run and not done again. Parameters that you change are used by this step."}</p>
    <label>${from === "start" ? "Input" : `Parameters of ${from}`} <textarea class="mono" rows="12" spellcheck=${false} value=${text} onInput=${(event) => setText(event.currentTarget.value)}></textarea></label>
    <label class="check"><input type="checkbox" checked=${latest} onChange=${(event) => setLatest(event.currentTarget.checked)} /> Use the workflow as it is now, not as it was then</label>
    ${state.error && html`<p class="wrong" role="alert">${state.error.message}${state.error.fix ? `. ${state.error.fix}` : ""}</p>`}
    <p class="buttons"><button type="button" onClick=${close}>Cancel</button><button class="primary" disabled=${state.busy} aria-busy=${Boolean(state.busy)}>Start the new run</button></p>
  </form>`;
}

/** {changes}: the fields that differ from what was given; or {wrong}: why the text cannot be taken. */
export function changesOf(text, given) {
  let edited;
  try {
    edited = parseJson(text);
  } catch (error) {
    return { wrong: `This is not JSON: ${error.message}` };
  }
  if (JSON.stringify(edited) === JSON.stringify(given)) return { changes: {} };
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  if (!isObject(edited)) return { wrong: "The input has to be an object: {…}" };
  const before = isObject(given) ? given : {};
  const left = Object.keys(before).find((name) => !Object.hasOwn(edited, name));
  if (left !== undefined) return { wrong: `${left} cannot be taken away; set it to null` };
  return { changes: Object.fromEntries(Object.entries(edited).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name]))) };
}
