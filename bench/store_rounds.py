"""Events through a store on a server and through bare statements, in turn, so that noise hits all alike."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from bench.figures import Figure, Say, at_least, middle
from bench.measurement_sizes import Sizes
from bench.processes import report
from harken.clock import SystemClock
from harken.event import Event
from harken.runs import Finished
from harken.store import Commit, Committed, Entry, Intent, Lease, Opened, Settlement, Store, Tick
from harken.testing.store.world import definitions

__all__ = ["BARE", "SHORTER", "WAYS", "Asked", "Meter", "Ours", "Spent", "Way", "measured", "ours", "rounds_of", "told"]

BARE = "bare"
SHORTER = "bare, settled as it is dequeued"
CLAIMED = "commit, claim, settle"
HANDED = "commit that hands over, settle"
WAYS = (BARE, CLAIMED, HANDED)
BODY = b'{"title": "something happened", "text": "' + b"a" * 300 + b'"}'
WARM = 5


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Each way has a database of its own. A round is so many batches of so many events."""

    urls: Mapping[str, str]
    batch: int
    batches: int
    rounds: int


class Spent(msgspec.Struct, kw_only=True):
    """What the batches of one round took: seconds of waiting, of our CPU and of the server's; and bytes it keeps."""

    seconds: float = 0.0
    cpu: float = 0.0
    server: float = 0.0
    bytes: float = 0.0


class Meter(msgspec.Struct, frozen=True, kw_only=True):
    """The server's CPU seconds and bytes up to now, as far as they belong to one way."""

    server: float
    bytes: float


