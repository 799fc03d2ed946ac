// Events as they come, without a gap: the stream says that there is something new, and the store is asked for what came after
// the last one that is shown. So a pause, a connection that was lost or a filter never lose one.
import { get, getLines } from "../api.js";

export const MOST_ROWS = 5000;
const FIRST = 200;
const PAGE = 500;
const PULL_MS = 250;

/** Rows newest first, at most MOST_ROWS; `changed` is called after every change. */
export class EventTail {
  constructor(where, changed) {
    this.where = where;
    this.changed = changed;
    this.rows = undefined;
    this.older = false; // whether the store has older ones
    this.cursor = ""; // of the page after the oldest row; empty where rows were dropped at that end
    this.waiting = 0; // how many came since it was paused
    this.lookedAt = 0;
    this.error = null;
    this.paused = false;
    this.shown = 0; // the newest id that was looked at for the rows
    this.counted = 0; // and for the number that waits
    this.top = 0; // the newest id that the stream told
    this.control = new AbortController();
    this.timer = 0;
    this.stopped = false;
  }

  async start() {
    await this.attempt(async (signal) => {
      const [newest] = (await get("/api/events", { limit: 1, fields: "id" }, { signal })).items;
      const page = await getLines("/api/events", { where: this.where, limit: FIRST }, { signal });
      this.rows = page.items;
      this.cursor = page.next ?? "";
      this.older = Boolean(page.next);
      this.lookedAt = page.looked_at ?? 0;
      this.shown = this.counted = Math.max(newest?.id ?? 0, page.items[0]?.id ?? 0);
    });
    if (this.rows && this.top > this.shown) this.pull();
  }

  stop() {
    this.stopped = true;
    this.control.abort();
    clearTimeout(this.timer);
  }

  /** The stream has an event; it is fetched soon, with others that come meanwhile. */
  note(id) {
    this.top = Math.max(this.top, id);
    this.timer ||= setTimeout(() => {
      this.timer = 0;
      if (!document.hidden) this.pull();
    }, PULL_MS);
  }

  /** While it is paused what comes is only counted; afterwards all of it is read from the store. */
  setPaused(paused) {
    if (paused === this.paused) return;
    this.paused = paused;
    if (!this.rows) return;
    this.waiting = 0;
    this.counted = this.shown;
    this.control.abort();
    this.control = new AbortController();
    this.pulling = false;
    this.changed();
    this.pull();
  }

  async pull() {
    if (!this.rows || this.stopped) return;
    this.again = true;
    if (this.pulling) return;
    this.pulling = true;
    const { control } = this;
    while (this.again && !control.signal.aborted) {
      this.again = false;
      await this.attempt(() => this.readNewer(control.signal), control);
    }
    if (control === this.control) this.pulling = false;
  }

  async readNewer(signal) {
    const { top } = this;
    const after = this.paused ? this.counted : this.shown;
    let cursor = "";
    do {
      const page = await getLines("/api/events", { where: this.where, after, limit: PAGE, cursor }, { signal });
      if (signal.aborted) return;
      this.take(page.items);
      cursor = page.next;
    } while (cursor);
    this.moveTo(top); // all up to there were looked at, also those that do not fit the filter
  }

  /** `items`: oldest first. */
  take(items) {
    if (!items.length) return;
    if (this.paused) this.waiting += items.length;
    else {
      const all = [...items.toReversed(), ...this.rows];
      if (all.length > MOST_ROWS) [this.older, this.cursor] = [true, ""];
      this.rows = all.slice(0, MOST_ROWS);
    }
    this.moveTo(items.at(-1).id);
    this.changed();
  }

  moveTo(id) {
    if (this.paused) this.counted = Math.max(this.counted, id);
    else this.shown = Math.max(this.shown, id);
  }

  /** What lies before the oldest row, as far as there is room. */
  async readOlder() {
    if (!this.older || this.readingOlder || this.rows.length >= MOST_ROWS) return;
    this.readingOlder = true;
    await this.attempt(async (signal) => {
      const place = this.cursor ? { cursor: this.cursor } : { before: this.rows.at(-1)?.id };
      const page = await getLines("/api/events", { where: this.where, limit: FIRST, ...place }, { signal });
      this.rows = [...this.rows, ...page.items];
      this.cursor = page.next ?? "";
      this.older = Boolean(page.next);
      this.lookedAt += page.looked_at ?? 0;
    });
    this.readingOlder = false;
  }

  async attempt(act, { signal } = this.control) {
    try {
      await act(signal);
      if (signal.aborted) return;
      this.error = null;
    } catch (error) {
      if (signal.aborted) return;
      this.error = error;
    }
    this.changed();
  }
}
