"""Reads a trigger's history page by page, and counts what its condition says beside what was decided."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.event import Recorded
from harken.language.cel import bind
from harken.language.cel.failed_clauses import value_of
from harken.language.dotted_paths import MISSING
from harken.match import Rules, Screen, Screened
from harken.operate.event_from_record import past_variables
from harken.operate.progress import Progress, Report
from harken.operate.runs import micros
from harken.store import History, Records

__all__ = ["NearMisses", "Reading", "Scan", "about", "history_pages", "scan", "screen_page"]

FIRST_PAGE, LARGEST_PAGE = 200, 8_000
SMALL_BYTES, LARGE_BYTES = 1_500_000, 6_000_000
"""Pages grow while their payloads are small, and shrink when they are large."""

SAMPLES = 10
MOST_PAIRS = 100_000
"""After so many different events what was counted is summed up, so that memory stays small."""
MOST_VALUES = 200
"""Different values that are remembered of a clause that alone held events back."""

STARTED = frozenset({"fired", "gathered", "held"})
DECIDED = frozenset({"filtered", "error"})
UNHEARD = frozenset({"", "before_start"})
DECLINED = {"filtered": "false", "error": "error"}


Key = bytes | Screened
"""Events with equal keys are decided alike."""

Pair = tuple[str, Key]
"""The recorded outcome of an event, and its key."""


class Decided(msgspec.Struct, frozen=True, gc=False):
    """What was decided about the events with a key, and one of these events."""

    screened: Screened
    event: dict[str, Any]

    @property
    def alone(self) -> int | None:
        """The clause that alone held them back."""
        return self.screened.failed[0] if len(self.screened.failed) == 1 else None


class NearMisses(msgspec.Struct):
    """Events that one clause alone held back: how many, the newest of them, and the values that it saw.

    Each value has an event that had it. `extremes` are the smallest and the largest number; of more values than are
    kept these are kept too, as one of them is the nearest to a limit.
    """

    count: int = 0
    newest: list[int] = []
    values: dict[Any, int] = {}
    examples: dict[Any, dict[str, Any]] = {}
    extremes: list[Any] = msgspec.field(default_factory=lambda: [None, None])
    surplus: list[Any] = msgspec.field(default_factory=lambda: [None, None])

    def add(self, key: Any, event: dict[str, Any], number: int) -> None:
        """Count a value with its type. A number that is further out takes the place of one that is kept as such."""
        if key in self.values:
            self.values[key] += number
            return
        kept = len(self.values) < MOST_VALUES
        sides = [side for side in (0, 1) if self._is_extreme(side, key[1])]
        for side in sides:
            self.extremes[side] = key[1]
            if not kept:
                self._replace_surplus(side, key)
        if kept or sides:
            self.values[key], self.examples[key] = number, event

    def _is_extreme(self, side: int, value: Any) -> bool:
        before = self.extremes[side]
        return type(value) in (int, float) and (before is None or (value > before if side else value < before))

    def _replace_surplus(self, side: int, key: Any) -> None:
        before, self.surplus[side] = self.surplus[side], key
        if before is not None and before not in self.surplus:
            del self.values[before], self.examples[before]


class Scan(msgspec.Struct, kw_only=True):
    """What was found. `tally` counts recorded outcomes beside what the conditions say.

    `unheard` counts events that the trigger did not decide about: recorded outcome, whether it listens to their type,
    whether its start line counts them, and what the changed condition says. `passed` are ids of events that one of the
    conditions lets through; `odd` those that passed and did not simply fire; `differing` those that the condition
    decides otherwise than recorded. `gained` and `lost` are the ids of some events that the change decides otherwise.
    """

    events: int = 0
    tally: Counter[tuple[str, Screened]] = msgspec.field(default_factory=Counter)
    unheard: Counter[tuple[str, bool, bool, str]] = msgspec.field(default_factory=Counter)
    passed: list[int] = []
    odd: list[int] = []
    differing: list[int] = []
    differing_count: int = 0
    gained: list[int] = []
    lost: list[int] = []
    blamed: Counter[int] = msgspec.field(default_factory=Counter)
    near: dict[int, NearMisses] = {}


async def scan(
    store: Records,
    screen: Screen,
    rules: Rules,
    name: str,
    since: datetime | None,
    until: datetime | None,
    *,
    keep_passed: bool,
    found: Scan | None = None,
    on_page: Callable[[History], None] = lambda page: None,
) -> Scan:
    """Read everything of the span, and add it to what was found. Pages are read while the one before is counted.

    `on_page` gets each of them after it was counted."""
    counting = Counting(screen, keep_passed, found if found is not None else Scan(), brief=until is None)
    async for read in history_pages(store, rules.feed.name, name, since, until, brief=lambda: counting.brief):
        lacking = counting.lacks_columns(read)
        page = await _with_columns(store, rules.feed.name, name, since, read) if lacking else read
        if page.ids:
            await counting.add(store, page)
        on_page(page)
        # others want to be served too
        await asyncio.sleep(0)
    counting.sum_up()
    return counting.found


async def history_pages(
    store: Records,
    feed: str,
    trigger: str,
    since: datetime | None,
    until: datetime | None,
    *,
    brief: Callable[[], bool] = lambda: False,
) -> AsyncIterator[History]:
    """The feed's events of the span, oldest first, with what the trigger decided; the next page is read ahead.

    While `brief` is true, pages may lack types and times."""
    size = FIRST_PAGE
    ahead = asyncio.ensure_future(store.history(feed, trigger, since=since, until=until, limit=size, brief=brief()))
    try:
        while True:
            page = await ahead
            if page.next is None:
                yield page
                return
            if len(page.data) < SMALL_BYTES:
                size = min(size * 2, LARGEST_PAGE)
            elif len(page.data) > LARGE_BYTES:
                size = max(size // 2, 1)
            following = store.history(
                feed, trigger, since=since, until=until, after=page.next, limit=size, brief=brief()
            )
            ahead = asyncio.ensure_future(following)
            yield page
    finally:
        ahead.cancel()


async def _with_columns(store: Records, feed: str, trigger: str, since: datetime | None, page: History) -> History:
    """The same page with its types and times, without what was deleted since it was read."""
    before, last = page.ids[0] - 1, page.ids[-1]
    whole = await store.history(feed, trigger, since=since, after=before, limit=len(page.ids))
    if whole.ids and whole.ids[-1] > last:
        # in place of what was deleted it has what follows
        left = sum(id <= last for id in whole.ids)
        whole = await store.history(feed, trigger, since=since, after=before, limit=left) if left else History()
    return msgspec.structs.replace(whole, next=page.next)


async def screen_page(store: Records, screen: Screen, page: History) -> list[Screened]:
    """What the conditions of the screen say of each event of the page."""
    if not screen.reads_more:
        return [screen.decided(key) for key in screen.keys(page.data)]
    # what is beside the data of an event is not in the columns
    recorded = {event.id: event for event in await store.events_by_id(page.ids)}
    whole = [past_variables(recorded[id]) if id in recorded else {"event": {}} for id in page.ids]
    return [screen.screen(bind(each)) for each in whole]


class Counting:
    """Counts pages of events by outcome and key, and sums up by key, as a million events have some hundred of them."""

    def __init__(self, screen: Screen, keep_passed: bool, found: Scan, *, brief: bool = False) -> None:
        self.found = found
        # types and times are read from the first event on that the trigger did not decide about
        self.brief = brief and not screen.selects_types
        self._screen = screen
        self._keep_passed = keep_passed
        self._decided: dict[Key, Decided] = {}
        self._pairs: Counter[Pair] = Counter()
        self._blamed: Counter[Key] = Counter()
        # the lists that get ids of such events, and the keys that one clause alone held back
        self._wanted: dict[Pair, list[tuple[list[int], int]]] = {}
        self._alone: dict[Key, int] = {}

    def lacks_columns(self, page: History) -> bool:
        """Whether the page was read without types and times, and they are needed after all."""
        if len(page.types) == len(page.ids) or UNHEARD.isdisjoint(page.outcomes):
            return False
        self.brief = False
        return True

    async def add(self, store: Records, page: History) -> None:
        if len(self._pairs) > MOST_PAIRS:
            self.sum_up()
        self.found.events += len(page.ids)
        keys = await self._keys(store, page)
        # zip uses one tuple again and again if nobody keeps it: a list of them takes as long as the counting
        counts = Counter(zip(page.outcomes, keys, strict=True))
        for pair in counts.keys() - self._pairs.keys():
            self._prepare(pair)
        self._pairs.update(counts)
        if any(outcome in UNHEARD for outcome, _ in counts):
            self._count_unheard(page, keys)
        self._collect_ids(page, keys, counts)
        self._blame(page, keys, counts)

    def _prepare(self, pair: Pair) -> None:
        """Find out what is to be done with events of this outcome and key."""
        outcome, key = pair
        decided = self._decided.get(key)
        if decided is None:
            decided = self._decided[key] = self._decide(key)
        if decided.alone is not None:
            self._alone[key] = decided.alone
        if lists := _lists(self.found, outcome, decided.screened, self._keep_passed):
            self._wanted[pair] = lists

    async def _keys(self, store: Records, page: History) -> Sequence[Key]:
        if not self._screen.reads_more:
            return self._screen.keys(page.data)
        # what is beside the data of an event is not in the columns
        recorded = {event.id: event for event in await store.events_by_id(page.ids)}
        keys: list[Key] = []
        for id in page.ids:
            whole = past_variables(recorded[id]) if id in recorded else {"event": {}}
            screened = self._screen.screen(bind(whole))
            keys.append(screened)
            self._decided.setdefault(screened, Decided(screened, whole["event"]))
        return keys

    def _decide(self, key: Key) -> Decided:
        assert isinstance(key, bytes)
        return Decided(self._screen.decided(key), self._screen.event_of(key))

    def sum_up(self) -> None:
        """Add what was counted by key to what was found."""
        for (outcome, key), number in self._pairs.items():
            screened = self._decided[key].screened
            if outcome not in ("", "before_start"):
                self.found.tally[outcome, screened] += number
                if differs(outcome, screened):
                    self.found.differing_count += number
        if not self._screen.selects_types:
            for (_, key), number in self._pairs.items():
                self._blamed[key] += number
        for key, number in self._blamed.items():
            decided = self._decided[key]
            for at in decided.screened.failed:
                self.found.blamed[at] += number
            if decided.alone is not None:
                _near(self._near_misses(decided.alone), self._screen, decided.alone, decided.event, number)
        self._pairs.clear()
        self._blamed.clear()
        self._decided.clear()
        self._wanted.clear()
        self._alone.clear()

    def _near_misses(self, at: int) -> NearMisses:
        return self.found.near.setdefault(at, NearMisses())

    def _count_unheard(self, page: History, keys: Sequence[Key]) -> None:
        columns = zip(page.outcomes, page.types, page.occurred_at, keys, strict=True)
        for outcome, kind, occurred_at, key in columns:
            if outcome in ("", "before_start"):
                changed = self._decided[key].screened.changed
                self.found.unheard[outcome, self._screen.listens(kind), self._screen.begun(occurred_at), changed] += 1

    def _collect_ids(self, page: History, keys: Sequence[Key], counts: Mapping[Pair, int]) -> None:
        """Keep the ids of events that are looked at one by one later."""
        wanted: dict[Pair, list[tuple[list[int], int]]] = {}
        for pair, lists in self._wanted.items():
            if pair in counts and (left := [(ids, most) for ids, most in lists if len(ids) < most]):
                wanted[pair] = left
        if not wanted:
            return
        for id, outcome, key in zip(page.ids, page.outcomes, keys, strict=True):
            for ids, most in wanted.get((outcome, key), ()):
                if len(ids) < most:
                    ids.append(id)

    def _blame(self, page: History, keys: Sequence[Key], counts: Mapping[Pair, int]) -> None:
        """Count the keys of events that clauses held back, and keep the newest that a clause alone did."""
        if self._screen.selects_types:
            kinds = zip(keys, page.types, strict=True)
            self._blamed.update(key for key, kind in kinds if self._screen.listens(kind))
        alone = {key: at for _, key in counts if (at := self._alone.get(key)) is not None}
        if not alone:
            return
        left = dict.fromkeys(alone.values(), SAMPLES)
        for id, key in zip(reversed(page.ids), reversed(keys), strict=True):
            if not left:
                break
            at = alone.get(key, -1)
            if at in left:
                self._near_misses(at).newest.append(id)
                left[at] -= 1
                if not left[at]:
                    del left[at]
        for misses in self.found.near.values():
            misses.newest = sorted(misses.newest, reverse=True)[:SAMPLES]


def differs(outcome: str, screened: Screened) -> bool:
    """Whether the condition as it is now cannot have given the recorded outcome."""
    if outcome in ("", "before_start", "unmatched"):
        return False
    if outcome == "error" and screened.now == "true":
        # the mapping or a key failed: looked at later
        return False
    return screened.now != DECLINED.get(outcome, "true")


def _lists(found: Scan, outcome: str, screened: Screened, keep_passed: bool) -> list[tuple[list[int], int]]:
    """The lists that get the ids of such events, and how many each takes."""
    lists: list[tuple[list[int], int]] = []
    heard = outcome not in ("", "before_start", "unmatched")
    if keep_passed and heard and "true" in screened[:2]:
        lists.append((found.passed, 10**9))
    if differs(outcome, screened):
        lists.append((found.differing, SAMPLES))
    elif heard and screened.now == "true" and outcome != "fired":
        lists.append((found.odd, 10**6))
    if outcome in DECIDED and screened.now != "true" and screened.changed == "true":
        lists.append((found.gained, SAMPLES))
    if outcome in STARTED and screened.changed != "true":
        lists.append((found.lost, SAMPLES))
    return [(ids, most) for ids, most in lists if len(ids) < most]


def _near(misses: NearMisses, screen: Screen, at: int, event: dict[str, Any], number: int) -> None:
    misses.count += number
    value = value_of(screen.clauses[at], {"event": event})
    marked = value if type(value) in (str, int, float, bool) else None if value is not MISSING else MISSING
    # to Python alone true is 1
    misses.add((type(marked).__name__, marked), event, number)


class Reading:
    """Estimates from each page of a feed's history how many events there are of it.

    Nobody counts them beforehand, which would take as long as reading them. Ids tell how far it is, and up to a time
    that was given the times do.
    """

    def __init__(self, report: Report, newest: Recorded | None, until: datetime | None, what: str) -> None:
        self._report = report
        self._by_id = until is None
        self._last = _last(newest, until)
        self._what = what
        self._first: int | None = None
        self._read = 0

    def add(self, page: History) -> None:
        """Report what was read with this page."""
        self._read += len(page.ids)
        if page.next is None:
            self._report(Progress(done=self._read, total=self._read, what=self._what))
        elif page.ids:
            column = page.ids if self._by_id else page.recorded_at
            self._first = column[0] if self._first is None else self._first
            total = about(self._read, self._first, column[-1], self._last)
            self._report(Progress(done=self._read, total=total, what=self._what, exact=False))


def about(read: int, first: int, at: int, last: int) -> int:
    """How many there are up to `last`, if `read` of them were from `first` to `at` and the others are as dense."""
    way = at - first + 1
    return max(read, round(read * (last - first + 1) / way))


def _last(newest: Recorded | None, until: datetime | None) -> int:
    if newest is None:
        return 0
    if until is None:
        return newest.id
    return micros(min(until, newest.recorded_at))
