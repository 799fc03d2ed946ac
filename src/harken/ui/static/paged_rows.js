// The rows of a list that comes in pages, newest first: more when somebody scrolls, and its top again when the stream has news.
import { useCallback, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { getLines } from "./api.js";
import { recoveries } from "./connection.js";
import { oneAtATime } from "./resource.js";
import { onStream } from "./stream.js";

const PAGE = 100;
const MOST = 20_000;
const SOON_MS = 700;
const NOTHING = { rows: undefined, next: null, error: null, lookedAt: 0 };

/**
 * {rows, next, error, lookedAt, reload, loadMore}; `rows` is undefined until the first page is there.
 * `kind`: what of the stream means that the list has changed. `fits(row)`: whether a row that changed still belongs to it.
 */
export function usePagedRows(path, params, { kind = "", fits = () => true } = {}) {
  const asked = JSON.stringify([path, params]);
  const [state, setState] = useState(NOTHING);
  const more = useRef(false);
  const belongs = useRef(fits);
  belongs.current = fits;

  const top = useMemo(() => oneAtATime(async (signal) => {
    try {
      const page = await getLines(path, { limit: PAGE, ...params }, { signal });
      if (!signal.aborted) setState((before) => (before.asked === asked ? withTop(before, page) : fresh(asked, page)));
    } catch (error) {
      if (!signal.aborted) setState((before) => ({ ...before, error }));
    }
  }), [asked]);
  const reload = top.again;

  const loadMore = useCallback(async (next) => {
    if (!next || more.current) return;
    more.current = true;
    try {
      const page = await getLines(path, { limit: PAGE, ...params, cursor: next });
      setState((before) => (before.asked === asked && before.next === next ? withMore(before, page) : before));
    } catch (error) {
      setState((before) => ({ ...before, error }));
    } finally {
      more.current = false;
    }
  }, [asked]);

  useEffect(() => {
    top.begin();
    return top.stop;
  }, [top, recoveries.value]);
  useNews(kind, reload, (row) => setState((before) => withRow(before, row, belongs.current)));
  return { ...state, reload, loadMore: () => state.rows && state.rows.length < MOST && loadMore(state.next) };
}

/** Many changes make one reload. */
function useNews(kind, reload, change) {
  useEffect(() => {
    if (!kind) return undefined;
    let soon = 0;
    const stop = onStream(kind, (row) => {
      change(row);
      soon ||= setTimeout(() => {
        soon = 0;
        reload();
      }, SOON_MS);
    });
    const stopBegin = onStream("begin", reload);
    return () => {
      stop();
      stopBegin();
      clearTimeout(soon);
    };
  }, [kind, reload]);
}

function fresh(asked, page) {
  return { asked, rows: page.items, next: page.next, error: null, lookedAt: page.looked_at ?? 0 };
}

/** The list with its first page read again; what was below that page stays. */
export function withTop(before, page) {
  const last = page.items.at(-1)?.id;
  const at = before.rows.findIndex((row) => row.id === last);
  const keeps = page.next && at >= 0 && at + 1 < before.rows.length;
  return {
    ...before,
    error: null,
    rows: keeps ? [...page.items, ...before.rows.slice(at + 1)] : page.items,
    next: keeps ? before.next : page.next,
    lookedAt: Math.max(before.lookedAt, page.looked_at ?? 0),
  };
}

export function withMore(before, page) {
  const known = new Set(before.rows.map((row) => row.id));
  const rows = [...before.rows, ...page.items.filter((row) => !known.has(row.id))];
  return { ...before, error: null, rows, next: page.next, lookedAt: before.lookedAt + (page.looked_at ?? 0) };
}

/** The list with a row that it has as it is now; new ones come with the next reload, which knows the filter. */
export function withRow(before, row, fits) {
  const at = before.rows?.findIndex((one) => one.id === row.id) ?? -1;
  if (at < 0) return before;
  const rows = before.rows.slice();
  rows.splice(at, 1, ...(fits(row) ? [row] : []));
  return { ...before, rows };
}
