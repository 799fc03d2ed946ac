// How much each trigger saw in the last day. Lines of a list ask for themselves, and all that are seen make one request.
import { signal, useEffect } from "./vendor/preact.js";
import { get } from "./api.js";
import { may } from "./session.js";

const SOON_MS = 60;
const REFRESH_MS = 30_000;
const MOST_NAMES = 200;

/** The answers by the name of the trigger. */
const known = signal(new Map());
const seen = new Map(); // how many lines show a trigger now
let timer = 0;

/** {events, matched, last_event_at, last_match_at, lag_messages, lag_seconds} of a trigger; undefined until it is known. */
export function useTriggerActivity(name) {
  useEffect(() => {
    seen.set(name, (seen.get(name) ?? 0) + 1);
    if (!timer || !known.peek().has(name)) plan(SOON_MS);
    return () => {
      const left = seen.get(name) - 1;
      if (left) seen.set(name, left);
      else seen.delete(name);
    };
  }, [name]);
  return known.value.get(name);
}

function plan(ms) {
  clearTimeout(timer);
  timer = setTimeout(load, ms);
}

async function load() {
  timer = 0;
  const names = [...seen.keys()].filter((name) => !name.includes(",")).slice(0, MOST_NAMES);
  if (!names.length || !may("triggers.activity")) return;
  plan(REFRESH_MS);
  if (document.hidden) return;
  try {
    const { items } = await get("/api/activity/triggers", { names: names.join(",") });
    known.value = new Map([...known.value, ...items.map((row) => [row.name, row])]);
  } catch {
    // the line stays without its picture, and the next round asks again; the banner says when the server is away
  }
}
