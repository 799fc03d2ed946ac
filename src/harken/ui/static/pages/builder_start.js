// How a draft begins: from YAML that was pasted, from an event that somebody wants more of, or from a row that is there.
import { at, get, post } from "../api.js";
import { toRows } from "../components/condition_rows.js";
import { EMPTY, ofRow } from "./builder_draft.js";

const KINDS = "poll|webhook|stream|file|schedule|event|api|feed";
const FILE = /^trigger:/m;
const BLOCK = new RegExp(`^(?:${KINDS}):`, "m");

/** Whether a text that is pasted is a trigger; in a field only a whole file counts, as all else may be meant for the field. */
export function isTrigger(text, isField) {
  return FILE.test(text) || (!isField && BLOCK.test(text));
}

/** What the form gets of YAML. Raises an error in the words of Harken's check if it is none. */
export async function fromYaml(yaml, draft) {
  const kept = draft.workflow ? { workflow: draft.workflow } : { steps: draft.steps };
  const answer = await post("/api/drafts", { yaml, name: draft.name, limit: 0, ...kept }, { key: "" });
  if (!answer.row) throw Object.assign(new Error(answer.problems[0]?.text ?? "It is no trigger"), { fix: "" });
  const found = ofRow(answer.row, answer.steps || draft.steps);
  return { ...found, name: draft.replaces ? draft.name : found.name, service: "" };
}

/** A draft that listens to what an event came from, with the clause that was clicked, tried on the events of its feed. */
export async function likeEvent(id, condition, signal) {
  const event = await get(at`/api/events/${id}`, {}, { signal });
  const clauses = condition || `meta.type == ${JSON.stringify(event.type)}`;
  const begun = { ...EMPTY, like: String(id), rows: toRows(clauses), eventsOf: event.feed_id };
  for (const { trigger } of event.verdicts) {
    const source = await sourceOf(trigger, signal);
    if (source) return { ...begun, ...source, name: `${trigger}-2` };
  }
  return begun;
}

/** What a trigger listens to. One webhook belongs to one trigger, so of a webhook it is a new address. */
async function sourceOf(name, signal) {
  try {
    const { yaml } = await get(at`/api/triggers/${name}/export`, {}, { signal });
    const { row } = await post("/api/drafts", { yaml, limit: 0 }, { signal, key: "" });
    if (!row) return null;
    const { id, ...config } = row.config && typeof row.config === "object" ? row.config : {};
    return { provider: row.provider, config: row.provider === "webhook" ? config : row.config };
  } catch (error) {
    // of jobs and trackers there is no file: the person chooses
    if (signal.aborted || !error.status) throw error;
    return null;
  }
}

/** The draft of a row that is there, to be edited. */
export async function ofExisting(name, signal) {
  const { row, revision, source } = await get(at`/api/triggers/${name}`, {}, { signal });
  if (!row) throw Object.assign(new Error(`${name} is defined in ${source || "a file"}, and only there`), { fix: "Change it there: Harken loads it by itself" });
  const { steps } = await post("/api/drafts", fieldsOf(row), { signal, key: "" });
  return { ...EMPTY, ...ofRow(row, steps), replaces: row.name, revision, enabled: row.enabled };
}

function fieldsOf({ name, provider, config, condition, options, workflow }) {
  return { name, provider, condition, options, workflow, ...(config === null ? {} : { config }), replaces: name, limit: 0 };
}
