// The draft of a trigger: what is filled in, undo and redo, and what Harken says of it while it is typed.
import { useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { parseJson, post } from "../api.js";
import { toCondition, toRows } from "../components/condition_rows.js";
import { recoveries } from "../connection.js";
import { useDraft } from "../resource.js";

const TYPING_MS = 300;
const SETTLED_MS = 900;
const TOGETHER_MS = 1000;
const MOST_STEPS_BACK = 200;

export const STEPS = `# What runs when it fires. Templates such as {{.trigger.event.title}} take values of the event.
steps:
  - id: note
    action: transform
    set:
      text: "{{.trigger.key}} came from {{.trigger.feed}}"
`;

/**
 * `rows`: the condition, see condition_rows.js. `steps`: the workflow as YAML, unless `workflow` names one. `eventsOf`: the feed whose events it is
 * tried on. `replaces` and `revision`: the row that it is an edit of.
 */
export const EMPTY = { name: "", service: "", provider: "", config: null, rows: [], options: {}, workflow: "", steps: STEPS, eventsOf: "", replaces: "", revision: "", enabled: true, like: "" };

/** What Harken takes: the fields of a row, and its workflow as YAML. */
export function bodyOf(draft) {
  const body = { name: draft.name.trim(), provider: draft.provider, condition: toCondition(draft.rows), options: draft.options };
  if (draft.config !== null) body.config = draft.config;
  if (draft.workflow) body.workflow = draft.workflow;
  else body.steps = draft.steps;
  if (draft.replaces) body.replaces = draft.replaces;
  if (draft.eventsOf) body.events_of = draft.eventsOf;
  return body;
}

/** What Harken says of the draft now, with its `row` and `yaml`; whatever is wrong with it is the error. */
export async function checked(draft) {
  const answer = await post("/api/drafts", { ...bodyOf(draft), limit: 0 }, { key: "" });
  const first = answer.problems.find((one) => one.severity === "error");
  if (first || !answer.row) throw Object.assign(new Error(first ? `${first.path.join(".")}: ${first.message}` : "It cannot be read"), { fix: first?.fix ?? "" });
  if (!answer.row.name) throw Object.assign(new Error("It has no name yet"), { fix: "Give it one" });
  return answer;
}

/** What a draft gets of a row of Harken; `steps` is its workflow as YAML. */
export function ofRow({ name, provider, config, condition, options, workflow }, steps) {
  const named = typeof workflow === "string";
  return { name, provider, config: config ?? null, rows: toRows(condition ?? ""), options: options ?? {}, workflow: named ? workflow : "", steps: named ? STEPS : steps || STEPS };
}

/** {draft, change, undo, redo, canUndo, canRedo, restart}: kept in this tab; changes of one field in a row are one step. */
export function useTriggerDraft(key, initial = EMPTY) {
  const [draft, setDraft, clear] = useDraft(key, initial);
  const now = useRef(draft);
  now.current = draft;
  const steps = useRef({ past: [], future: [], last: "", at: 0 });
  const [, setCount] = useState(0);
  const put = (next) => {
    now.current = next;
    setDraft(next);
    setCount((before) => before + 1);
  };
  const change = useCallback((changes, what = Object.keys(changes).join()) => {
    const { current } = steps;
    const time = Date.now();
    const isSame = what === current.last && time - current.at < TOGETHER_MS;
    if (!isSame) current.past = [...current.past.slice(-MOST_STEPS_BACK), now.current];
    Object.assign(current, { future: [], last: what, at: time });
    put({ ...now.current, ...changes });
  }, [key]);
  const move = (from, to) => {
    const { current } = steps;
    if (!current[from].length) return;
    current[to] = [...current[to], now.current];
    const next = current[from].at(-1);
    current[from] = current[from].slice(0, -1);
    current.last = "";
    put(next);
  };
  const restart = (next = initial) => {
    clear();
    Object.assign(steps.current, { past: [], future: [], last: "" });
    put(next);
  };
  return {
    draft, change, restart, clear,
    undo: () => move("past", "future"),
    redo: () => move("future", "past"),
    canUndo: steps.current.past.length > 0,
    canRedo: steps.current.future.length > 0,
  };
}

/**
 * {answer, error, checking, reading}: what Harken says of the draft, asked anew when it has not been typed in for a moment; an older question is cancelled.
 * Its service is read once the query has settled; afterwards each answer is about what it showed.
 */
export function useCheck(draft) {
  const body = JSON.stringify(bodyOf(draft));
  const query = JSON.stringify([draft.provider, draft.config]);
  const [state, setState] = useState({ answer: null, error: null, checking: false, reading: false });
  const wasRead = useRef("");
  const [again, setAgain] = useState(0);
  useEffect(() => {
    if (!draft.provider) {
      setState({ answer: null, error: null, checking: false, reading: false });
      return undefined;
    }
    const control = new AbortController();
    const { signal } = control;
    const ask = (more) => post("/api/drafts", { ...parseJson(body), ...more }, { signal, key: "" });
    const run = async () => {
      setState((before) => ({ ...before, checking: true }));
      try {
        const known = wasRead.current === query;
        const answer = await ask({ read: known });
        const wants = !known && answer.dry_run?.source === "none" && answer.dry_run.can_read;
        setState({ answer, error: null, checking: false, reading: wants });
        if (!wants) return;
        await new Promise((resolve) => setTimeout(resolve, SETTLED_MS));
        if (signal.aborted) return;
        const read = await ask({ read: true });
        wasRead.current = query;
        setState({ answer: read, error: null, checking: false, reading: false });
      } catch (error) {
        if (!signal.aborted) setState((before) => ({ ...before, error, checking: false, reading: false }));
      }
    };
    const timer = setTimeout(run, TYPING_MS);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [body, again, recoveries.value]);
  return { ...state, readAgain: () => ((wasRead.current = ""), setAgain(again + 1)) };
}

/** The events and would-be runs of each hour, null until they are known; asked when nothing was typed for a while, as it reads the whole span. */
export function useHours(draft, hours, enabled) {
  const body = JSON.stringify(bodyOf(draft));
  const [found, setFound] = useState(null);
  useEffect(() => {
    if (!enabled) {
      setFound(null);
      return undefined;
    }
    const control = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const answer = await post("/api/drafts", { ...parseJson(body), limit: 0, hours }, { signal: control.signal, key: "" });
        setFound(answer.hours);
      } catch {
        // the check beside it says what is wrong
        if (!control.signal.aborted) setFound([]);
      }
    }, SETTLED_MS);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [body, hours, enabled]);
  return found;
}
