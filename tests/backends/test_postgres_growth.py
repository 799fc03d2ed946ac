"""It grows without stalling: retention and `explain` find their rows by an index, whatever the statistics say."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from harken.backends.postgres import PostgresStore
from harken.backends.postgres.connection import PLANNER_SETTINGS
from harken.backends.postgres.transaction_with_row_cache import Transaction
from harken.operate.context import Context
from harken.operate.explain import explain
from harken.testing import HandClock
from harken.testing.store.subject_index import index_all
from harken.testing.store.upkeep import DAY, HOOK, prune_all
from harken.testing.store.world import INBOX, INTERNAL_FEED, Given, definitions, feed
from harken.timings import Timings
from tests.backends.postgres_database import server, session, url

__all__ = ["server", "session", "url"]

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("postgres-growth")

GROWING = {"memory", "events", "runs", "run_events", "journal", "ticks", "buried", "objects"}
LISTING = feed("listing", identity="once")


@pytest.fixture
async def given(url: str) -> AsyncIterator[Given]:
    clock = HandClock()
    store = PostgresStore.at(url, clock)
    opened = await store.open(definitions(feeds=(INBOX, INTERNAL_FEED, LISTING, HOOK)))
    lease = await store.lease(0, "a", 3600)
    assert lease is not None
    yield Given(store, clock, opened, lease)
    await store.close()


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Any, ...]]:
    """The statements that transactions execute, with the bindings of the last time."""
    found: dict[str, tuple[Any, ...]] = {}

    def noting(method: str) -> None:
        original = getattr(Transaction, method)

        async def noted(self: Transaction, sql: str, *bindings: Any) -> Any:
            found[sql] = bindings
            return await original(self, sql, *bindings)

        monkeypatch.setattr(Transaction, method, noted)

    for method in ("rows", "row", "value", "do"):
        noting(method)
    return found


async def unbounded(session: Any, statements: dict[str, tuple[Any, ...]]) -> list[tuple[str, str]]:
    """Statements whose plan reads a growing table without a condition on an index, and the table."""
    for name, value in {**PLANNER_SETTINGS, "plan_cache_mode": "force_generic_plan"}.items():
        await session.execute(f"SET {name} = {value}")
    found = []
    for sql, bindings in statements.items():
        if sql.split()[0] in ("SELECT", "DELETE", "UPDATE", "WITH"):
            [(plan,)] = await session.fetch(f"EXPLAIN (FORMAT JSON) {sql}", *bindings)
            found += [(sql, table) for table in _whole_tables(json.loads(plan)[0]["Plan"])]
    return found


def _whole_tables(node: dict[str, Any]) -> Iterator[str]:
    table = node.get("Relation Name")
    if table in GROWING and "Scan" in node["Node Type"] and not {"Index Cond", "TID Cond"} & node.keys():
        yield table
    for child in node.get("Plans", ()):
        yield from _whole_tables(child)


async def some_rows(given: Given) -> None:
    for subject in ("a", "b"):
        await given.settle(await given.running(subject))
    revision = given.opened.feeds["hook"].revision
    await given.commit(given.entry("pushed"), feed="hook", revision=revision, token=None)


async def test_retention_reads_no_whole_table(
    given: Given, session: Any, statements: dict[str, tuple[Any, ...]]
) -> None:
    await some_rows(given)
    given.clock.advance(40 * DAY)
    await given.renew()
    statements.clear()
    await given.store.forget("inbox", given.lease.token, ["a"], given.now(-DAY))
    await given.store.forget("listing", given.lease.token, ["a"], given.now(-DAY))
    assert await prune_all(given.store) > 0
    assert await unbounded(session, statements) == []
    aged = [(sql, bindings) for sql, bindings in statements.items() if "last_seen<" in sql]
    assert len(aged) == 4
    for sql, bindings in aged:
        plan = [row[0] for row in await session.fetch(f"EXPLAIN {sql}", *bindings)]
        assert any("Index Cond" in step and "last_seen <" in step for step in plan), plan


@pytest.mark.parametrize("key", ["a:None", "nothing of this name", "#1"])
async def test_explain_reads_no_whole_table(
    given: Given, session: Any, statements: dict[str, tuple[Any, ...]], key: str
) -> None:
    await some_rows(given)
    statements.clear()
    await explain(Context(given.store, None, None, given.clock, Timings()), name="mail", key=key)
    await given.store.runs(event_id=1)
    assert await unbounded(session, statements) == []


async def test_events_about_a_name_are_found_by_indexes(
    given: Given, session: Any, statements: dict[str, tuple[Any, ...]]
) -> None:
    for page in range(6):
        await given.commit(*(given.entry(f"s{page}-{n}", state="open") for n in range(200)))
    await session.execute("ANALYZE")
    statements.clear()
    assert await index_all(given.store) == 1000
    assert [event.key for event in await given.store.events_about("inbox", "s2-7")] == ["s2-7:open"]
    assert await given.store.events_about("inbox", "nobody") == []
    assert await unbounded(session, statements) == []


async def test_runs_that_moved_are_found_by_an_index_that_has_only_them(
    given: Given, session: Any, statements: dict[str, tuple[Any, ...]]
) -> None:
    await some_rows(given)
    await given.fires("watched", watched=True)
    statements.clear()
    [moved] = await given.store.moved_runs()
    assert await given.store.moved_runs({moved.id: moved.seen}) == []
    assert await unbounded(session, statements) == []
    [(sql, bindings)] = [(sql, bindings) for sql, bindings in statements.items() if sql.startswith("SELECT r.*")]
    plan = "\n".join(row[0] for row in await session.fetch(f"EXPLAIN {sql}", *bindings))
    assert "runs_moved" in plan


async def test_only_the_number_of_all_runs_is_counted_row_by_row(
    given: Given, session: Any, statements: dict[str, tuple[Any, ...]]
) -> None:
    await some_rows(given)
    statements.clear()
    assert await given.store.counts() == {"runs_done": 2, "events": 3, "refused_events": 0}
    counting = next(sql for sql in statements if "runs" in sql)
    for name, value in PLANNER_SETTINGS.items():
        await session.execute(f"SET {name} = {value}")
    plan = "\n".join(row[0] for row in await session.fetch(f"EXPLAIN {counting}"))
    used = set(re.findall(r"using (\w+) on runs", plan))
    assert "Seq Scan" not in plan
    assert {"runs_ready", "runs_timed", "runs_claimed", "runs_blocked", "runs_ended"} <= used


async def test_a_key_is_looked_for_among_its_namesakes_and_not_among_all_events_of_the_feed(
    given: Given, session: Any, statements: dict[str, tuple[Any, ...]]
) -> None:
    await some_rows(given)
    statements.clear()
    await given.store.events(feed="inbox", key="a:None")
    [(sql, bindings)] = [(sql, bindings) for sql, bindings in statements.items() if "e.kid" in sql]
    plan = "\n".join(row[0] for row in await session.fetch(f"EXPLAIN {sql}", *bindings))
    assert "events_by_feed" not in plan
