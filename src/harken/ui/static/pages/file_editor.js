// A workflow file, changed in the browser: checked as it is typed, its diff shown before it is written, and then what
// Harken made of it. What was typed stays in this tab until it is written or thrown away.
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { at, get, put } from "../api.js";
import { recoveries } from "../connection.js";
import { copy } from "../components/copy.js";
import { Findings, Outcome, WriteDialog } from "../components/file_write.js";
import { Editor } from "../components/lazy.js";
import { Pill } from "../components/pill.js";
import { Failed, Shown } from "../components/states.js";
import { line } from "../format.js";
import { useDraft, useResource } from "../resource.js";
import { may } from "../session.js";
import { completeBySchema } from "./yaml_completion.js";

const UNCHECKED = { answer: null, error: null, findings: [] };
const PAUSE_MS = 400; // after the last letter, before the text is checked

/** Whether the file can be opened for a change: those that may not write see the definition instead. */
export const mayEdit = (source) => may("workflows.write") && Boolean(source?.startsWith("workflows/"));

/**
 * `name`: a workflow, its trigger, or a file below workflows/. `yaml` is shown where the file itself cannot be. `then` is
 * called after it was written, `close` ends editing.
 */
export function FileEditor({ name, yaml, then, close }) {
  const found = useResource((signal) => get(at`/api/workflows/${name}/source`, {}, { signal }), [name]);
  if (found.error?.code === "refused" && found.data === undefined && yaml) {
    return html`<${ReadOnly} source=${{ file: name, text: yaml, reason: found.error.message }} close=${close} />`;
  }
  return html`<${Shown} of=${found} what="the file" show=${(source) => (source.writable
    ? html`<${Editing} key=${source.file} source=${source} reload=${found.reload} then=${then} close=${close} />`
    : html`<${ReadOnly} source=${source} close=${close} />`)} />`;
}

/** The page of what was never loaded as it is written: its file, to be corrected. */
export function RefusedFile({ name, error, reload }) {
  return html`<div class="page-head"><h1>${line(name)}</h1><${Pill} status="refused" /></div>
    <div class="stack"><${Failed} error=${error} /><section class="card" aria-label="File"><${FileEditor} name=${name} then=${reload} /></section></div>`;
}

function ReadOnly({ source, close }) {
  return html`<div class="stack">
    <p class="notice-line"><strong>It cannot be changed from here:</strong> ${line(source.reason, 300)}. Copy it, and change <code>${source.file}</code> on its machine; Harken loads it by itself.</p>
    <${Editor} value=${source.text} readOnly=${true} label="Text of ${source.file}" />
    <p class="buttons">${close && html`<button onClick=${close}>Close</button>`}<button class="primary" onClick=${() => copy(source.text, "YAML")}>Copy the YAML</button></p></div>`;
}

