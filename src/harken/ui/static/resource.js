// Data that a component shows: loaded when what it asks for changes, again when the server is back, aborted when unused.
import { useCallback, useEffect, useRef, useState } from "./vendor/preact.js";
import { recoveries } from "./connection.js";
import { me } from "./session.js";

/**
 * {data, error, loading, reload}. `load` gets an AbortSignal; it is called again when one of `needs` changes.
 * While it loads again the earlier data stays, so that nothing jumps.
 */
export function useResource(load, needs = []) {
  const [state, setState] = useState({ data: undefined, error: null, loading: true });
  const running = useRef(null);
  const reload = useCallback(async () => {
    running.current?.abort();
    const control = (running.current = new AbortController());
    setState((before) => ({ ...before, loading: true }));
    try {
      const data = await load(control.signal);
      if (!control.signal.aborted) setState({ data, error: null, loading: false });
    } catch (error) {
      if (!control.signal.aborted) setState((before) => ({ ...before, error, loading: false }));
    }
  }, needs);
  useEffect(() => {
    reload();
    return () => running.current?.abort();
  }, [reload, recoveries.value, me.value?.name]);
  return { ...state, reload };
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
    return kept === null ? initial : JSON.parse(kept);
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