class Way(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    batch: Callable[[list[Event]], Awaitable[None]]
    meter: Callable[[], Awaitable[Meter]]


Round = dict[str, Spent]


def told(work: Callable[[Asked], Any]) -> None:
    """Be the child that measures: read what is asked, and say the rounds."""
    from bench.engine import answer

    answer(Asked, work)


async def rounds_of(ways: Sequence[Way], asked: Asked) -> list[Round]:
    for number in range(WARM):
        for way in ways:
            await way.batch(_events(asked.batch, f"warm-{number}"))
    return [await _round(ways, asked, number) for number in range(asked.rounds)]


async def _round(ways: Sequence[Way], asked: Asked, number: int) -> Round:
    spent = {way.name: Spent() for way in ways}
    for batch in range(asked.batches):
        for way in ways:
            await _measured(way, _events(asked.batch, f"{number}-{batch}"), spent[way.name])
    return spent


async def _measured(way: Way, shown: list[Event], spent: Spent) -> None:
    before = await way.meter()
    began, used = time.perf_counter(), time.process_time()
    await way.batch(shown)
    spent.seconds += time.perf_counter() - began
    spent.cpu += time.process_time() - used
    after = await way.meter()
    spent.server += after.server - before.server
    spent.bytes += after.bytes - before.bytes


def _events(count: int, tag: str) -> list[Event]:
    now = SystemClock().now()
    return [
        Event(subject=f"{tag}-{n}", key=f"{tag}-{n}", type="mail", data={}, raw=BODY, occurred_at=now)
        for n in range(count)
    ]


class Ours:
    """A page of new events is committed with its runs; they are claimed, or handed over by the commit, and settled."""

    def __init__(self, store: Store, opened: Opened, lease: Lease, *, hand: bool) -> None:
        self.store, self.opened, self.lease, self.hand = store, opened, lease, hand

    async def batch(self, shown: list[Event]) -> None:
        answer = await self.store.commit(self._page(shown))
        assert isinstance(answer, Committed)
        claimed = answer.claimed if self.hand else await self.store.claim("w", len(shown), 60)
        ends = [Settlement(id=one.id, token=one.token, outcome=Finished(), trigger="mail") for one in claimed]
        if list(await self.store.settle(ends)) != ["settled"] * len(shown):
            raise RuntimeError("not every run was settled")

    def _page(self, shown: list[Event]) -> Commit:
        trigger, now = self.opened.triggers["mail"], SystemClock().now()
        fields: dict[str, Any] = {"trigger": trigger.uid, "epoch": trigger.epoch, "workflow_rev": "r1", "due_at": now}
        entries = [
            Entry(event=one, memory_id=one.subject, decisions=(Intent(run_key=one.key, **fields),)) for one in shown
        ]
        return Commit(
            feed="inbox",
            revision=self.opened.feeds["inbox"].revision,
            token=self.lease.token,
            entries=entries,
            cursor=[shown[-1].key],
            next_due=now,
            tick=Tick(result="events", started_at=now, new=len(shown)),
            done=True,
            claim=len(shown) if self.hand else 0,
            holder="w",
        )


async def ours(stores: Mapping[str, Store], meters: Mapping[str, Callable[[], Awaitable[Meter]]]) -> list[Way]:
    """Both ways through a store, each in its own."""
    ways = []
    for name, store in stores.items():
        opened = await store.open(definitions())
        lease = await store.lease(0, "a", 3600)
        assert lease is not None
        way = Ours(store, opened, lease, hand=name == HANDED)
        ways.append(Way(name=name, batch=way.batch, meter=meters[name]))
    return ways


def measured(
    what: str, flow: str, urls: Mapping[str, str], goals: Mapping[str, float], sizes: Sizes, say: Say
) -> list[Figure]:
    """Have a child play the flow, with the database of each way at one of the addresses. `goals` are ratios, by way."""
    asked = Asked(urls=urls, batch=sizes.store_batch, batches=sizes.store_batches, rounds=sizes.rounds)
    rounds = msgspec.convert(report(flow, msgspec.to_builtins(asked)), list[Round])
    return _figures(what, rounds, asked, goals, say)


def _figures(what: str, rounds: Sequence[Round], asked: Asked, goals: Mapping[str, float], say: Say) -> list[Figure]:
    events = asked.batch * asked.batches
    for number, taken in enumerate(rounds):
        rates = ", ".join(f"{name} {events / one.seconds:,.0f}/s" for name, one in taken.items())
        say(f"round {number + 1}: {rates}")
    shorter = [_speed(what, CLAIMED, rounds, events, beside=SHORTER)] if SHORTER in asked.urls else []
    return [
        at_least(_speed(what, CLAIMED, rounds, events), goals[CLAIMED], of="ratio"),
        *shorter,
        at_least(_speed(what, HANDED, rounds, events), goals[HANDED], of="ratio"),
        _per_event(f"{what}: CPU of the client, per event", rounds, events, lambda one: one.cpu * 1000, "ms"),
        _per_event(f"{what}: CPU of the server, per event", rounds, events, lambda one: one.server * 1000, "ms"),
        _per_event(f"{what}: bytes per event", rounds, events, lambda one: one.bytes, "B"),
    ]


def _speed(what: str, way: str, rounds: Sequence[Round], events: int, *, beside: str = BARE) -> Figure:
    return Figure(
        measure=f"{what}: {way}",
        value=events / middle([one[way].seconds for one in rounds]),
        unit="/s",
        limit=events / middle([one[beside].seconds for one in rounds]),
        limit_is=beside,
        ratio=middle([one[beside].seconds / one[way].seconds for one in rounds]),
    )


def _per_event(name: str, rounds: Sequence[Round], events: int, used: Callable[[Spent], float], unit: str) -> Figure:
    found = {way: middle([used(one[way]) for one in rounds]) / events for way in (CLAIMED, BARE)}
    return Figure(
        measure=name, value=found[CLAIMED], unit=unit, limit=found[BARE], limit_is=BARE,
        # as a share of what is possible, like the speed: the limit's cost by ours
        ratio=found[BARE] / found[CLAIMED] if found[CLAIMED] else None,
    )  # fmt: skip
