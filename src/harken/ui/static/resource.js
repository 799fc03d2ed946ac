// Data that a component shows: loaded when what it asks for changes, again when the server is back, aborted when unused.
import { useCallback, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { parseJson } from "./api.js";
import { recoveries } from "./connection.js";
import { me } from "./session.js";

const PATIENCE_MS = 30_000; // for an answer, while others come; then it is asked for anew

/**
 * Reads one at a time: `read(signal)` returns a promise that never fails. What is being read is let end, as where answers take
 * longer than the time between two reads there would otherwise never be one.
 * `begin`: read now, and give up what is being read. `again`: read; what is being read now is followed by one more.
 * `unlessReading`: read, if nothing is being read. `stop`: give up.
 */
export function oneAtATime(read) {
  let current = null;
  const stop = () => {
    current?.control.abort();
    current = null;
  };
  const begin = () => {
    stop();
    const turn = (current = { control: new AbortController(), at: Date.now(), next: null });
    turn.over = read(turn.control.signal).then(() => void (current === turn && (current = null)));
    return turn.over;
  };
  const isReading = () => current !== null && Date.now() - current.at < PATIENCE_MS;
  const follow = (turn) => (turn.next ??= turn.over.then(() => (turn.control.signal.aborted ? undefined : begin())));
  return { begin, stop, again: () => (isReading() ? follow(current) : begin()), unlessReading: () => (isReading() ? undefined : begin()) };
}

/**
 * {data, error, loading, reload, refresh}. `load` gets an AbortSignal; it is called again when one of `needs` changes.
 * `reload` shows what is there from now on, `refresh` is for what is looked at again and again.
 * While it loads again the earlier data stays, so that nothing jumps.
 */
export function useResource(load, needs = []) {
  const [state, setState] = useState({ data: undefined, error: null, loading: true });
  const reading = useMemo(() => oneAtATime(async (signal) => {
    setState((before) => ({ ...before, loading: true }));
    try {
      const data = await load(signal);
      if (!signal.aborted) setState({ data, error: null, loading: false });
    } catch (error) {
      if (!signal.aborted) setState((before) => ({ ...before, error, loading: false }));
    }
  }), needs);
  useEffect(() => {
    reading.begin();
    return reading.stop;
  }, [reading, recoveries.value, me.value?.name]);
  return { ...state, reload: reading.again, refresh: reading.unlessReading };
}

/** Call it every so many milliseconds while the page is seen, and at once when it is seen again. */
export function useInterval(call, ms) {
  const latest = useRef(call);
  latest.current = call;
  useEffect(() => {
    const beat = () => document.hidden || latest.current();
    const timer = setInterval(beat, ms);
    document.addEventListener("visibilitychange", beat);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", beat);
    };
  }, [ms]);
}

/** A value of a form that survives a reload of the page and a server that is away: kept in this tab until it is cleared. */
export function useDraft(key, initial) {
  const place = `harken.draft.${key}`;
  const [value, setValue] = useState(() => {
    const kept = sessionStorage.getItem(place);
    return kept === null ? initial : parseJson(kept);
  });
  const change = useCallback((next) => {
    sessionStorage.setItem(place, JSON.stringify(next));
    setValue(next);
  }, [place]);
  const clear = useCallback(() => {
    sessionStorage.removeItem(place);
    setValue(initial);
  }, [place]);
  return [value, change, clear];
}
