"""What webhooks tell is counted over all replicas: one of them polls, and any of them may receive a webhook."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from harken.backends.sqlite import SqliteStore
from harken.event import Event
from harken.store.document_kinds import DELIVERIES
from harken.testing import HandClock
from harken.tickets.webhook_loss import MOST_SHARED, DeliveryCounter, stored_deliveries


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def store(clock: HandClock, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore.at(tmp_path / "harken.db", clock, inline=True)
    yield opened
    await opened.close()


class Replicas:
    """One that polls, and one that receives webhooks."""

    def __init__(self, clock: HandClock, store: SqliteStore) -> None:
        self.clock = clock
        self.store = store
        self.poller, self.receiver = (DeliveryCounter(clock, store, "acme") for _ in range(2))

    def ready(self, ticket: str = "7") -> Event:
        """The ticket becomes ready now."""
        return Event(subject=ticket, type="ticket.ready", state="ready:fix", occurred_at=self.clock.now(), data={})

    async def pass_time(self, seconds: float) -> None:
        """Let time pass in which each does its housekeeping."""
        for _ in range(round(seconds / 5)):
            self.clock.advance(5)
            await self.poller.save()
            await self.receiver.save()

    async def cycle(self, *events: Event) -> None:
        await self.poller.load()
        self.poller.begin_cycle()
        for event in events:
            self.poller.count_poll(event, None)

    async def shares(self) -> list[tuple[int, int]]:
        """What each of them, and the store, believe to be delivered and lost."""
        await self.pass_time(5)
        for one in (self.poller, self.receiver):
            await one.load()
        stored = (await stored_deliveries(self.store))["acme"]
        return [self.poller.counted.total, self.receiver.counted.total, stored.total]


@pytest.fixture
def replicas(clock: HandClock, store: SqliteStore) -> Replicas:
    return Replicas(clock, store)


async def test_what_one_replica_was_told_and_what_another_found_make_one_share(replicas: Replicas) -> None:
    for number in range(3):
        replicas.receiver.count_webhook(replicas.ready(str(number)), None)
    lost = replicas.ready("9")
    await replicas.pass_time(60)
    await replicas.cycle(lost)
    assert await replicas.shares() == [(3, 1)] * 3
    assert replicas.receiver.lossy


async def test_a_webhook_that_rang_at_another_replica_counts(replicas: Replicas) -> None:
    event = replicas.ready()
    replicas.receiver.note_webhook("7")
    await replicas.pass_time(60)
    await replicas.cycle(event)
    assert await replicas.shares() == [(1, 0)] * 3


@pytest.mark.parametrize(("webhook", "counted"), [(True, (1, 0)), (False, (0, 1))])
async def test_a_poll_that_is_quicker_than_the_webhook_waits_for_it(
    webhook: bool, counted: tuple[int, int], replicas: Replicas
) -> None:
    await replicas.cycle(replicas.ready())
    await replicas.pass_time(20)
    replicas.receiver.note_webhook("7" if webhook else "8")
    await replicas.cycle()
    assert (replicas.poller.counted.total, replicas.receiver.counted.total) == ((0, 0), (0, 0))
    await replicas.pass_time(30)
    await replicas.cycle()
    assert await replicas.shares() == [counted] * 3


async def test_several_lists_of_a_cycle_show_a_change_and_it_is_counted_once(replicas: Replicas) -> None:
    event = replicas.ready()
    await replicas.pass_time(60)
    await replicas.cycle(event, event)
    assert replicas.poller.counted.total == (0, 1)


async def test_what_happened_before_the_process_began_says_nothing(replicas: Replicas, clock: HandClock) -> None:
    old = Event(
        subject="7", type="ticket.ready", state="ready:fix", occurred_at=clock.now() - timedelta(minutes=5), data={}
    )
    await replicas.cycle(old)
    assert replicas.poller.counted.total == (0, 0)


async def test_counts_of_replicas_that_write_at_the_same_time_add_up(replicas: Replicas, store: SqliteStore) -> None:
    replicas.receiver.count_webhook(replicas.ready(), None)
    replicas.poller.count_webhook(replicas.ready("8"), None)
    put, interrupted = store.put, list[bool]()

    async def put_second(*given: object, **options: object) -> object:
        if not interrupted:
            interrupted.append(True)
            await replicas.poller.save()
        return await put(*given, **options)  # type: ignore[arg-type]

    store.put = put_second  # type: ignore[method-assign,assignment]
    await replicas.receiver.save()
    assert (await stored_deliveries(store))["acme"].total == (2, 0)


async def test_nothing_is_written_while_nothing_happens(replicas: Replicas, store: SqliteStore) -> None:
    await replicas.pass_time(3600)
    assert await store.get(DELIVERIES, "acme") is None
    replicas.receiver.note_webhook("7")
    await replicas.pass_time(3600)
    document = await store.get(DELIVERIES, "acme")
    assert document is not None
    assert document.revision == 1


async def test_what_replicas_share_of_many_webhooks_is_small(replicas: Replicas, store: SqliteStore) -> None:
    for number in range(2 * MOST_SHARED):
        replicas.receiver.note_webhook(str(number))
    await replicas.pass_time(5)
    document = await store.get(DELIVERIES, "acme")
    assert document is not None
    assert len(document.value["webhooks"]) == MOST_SHARED
    assert str(2 * MOST_SHARED - 1) in document.value["webhooks"]
