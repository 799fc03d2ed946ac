// The client of /api. Every error is an ApiError whose message and fix can be shown as they are.
import { noteAnswer, noteLost } from "./connection.js";
import { signInNeeded } from "./session.js";

const TRIES = 3;
const WAIT_MS = 400;

export class ApiError extends Error {
  /** `status` is 0 when no answer came; `fix` says what to do; `problems` has the fields that are wrong. */
  constructor(message, { status = 0, code = "", fix = "", requestId = "", problems = [], retryAfter = 0 } = {}) {
    super(message);
    Object.assign(this, { status, code, fix, requestId, problems, retryAfter });
  }
}

/** GET. `params` become the query, those that are empty are left out. */
export function get(path, params = {}, options = {}) {
  return request("GET", path, { ...options, params });
}

/** POST with an Idempotency-Key, so that a repetition after a lost answer has no second effect. */
export function post(path, body = {}, options = {}) {
  return request("POST", path, { key: newKey(), ...options, body });
}

/** PUT, PATCH and DELETE name the version that they change: `match` is the ETag or revision that was read. */
export const put = (path, body, match, options = {}) => request("PUT", path, { ...options, body, match });
export const patch = (path, body, match, options = {}) => request("PATCH", path, { ...options, body, match });
export const del = (path, match, options = {}) => request("DELETE", path, { ...options, match });

/** What a line of a list shows: only that is asked for, so that a row takes less than 400 bytes. */
export const FIELDS = {
  "/api/events": "id,feed,key,subject,title,recorded_at,verdicts",
  "/api/runs": "id,trigger,workflow,status,outcome,event_keys,attempt,created_at,seconds,error,hold,waiting_for",
  "/api/triggers": "name,type,workflow,status,reason,held,dead,last_fired_at,last_read_at,next_read_at,late_seconds",
};

/** A page of one of these lists. */
export function getLines(path, params = {}, options = {}) {
  return get(path, { fields: FIELDS[path], ...params }, options);
}

/** A path with its parts encoded: at`/api/triggers/${name}/pause`. Slashes in a name stay inside it. */
export function at(parts, ...values) {
  return parts.reduce((path, part, index) => path + encodeURIComponent(values[index - 1]) + part);
}

/** The rows of all pages of a list, up to `most`. */
export async function getAll(path, params = {}, { most = 5000, ...options } = {}) {
  const rows = [];
  let cursor = "";
  do {
    const page = await get(path, { limit: 500, ...params, cursor }, options);
    rows.push(...page.items);
    cursor = page.next;
  } while (cursor && rows.length < most);
  return rows;
}

export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function request(method, path, options) {
  const repeatable = method === "GET" || Boolean(options.key);
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await once(method, path, options);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const passing = error.status === 0 || (error.status === 503 && error.retryAfter <= 2);
      if (!passing || !repeatable || attempt >= TRIES) throw error;
      await pause(Math.max(error.retryAfter * 1000, WAIT_MS * attempt), options.signal);
    }
  }
}

async function once(method, path, { params = {}, body, match, key, signal }) {
  const kept = Object.entries(params).filter(([, value]) => value !== "" && value != null);
  const address = kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (match !== undefined) headers["if-match"] = String(match).startsWith('"') ? match : `"${match}"`;
  if (key) headers["idempotency-key"] = key;
  let answer;
  try {
    answer = await fetch(address, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (signal?.aborted) throw error;
    noteLost();
    throw new ApiError("Harken does not answer", { code: "away", fix: "It is asked again by itself. Is it running? harken status" });
  }
  noteAnswer();
  if (answer.ok) return answer.status === 204 ? null : parseJson(await answer.text());
  throw await failure(answer);
}

const LARGE = /(?:^|[[:,])\s*-?\d{16}/;

/** Integers that a number cannot hold exactly, such as ids of chats, become BigInt, and are written again as they came. */
export function parseJson(text) {
  return LARGE.test(text) ? JSON.parse(text, exact) : JSON.parse(text);
}

function exact(_, value, written) {
  const isRounded = typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(written?.source);
  return isRounded ? BigInt(written.source) : value;
}

BigInt.prototype.toJSON = function toJSON() {
  return JSON.rawJSON ? JSON.rawJSON(String(this)) : Number(this);
};

async function failure(answer) {
  const told = await answer.json().catch(() => ({}));
  if (answer.status === 401) signInNeeded(told.detail);
  return new ApiError(told.detail ?? told.error ?? `Harken answered ${answer.status}`, {
    status: answer.status,
    code: told.code ?? "",
    fix: told.fix ?? "",
    requestId: told.request_id ?? "",
    problems: told.errors ?? [],
    retryAfter: Number(answer.headers.get("retry-after") ?? 0),
  });
}

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}