function Editing({ source, reload, then, close }) {
  // the draft keeps the version that it began with, so that a change of somebody else is noticed
  const [draft, setDraft, clearDraft] = useDraft(`file.${source.file}`, null);
  const [written, setWritten] = useState(null);
  const [asking, setAsking] = useState(false);
  const [place, setPlace] = useState(null);
  const text = draft?.text ?? source.text;
  const match = draft?.revision ?? source.revision;
  const changed = draft !== null && text !== source.text;
  const check = useCheck(source, text, match, changed);
  useEffect(() => void loadCompletion(), [recoveries.value]);
  const { findings } = check;
  const own = useMemo(() => findings.filter((finding) => finding.file === source.file), [findings]);
  const errors = findings.filter((finding) => finding.severity === "error").length;
  const type = (typed) => {
    setWritten(null);
    setDraft({ text: typed, revision: match });
  };
  const write = async () => {
    const answer = await put(at`/api/workflows/${source.file}/source`, { text }, match);
    setWritten(answer);
    setAsking(false);
    await Promise.all([reload(), then?.()]);
    clearDraft();
  };
  const startAgain = () => (setAsking(false), clearDraft(), reload());
  return html`<div class="stack">
    ${check.error?.code === "outdated" && html`<${Conflict} source=${source} keep=${(revision) => (setDraft({ text, revision }), reload())} drop=${startAgain} />`}
    <${Editor} value=${text} onChange=${type} complete=${complete} findings=${own} place=${place} label="Text of ${source.file}" />
    <${State} check=${check} changed=${changed} findings=${findings} file=${source.file} go=${setPlace} />
    ${written && html`<${Outcome} written=${written} />`}
    <p class="buttons">
      ${changed && html`<button class="quiet" onClick=${startAgain}>Discard the changes</button>`}
      ${close && html`<button onClick=${close}>${changed ? "Close, keep it as a draft" : "Close"}</button>`}
      <button class="primary" disabled=${!changed || !check.answer || errors > 0} onClick=${() => setAsking(true)}>Show the diff…</button>
    </p>
    ${asking && check.answer && html`<${WriteDialog} file=${source.file} diff=${check.answer.diff} write=${write} close=${() => setAsking(false)} />`}</div>`;
}

/** A dry run of this text: {answer, error, findings}. It is asked again when the server is back. Findings stay until the
 * next ones come; the answer is always about this text, null until it is there. */
function useCheck(source, text, match, changed) {
  const [state, setState] = useState(UNCHECKED);
  useEffect(() => {
    if (!changed) return setState(UNCHECKED);
    const control = new AbortController();
    setState(({ findings }) => ({ ...UNCHECKED, findings }));
    const timer = setTimeout(async () => {
      try {
        const answer = await put(at`/api/workflows/${source.file}/source`, { text, dry_run: true }, match, { signal: control.signal });
        setState({ answer, error: null, findings: answer.findings });
      } catch (error) {
        if (!control.signal.aborted) setState({ ...UNCHECKED, error });
      }
    }, PAUSE_MS);
    return () => (clearTimeout(timer), control.abort());
  }, [source.file, source.revision, text, match, changed, recoveries.value]);
  return state;
}

let completion = null; // from the schema of all files: it is large, and the same until the server is another one

function loadCompletion() {
  completion ??= get("/api/config/schema").then(completeBySchema, () => (completion = null));
  return completion;
}

/** What may stand at the cursor; whoever types before the schema is there gets the list when it comes. */
const complete = async (context) => (await loadCompletion())?.(context) ?? null;

function State({ check, changed, findings, file, go }) {
  if (!changed) return html`<p class="dim" role="status">Nothing is changed yet. <kbd>Ctrl Space</kbd> offers what may stand at the cursor.</p>`;
  if (check.error && check.error.code !== "outdated") return html`<${Failed} error=${check.error} />`;
  if (!check.answer && !findings.length) return html`<p class="dim" role="status">Checking…</p>`;
  if (!findings.length) return html`<p role="status"><${Pill} status="ok" /> Harken would take it as it is.</p>`;
  return html`<div role="status"><${Findings} findings=${findings} file=${file} go=${go} /></div>`;
}

/** Somebody else changed the file while it was edited here. */
function Conflict({ source, keep, drop }) {
  const [theirs, setTheirs] = useState(null);
  useEffect(() => {
    const control = new AbortController();
    get(at`/api/workflows/${source.file}/source`, {}, { signal: control.signal }).then(setTheirs, () => {});
    return () => control.abort();
  }, [source.file]);
  return html`<div class="card notice" role="alert"><p class="what"><strong>${source.file} was changed on the disk meanwhile.</strong> Your text is still here; if you keep it, the diff is to the file as it is now.</p>
    <p class="buttons"><button onClick=${drop}>Take the file, discard my text</button>
      <button disabled=${!theirs} onClick=${() => keep(theirs.revision)}>Keep my text</button></p></div>`;
}
