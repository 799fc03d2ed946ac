"""The contract of lists that are paged through while others add and delete: none twice, no untouched one missed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Any, ClassVar

import msgspec
import pytest

from harken.errors import Malformed
from harken.operate.operator import Operator
from harken.runs import Dead
from harken.store import Part, Settlement
from harken.testing.store.world import Given, StoreWorld, definitions, trigger

__all__ = ["PagingContract"]

AT_ONCE = 100


async def _pages(operator: Operator, operation: str, limit: int) -> AsyncIterator[list[dict[str, Any]]]:
    cursor = ""
    while True:
        page = await operator.call(operation, limit=limit, cursor=cursor)
        yield page["items"]
        if not page["next"]:
            return
        cursor = page["next"]


class PagingContract(StoreWorld):
    many_rows: ClassVar[int] = 400
    """So many rows are paged through; about a seventh as many are added and deleted meanwhile."""

    async def test_pages_of_events_while_others_come_and_go(self, given: Given) -> None:
        random, gone, added = Random(7), set[int](), 0
        for begin in range(0, self.many_rows, AT_ONCE):
            await given.commit(*(given.entry(f"s{begin + n}") for n in range(AT_ONCE)))
        there = [event.id async for event in _events(given)]
        operator = Operator(given.store, None, None, given.clock)
        size = min(500, self.many_rows // 10)
        each = size * 60 // 400 + 1
        seen: list[int] = []
        async for page in _pages(operator, "events.list", size):
            seen += [row["id"] for row in page]
            # before and behind the page, and its own last row, which its cursor names
            leaving = {*random.sample(there, min(each, len(there))), seen[-1]} - gone
            await given.store.erase(sorted(leaving), [], lambda key, payload: False)
            gone |= leaving
            await given.commit(*(given.entry(f"new{added + n}") for n in range(each)))
            added += each
        assert len(seen) == len(set(seen))
        assert set(there) - gone <= set(seen) <= set(there)
        assert seen == sorted(seen, reverse=True)

    async def test_pages_of_runs_and_of_the_audit_log_while_others_come(self, given: Given) -> None:
        runs = await given.fires(*(f"s{n}" for n in range(60)))
        for n in range(60):
            await given.store.audit("people", "thing.done", f"thing{n}", {})
        operator = Operator(given.store, None, None, given.clock)
        seen: list[str] = []
        async for page in _pages(operator, "runs.list", 7):
            seen += [row["id"] for row in page]
            await given.fires(f"later{len(seen)}")
        assert sorted(seen) == sorted(runs)
        told: list[str] = []
        async for page in _pages(operator, "audit.list", 7):
            told += [row["what"] for row in page]
            await given.store.audit("people", "thing.done", "later", {})
        assert told == [f"thing{n}" for n in reversed(range(60))]

    async def test_pages_of_triggers_while_others_come_and_go(self, given: Given) -> None:
        random, names = Random(5), {f"t{number:06}" for number in range(min(2_000, self.many_rows // 2))}
        await given.open(definitions(triggers=[trigger(name) for name in sorted(names)], generation="many"))
        untouched, seen = set(names), list[str]()
        operator = Operator(given.store, None, None, given.clock)
        async for page in _pages(operator, "triggers.list", max(7, len(names) // 20)):
            seen += [row["name"] for row in page]
            # on both sides of the page, and its own last row, which its cursor names
            leaving = {*random.sample(sorted(names), 5), seen[-1]} & names
            coming = {f"t{random.randrange(1_000_000):06}-{len(seen)}" for _ in range(5)}
            changed = Part(feeds=frozenset(), triggers=frozenset(leaving | coming))
            made = definitions(feeds=(), triggers=[trigger(name) for name in sorted(coming)], generation="many")
            await given.store.open(msgspec.structs.replace(made, only=changed))
            names = names - leaving | coming
            untouched -= leaving
        assert len(seen) == len(set(seen))
        assert untouched <= set(seen)
        assert seen == sorted(seen)

    async def test_pages_of_dead_letters_have_runs_and_refused_events_each_once(self, given: Given) -> None:
        runs = await given.fires(*(f"s{n}" for n in range(5)))
        claims = await given.store.claim("w", 10, 60.0)
        await given.store.settle([Settlement(id=one.id, token=one.token, outcome=Dead(error="x")) for one in claims])
        for n in range(7):
            await given.store.dead_letter("inbox", given.entry(f"refused{n}").event, "a number too large")
        operator = Operator(given.store, None, None, given.clock)
        whole = (await operator.call("dead.list", limit=50))["items"]
        for limit in (1, 3, 5, 12):
            seen = [row async for page in _pages(operator, "dead.list", limit) for row in page]
            assert seen == whole, limit
        assert sorted(row["id"] for row in whole if row["what"] == "run") == sorted(runs)
        assert len({row["id"] for row in whole}) == 12

    async def test_a_cursor_of_another_list_or_of_other_filters_is_refused(self, given: Given) -> None:
        await given.fires("a", "b", "c")
        for n in range(3):
            await given.store.audit("people", "thing.done", f"thing{n}", {})
        operator = Operator(given.store, None, None, given.clock)
        lists = ("events.list", "runs.list", "audit.list", "triggers.list")
        cursors = {name: (await operator.call(name, limit=1))["next"] for name in lists}
        for name in lists:
            assert (await operator.call(name, limit=1, cursor=cursors[name]))["items"], name
            for other in (*lists, "dead.list", "feeds.list"):
                if other != name:
                    with pytest.raises(Malformed, match=f"of another list than {other}"):
                        await operator.call(other, cursor=cursors[name])
        for name, filters in (("events.list", {"key": "a:None"}), ("runs.list", {"status": "ready"})):
            with pytest.raises(Malformed, match=f"of {name} with other filters"):
                await operator.call(name, cursor=cursors[name], **filters)


async def _events(given: Given) -> AsyncIterator[Any]:
    before: int | None = None
    while True:
        page = await given.store.events(limit=500, before=before)
        for event in page.items:
            yield event
        if page.next is None:
            return
        before = page.next
