"""A store full of one trigger's history, and its backtest, in a process of its own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec

from bench.engine import NOTHING, answer, definitions
from harken.backends.sqlite import SqliteStore
from harken.backends.verdicts import encode_verdicts
from harken.clock import SystemClock
from harken.config.loaded import Loaded
from harken.config.settings import Settings
from harken.event import Event, Verdict
from harken.feed import Feed, Trigger, TriggerState
from harken.match import Read, Rule, Rules, Sighting, match
from harken.operate.backtest import backtest
from harken.operate.context import Context
from harken.schedule import Every
from harken.timings import Timings

__all__ = ["History", "Tested", "take"]

FEED = Feed(name="incidents", kind="bench", integration="bench", schedule=Every(seconds=3600))
CONDITION = 'event.status == "open" && event.priority <= 2 && event.service.name.startsWith("svc1")'
TRIGGER = Trigger(
    name="oncall", feed=FEED.name, workflow=NOTHING.name, workflow_rev=NOTHING.rev, condition=CONDITION, flood_limit=0
)
CHANGED = CONDITION.replace("<= 2", "<= 3")
INSERT = """INSERT INTO events (id, feed, kid, key, subject, type, occurred_at, recorded_at, verdicts, data)
VALUES (?, (SELECT id FROM feeds WHERE name='incidents'), ?, ?, ?, 'bench.item', ?, ?, ?, ?)"""

BARE = "SELECT id, type, occurred_at, recorded_at, data, verdicts FROM events ORDER BY id"


class History(msgspec.Struct, frozen=True, kw_only=True):
    events: int
    directory: str


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds by the clock and of the processor, with the rules as they are and with a changed condition.

    `bare`: seconds of the processor for reading the same rows with one statement, and nothing else.
    """

    seconds: float
    cpu: float
    changed: float
    bare: float
    checked: int
    differing: int


async def take(asked: History) -> Tested:
    path = Path(asked.directory) / "backtest.db"
    clock = SystemClock()
    store = SqliteStore.at(path, clock)
    opened = await store.open(msgspec.structs.replace(definitions([FEED]), triggers=[TRIGGER]))
    await store.close()
    fill(path, asked.events, opened.triggers[TRIGGER.name])
    store = SqliteStore.at(path, clock)
    loaded = Loaded(
        directory=path.parent,
        settings=Settings(),
        store=str(path),
        feeds=(FEED,),
        triggers=(TRIGGER,),
        workflows={NOTHING.name: NOTHING},
    )
    context = Context(store, None, loaded, clock, Timings())
    began, used = time.perf_counter(), time.process_time()
    plain = await backtest(context, name=TRIGGER.name)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    began = time.perf_counter()
    await backtest(context, name=TRIGGER.name, condition=CHANGED)
    changed = time.perf_counter() - began
    await store.close()
    return Tested(
        seconds=seconds,
        cpu=cpu,
        changed=changed,
        bare=bare_scan(path),
        checked=plain["checked"],
        differing=plain["not_reproduced"],
    )


def bare_scan(path: Path) -> float:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        used = time.process_time()
        for _ in connection.execute(BARE):
            pass
        return time.process_time() - used


def fill(path: Path, events: int, state: TriggerState) -> None:
    """Write events with the verdicts that matching gives them."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA synchronous=OFF; PRAGMA cache_size=-200000")
        with connection:
            connection.executemany(INSERT, rows(events, state))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def rows(events: int, state: TriggerState) -> Iterator[tuple[Any, ...]]:
    now = state.start_line
    rules = Rules(0, FEED, (Rule(TRIGGER, state),))
    kinds = itertools.product(("open", "closed", "new"), range(1, 6), range(40))
    decided: dict[tuple[str, int, int], bytes] = {}
    at = round(now.timestamp() * 1e6)
    for number, kind in zip(range(events), itertools.cycle(list(kinds)), strict=False):
        status, priority, service = kind
        data = {
            "id": number,
            "title": f"Incident {number} of the shop",
            "status": status,
            "priority": priority,
            "service": {"name": f"svc{service}", "team": "core"},
            "labels": ["a", "b"],
            "body": "It is slow. " * 6,
        }
        name = f"INC-{number}"
        if kind not in decided:
            event = Event(subject=name, type="bench.item", data=data, key=name, occurred_at=now)
            [entry] = match([Sighting(event, name, 0, 1)], rules, Read(now=now))
            [decision] = entry.decisions
            fired = Verdict(trigger=TRIGGER.name, outcome="fired", run_id="0" * 32)
            decided[kind] = encode_verdicts([decision if isinstance(decision, Verdict) else fired])
        key = name.encode()
        yield number + 1, key, key, key, at, at + number, decided[kind], msgspec.json.encode(data)


if __name__ == "__main__":
    answer(History, take)
