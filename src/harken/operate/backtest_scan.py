"""Reads a trigger's history page by page, and counts what its condition says beside what was decided."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.language.cel import bind
from harken.language.cel.clauses import value_of
from harken.language.paths import MISSING
from harken.match import Rules, Screen, Screened
from harken.operate.past_events import past_variables
from harken.store import History, Records

__all__ = ["NearMisses", "Scan", "scan"]

FIRST_PAGE, LARGEST_PAGE = 200, 8_000
SMALL_BYTES, LARGE_BYTES = 1_500_000, 6_000_000
"""Pages grow while their payloads are small, and shrink when they are large."""

SAMPLES = 10
MOST_VALUES = 200
"""Different values that are remembered of a clause that alone held events back."""

STARTED = frozenset({"fired", "gathered", "held"})
DECIDED = frozenset({"filtered", "error"})
DECLINED = {"filtered": "false", "error": "error"}


Key = bytes | Screened
"""Events with equal keys are decided alike."""


class Decided(msgspec.Struct, frozen=True):
    """The events of a page, the key of each, and what was decided by key with an event that has it."""

    events: Sequence[dict[str, Any]]
    keys: Sequence[Key]
    by_key: Mapping[Key, tuple[Screened, dict[str, Any]]]


class NearMisses(msgspec.Struct):
    """Events that one clause alone held back: how many, the newest of them, and the values that it saw."""

    count: int = 0
    newest: list[int] = []
    values: dict[Any, int] = {}
    examples: list[dict[str, Any]] = []


class Scan(msgspec.Struct, kw_only=True):
    """What was found. `tally` counts recorded outcomes beside what the conditions say.

    `unheard` counts events that the trigger did not decide about: recorded outcome, whether it listens to their type,
    whether its start line counts them, and what the changed condition says. `passed` are ids of events that one of the
    conditions lets through; `odd` those that passed and did not simply fire; `differing` those that the condition
    decides otherwise than recorded. `gained` and `lost` are the ids of some events that the change decides otherwise.
    """

    events: int = 0
    first: int = 0
    last: int = 0
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
) -> Scan:
    """Read everything of the span. Pages are read while the one before is counted."""
    found = Scan()
    async for page in _pages(store, rules.feed.name, name, since, until):
        if page.ids:
            _count(found, screen, page, await _decide(store, screen, page), keep_passed)
        # others want to be served too
        await asyncio.sleep(0)
    return found


async def _pages(
    store: Records, feed: str, trigger: str, since: datetime | None, until: datetime | None
) -> AsyncIterator[History]:
    size = FIRST_PAGE
    ahead = asyncio.ensure_future(store.history(feed, trigger, since=since, until=until, limit=size))
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
            following = store.history(feed, trigger, since=since, until=until, after=page.next, limit=size)
            ahead = asyncio.ensure_future(following)
            yield page
    finally:
        ahead.cancel()


async def _decide(store: Records, screen: Screen, page: History) -> Decided:
    if not screen.reads_more:
        events = screen.decode(page.data)
        keys = screen.keys(events)
        one_of_each = dict(zip(keys, events, strict=True))
        return Decided(events, keys, {key: (screen.decided(key, event), event) for key, event in one_of_each.items()})
    # what is beside the data of an event is not in the columns
    recorded = {event.id: event for event in await store.events_by_id(page.ids)}
    whole = [past_variables(recorded[id]) if id in recorded else {"event": {}} for id in page.ids]
    screened = [screen.screen(bind(each)) for each in whole]
    events = [each["event"] for each in whole]
    by_key: dict[Key, tuple[Screened, dict[str, Any]]] = {
        kind: (kind, event) for kind, event in zip(screened, events, strict=True)
    }
    return Decided(events, screened, by_key)


def _count(found: Scan, screen: Screen, page: History, decided: Decided, keep_passed: bool) -> None:
    """Count the page. Only what differs between its events is looked at one by one."""
    found.events += len(page.ids)
    found.first, found.last = found.first or page.recorded_at[0], page.recorded_at[-1]
    by_key = decided.by_key
    pairs = Counter(zip(page.outcomes, decided.keys, strict=True))
    if "" in page.outcomes or "before_start" in page.outcomes:
        _count_unheard(found, screen, page, decided)
    wanted: dict[tuple[str, Key], list[tuple[list[int], int]]] = {}
    for pair, number in pairs.items():
        outcome, screened = pair[0], by_key[pair[1]][0]
        if outcome not in ("", "before_start"):
            found.tally[outcome, screened] += number
            if differs(outcome, screened):
                found.differing_count += number
        lists = [(ids, most) for ids, most in _lists(found, outcome, screened, keep_passed) if len(ids) < most]
        if lists:
            wanted[pair] = lists
    if wanted:
        for id, pair in zip(page.ids, zip(page.outcomes, decided.keys, strict=True), strict=True):
            for ids, most in wanted.get(pair, ()):
                if len(ids) < most:
                    ids.append(id)
    if any(screened.failed for screened, _ in by_key.values()):
        _blame(found, screen, page, decided)


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
    return lists


def _count_unheard(found: Scan, screen: Screen, page: History, decided: Decided) -> None:
    columns = zip(page.outcomes, page.types, page.occurred_at, decided.keys, strict=True)
    for outcome, kind, occurred_at, key in columns:
        if outcome in ("", "before_start"):
            changed = decided.by_key[key][0].changed
            found.unheard[outcome, screen.listens(kind), screen.begun(occurred_at), changed] += 1


def _blame(found: Scan, screen: Screen, page: History, decided: Decided) -> None:
    """Count for each clause the events that it, perhaps with others, held back, and look at those that it alone did."""
    keys: Sequence[Key] = decided.keys
    if screen.selects_types:
        keys = [key for key, kind in zip(keys, page.types, strict=True) if screen.listens(kind)]
    alone: dict[Key, int] = {}
    for key, number in Counter(keys).items():
        screened, event = decided.by_key[key]
        for at in screened.failed:
            found.blamed[at] += number
        if len(screened.failed) == 1:
            alone[key] = screened.failed[0]
            misses = found.near.setdefault(alone[key], NearMisses(newest=[], values={}, examples=[]))
            _near(misses, screen, alone[key], event, number)
    left = dict.fromkeys(alone.values(), SAMPLES)
    for id, key in zip(reversed(page.ids), reversed(decided.keys), strict=True):
        if not left:
            break
        at = alone.get(key, -1)
        if at in left:
            found.near[at].newest.append(id)
            left[at] -= 1
            if not left[at]:
                del left[at]
    for misses in found.near.values():
        misses.newest = sorted(misses.newest, reverse=True)[:SAMPLES]


def _near(misses: NearMisses, screen: Screen, at: int, event: dict[str, Any], number: int) -> None:
    misses.count += number
    value = value_of(screen.clauses[at], {"event": event})
    marked = value if type(value) in (str, int, float, bool) else None if value is not MISSING else MISSING
    # to Python alone true is 1
    key = (type(marked).__name__, marked)
    if key in misses.values:
        misses.values[key] += number
    elif len(misses.values) < MOST_VALUES:
        misses.values[key] = number
        misses.examples.append(event)
