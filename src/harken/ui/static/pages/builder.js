// The builder: a trigger from nothing, from an event, from YAML or from a row, with what it would do beside it.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { clauseFor } from "../components/clause.js";
import { toRows } from "../components/condition_rows.js";
import { pathText } from "../components/json_view.js";
import { Empty, Failed, Loading } from "../components/states.js";
import { toast, toastError } from "../components/toast.js";
import { count, number } from "../format.js";
import { useKeys } from "../keys.js";
import { query } from "../router.js";
import { may } from "../session.js";
import { Conditions } from "./builder_conditions.js";
import { EMPTY, useCheck, useTriggerDraft } from "./builder_draft.js";
import { Options } from "./builder_options.js";
import { Backtest, DryRun, Sample } from "./builder_result.js";
import { Save } from "./builder_save.js";
import { SourceChoice, SourceForm } from "./builder_source.js";
import { fromYaml, isTrigger, likeEvent, ofExisting } from "./builder_start.js";
import { Steps } from "./builder_steps.js";

const META = ["meta.type", "meta.key", "meta.subject", "meta.state"];
const MOST_FIELDS = 300;

export default function Builder() {
  const { edit = "", like = "", condition = "" } = query.value;
  const title = edit ? `Edit ${edit}` : "New trigger";
  if (!may("triggers.draft") || !may(edit ? "triggers.replace" : "triggers.create")) {
    return html`<div class="page-head"><h1>${title}</h1></div><div class="card"><${Empty} title="Your token may look at triggers, and not make or change them.">
      <p>An operator may. Ask for such a token, or send them this link.</p><p><a href="/triggers">All triggers</a></p><//></div>`;
  }
  return html`<${Begun} key=${`${edit} ${like} ${condition}`} edit=${edit} like=${like} condition=${condition} title=${title} />`;
}

/** The form, as soon as it is known what it begins with; what this tab has kept of it wins. */
function Begun({ edit, like, condition, title }) {
  const made = useTriggerDraft(edit ? `trigger.edit.${edit}` : like ? `trigger.like.${like}.${condition}` : "trigger.new", EMPTY);
  const needs = (edit && !made.draft.replaces) || (like && !made.draft.like);
  const [error, setError] = useState(null);
  useEffect(() => {
    if (!needs) return undefined;
    const control = new AbortController();
    const begin = edit ? ofExisting(edit, control.signal) : likeEvent(like, condition, control.signal);
    begin.then((draft) => control.signal.aborted || made.restart(draft), (failure) => control.signal.aborted || setError(failure));
    return () => control.abort();
  }, [needs]);
  if (needs) return html`<div class="page-head"><h1>${title}</h1></div>${error ? html`<${Failed} error=${error} />` : html`<${Loading} what="what it begins with" />`}`;
  return html`<${Form} title=${title} made=${made} />`;
}

function Form({ title, made }) {
  const { draft, change, undo, redo, canUndo, canRedo, restart } = made;
  const check = useCheck(draft);
  const [refused, setRefused] = useState([]);
  useEffect(() => setRefused([]), [check.answer]);
  const problems = useMemo(() => [...(check.answer?.problems ?? []), ...refused], [check.answer, refused]);
  const fields = useMemo(() => [...pathsOf(check.answer?.dry_run?.sample), ...META], [check.answer?.dry_run?.sample]);
  const place = useRef(null);
  usePaste(draft, change);
  const unlessInEditor = (call) => (event) => event.target.closest?.(".editor") || call();
  useKeys([["Ctrl-z", "Undo in the form", unlessInEditor(undo)], ["Ctrl-Z", "Redo in the form", unlessInEditor(redo)], ["Ctrl-y", "", unlessInEditor(redo)]]);
  const choose = (source) => {
    change(source);
    scrollTo(0, 0);
  };
  const require = (path, value) => change({ rows: [...draft.rows, ...toRows(clauseFor(path, value, "event"))] }, `require ${path}`);
  return html`<div class="page-head"><h1>${title}</h1><span class="dim wide-only">Paste YAML anywhere to fill it in</span>
      <div class="tools"><button onClick=${undo} disabled=${!canUndo} title="Ctrl-Z">Undo</button><button onClick=${redo} disabled=${!canRedo} title="Ctrl-Shift-Z">Redo</button>
        ${!draft.replaces && html`<button class="quiet" onClick=${() => restart(EMPTY)}>Start over</button>`}</div></div>
    <div class="builder"><div class="stack builder-form" ref=${place}>
      ${draft.provider ? html`<${SourceForm} key=${`${draft.provider} ${draft.service}`} draft=${draft} change=${change} problems=${problems} leave=${() => change({ provider: "", service: "", config: null })} />` : html`<${SourceChoice} choose=${choose} />`}
      ${draft.like && draft.provider === "webhook" && html`<p class="card notice-line">A webhook address belongs to one trigger: this one gets an address of its own, and is tried on the events of the other.</p>`}
      ${draft.provider && html`<${Conditions} draft=${draft} change=${change} problems=${problems} answer=${check.answer} fields=${fields} />
      <${Steps} draft=${draft} change=${change} problems=${problems} />
      <${Options} draft=${draft} change=${change} problems=${problems} timeline=${check.answer?.timeline} />
      <${Save} draft=${draft} change=${change} check=${check} finish=${() => made.clear()} refused=${(found) => setRefused(found ?? [])} />`}
    </div>
    <div class="stack builder-result"><${DryRun} check=${check} draft=${draft} /><${Backtest} check=${check} draft=${draft} /><${Sample} check=${check} require=${require} /></div></div>
    ${draft.provider && html`<button class="builder-foot" onClick=${() => document.getElementById("dry-run").scrollIntoView()}>${footWords(check)}</button>`}`;
}

/** On a phone the answer is below the form: one line of it is always in view. */
function footWords({ answer, reading }) {
  if (reading) return "Reading the service…";
  const run = answer?.dry_run;
  if (!answer) return "…";
  return run ? (run.events ? `${number(run.would_fire)} would fire, ${number(run.would_not)} not` : "No event to try it on") : `${count(answer.problems.length, "thing")} to correct`;
}

/** YAML that is pasted anywhere fills the form; elsewhere in a field it is what people paste into fields. */
function usePaste(draft, change) {
  const latest = useRef(draft);
  latest.current = draft;
  useEffect(() => {
    const onPaste = async (event) => {
      const text = event.clipboardData?.getData("text/plain") ?? "";
      const target = event.composedPath()[0];
      const isField = Boolean(event.target.closest?.("input, textarea, select, .editor") || target.closest?.("[contenteditable=true]"));
      if (!isTrigger(text, isField)) return;
      event.preventDefault();
      event.stopPropagation();
      try {
        change(await fromYaml(text, latest.current), "paste");
        toast("The form has what you pasted");
      } catch (error) {
        toastError(error);
      }
    };
    document.addEventListener("paste", onPaste, { capture: true });
    return () => document.removeEventListener("paste", onPaste, { capture: true });
  }, []);
}

/** The paths of all leaves of a payload, as conditions write them. */
function pathsOf(value, path = []) {
  if (value === null || value === undefined || typeof value !== "object") return path.length ? [pathText(path, "event")] : [];
  if (Array.isArray(value)) return path.length ? [pathText(path, "event")] : [];
  return Object.entries(value).flatMap(([name, inner]) => pathsOf(inner, [...path, name])).slice(0, MOST_FIELDS);
}
