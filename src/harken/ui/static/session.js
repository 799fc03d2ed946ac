// Who looks at the pages, and what they may do. A token becomes a cookie that scripts cannot read (POST /api/session),
// so nothing that a page could leak is ever kept in it.
import { signal } from "./vendor/preact.js";
import { noteLost } from "./connection.js";

/** {name, role, operations, …} of GET /api/me; null until it is known. */
export const me = signal(null);
/** Why a token is needed; empty while none is. */
export const signInReason = signal("");

/** Where people log in at their identity provider; empty where they cannot. */
export const loginAddress = signal("");

const NO_TOKEN = "a token is needed"; // what the API says when there is none

export function signInNeeded(reason) {
  signInReason.value = reason || NO_TOKEN;
}

/** Whether the caller may use an operation, such as `triggers.resume`. Buttons that it may not use are not shown. */
export function may(operation) {
  return me.value?.operations.includes(operation) ?? false;
}

const PATIENCE_MS = 30_000;

/** Raises an error where there is no answer that tells it; it is asked again when the server is there. */
export async function loadMe() {
  const answer = await fetch("/api/me", { headers: { accept: "application/json" }, signal: AbortSignal.timeout(PATIENCE_MS) });
  if (answer.status === 401) {
    const problem = await answer.json();
    me.value = null;
    loginAddress.value = problem.login ?? "";
    signInNeeded(problem.detail);
  } else if (answer.ok) {
    me.value = await answer.json();
    signInReason.value = "";
  } else throw new Error(`Harken answered ${answer.status}`);
}

/** What is wrong with the token that was sent; empty where none was. */
export const tokenFault = () => (signInReason.value === NO_TOKEN ? "" : signInReason.value);

/** Returns an empty text, or why the token was not taken. */
export async function signIn(token) {
  const headers = { "content-type": "application/json" };
  const answer = await fetch("/api/session", { method: "POST", headers, body: JSON.stringify({ token }) });
  if (!answer.ok) return (await answer.json()).detail ?? `Harken answered ${answer.status}`;
  await loadMe().catch(noteLost);
  return "";
}

export async function signOut() {
  await fetch("/api/session/end", { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
  await loadMe().catch(noteLost);
}
