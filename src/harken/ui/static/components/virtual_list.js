// A list of any length: only the rows that are seen exist. j, k, Enter and the arrow keys choose and open.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { useListKeys } from "../keys.js";
import { recall, remember, returns } from "../router.js";

const MORE = 8; // rows drawn above and below, so that fast scrolling shows no gap

/**
 * `rows`: all of them; `row`: (row) => content of one line; `height`: of a row in pixels; `keyOf`: (row) => its key.
 * `selected` is a key, kept by the page in the address; `onSelect(key)`, `onOpen(row)`. `onEnd` is called near the end,
 * `onTop(isThere)` when the top is reached or left.
 * `name` tells lists of a page apart, whose scroll positions are kept with the history.
 */
export function VirtualList({ rows, row, keyOf, height = 40, label, name = "list", selected, onSelect, onOpen, onEnd, onTop }) {
  const frame = useRef(null);
  const seen = useRef(recall(`list.${name}`) ?? { top: 0 }); // {top, key, index}: how far it is scrolled, and the first row that is seen
  const [view, setView] = useState({ top: seen.current.top, size: 600 });
  const goal = useRef(view.top > 0); // whether it has still to be brought to where it was left; not once somebody scrolls
  const giveUpGoal = () => (goal.current = false);
  const entry = useRef({ number: returns.value, rows: null }); // of the history, and the rows that are still those of another one
  if (entry.current.number !== returns.value) {
    entry.current = { number: returns.value, rows };
    seen.current = recall(`list.${name}`) ?? { top: 0 };
    goal.current = true;
  }
  // the same rows stay in sight when others come above them; only at the top what is new is seen at once
  useLayoutEffect(() => {
    const { top, key, index: before } = seen.current;
    const box = frame.current;
    if (!top && !goal.current) return;
    const at = rows.findIndex((one) => keyOf(one) === key);
    if (goal.current) {
      const wanted = at < 0 ? top : at * height + (top % height);
      box.scrollTop = wanted;
      if (box.scrollTop < wanted - 1) onEnd?.(); // it is in a page of the list that has not been read yet
      else if (!top || at >= 0 || rows !== entry.current.rows) giveUpGoal();
    } else if (at >= 0) box.scrollTop += (at - before) * height;
    if (at >= 0) seen.current = { ...seen.current, index: at };
    if (box.scrollTop !== view.top) setView((one) => ({ ...one, top: box.scrollTop }));
  }, [rows, returns.value]);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => setView((before) => ({ ...before, size: frame.current.clientHeight })));
    watch.observe(frame.current);
    return () => watch.disconnect();
  }, []);
  const atTop = view.top === 0;
  useEffect(() => onTop?.(atTop), [atTop]);
  const onScroll = () => {
    const top = frame.current.scrollTop;
    setView((before) => ({ ...before, top }));
    if (!goal.current && rows.length) {
      const index = Math.min(rows.length - 1, Math.floor(top / height));
      seen.current = { top, key: keyOf(rows[index]), index };
      remember(`list.${name}`, seen.current);
    }
    if (onEnd && top + frame.current.clientHeight > rows.length * height - 20 * height) onEnd();
  };
  // a key that is pressed before the list is drawn again counts from the one before it
  const chosen = useRef(selected);
  chosen.current = selected;
  const find = () => rows.findIndex((one) => keyOf(one) === chosen.current);
  const select = (key) => {
    chosen.current = key;
    onSelect?.(key);
  };
  const index = find();
  const move = (step) => {
    giveUpGoal();
    const from = find();
    const next = Math.min(rows.length - 1, Math.max(0, from < 0 ? 0 : from + step));
    if (!rows[next]) return;
    select(keyOf(rows[next]));
    const above = next * height;
    const box = frame.current;
    if (above < box.scrollTop) box.scrollTop = above;
    else if (above + height > box.scrollTop + box.clientHeight) box.scrollTop = above + height - box.clientHeight;
  };
  const open = () => {
    const one = rows[find()];
    if (one) onOpen?.(one);
  };
  useListKeys({ move, open, clear: () => select("") });
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -rows.length, End: rows.length }[event.key];
    if (!step) return;
    event.preventDefault();
    move(step);
  };
  const first = Math.max(0, Math.floor(view.top / height) - MORE);
  const shown = rows.slice(first, Math.ceil((view.top + view.size) / height) + MORE);
  const id = (key) => `${name}-${String(key).replace(/\W/g, "_")}`;
  return html`<div ref=${frame} class="virtual" role="listbox" tabindex="0" aria-label=${label} onScroll=${onScroll}
    onWheel=${giveUpGoal} onPointerDown=${giveUpGoal} onTouchStart=${giveUpGoal} onKeyDown=${onKeyDown} aria-activedescendant=${index >= 0 ? id(selected) : undefined}>
    <div class="virtual-size" role="presentation" style=${{ height: `${rows.length * height}px` }}>
      ${shown.map((one, at) => {
        const key = keyOf(one);
        return html`<div key=${key} id=${id(key)} class="virtual-row" role="option" aria-selected=${key === selected}
          aria-setsize=${rows.length} aria-posinset=${first + at + 1}
          style=${{ top: `${(first + at) * height}px`, height: `${height}px` }}
          onClick=${() => (onSelect?.(key), onOpen?.(one))}>${row(one)}</div>`;
      })}
    </div>
  </div>`;
}
