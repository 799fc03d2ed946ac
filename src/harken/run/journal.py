"""What a run has written and has yet to write.

A record is written before the next step with an effect begins, together with the events it caused; what is left at the
end rides in the settlement. Records of pure steps wait for company, so a run of pure steps costs no write of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from harken.clock import Clock
from harken.event import Event
from harken.run.environment import as_it_is
from harken.run.retry import patiently
from harken.runs import Claimed, Park, StepRecord
from harken.store import Commit, NewRun, Records, Runs, Stale

__all__ = ["InternalFeed", "Journal", "Matching", "RunStore", "Unwritten", "journal", "park"]

Matching: TypeAlias = Callable[[Sequence[Event]], Commit | None]
"""Match events for the internal feed at its rules as known here; None when nobody would ever see them."""

LEARN_PAUSE, LONGEST_LEARN_PAUSE = 0.01, 1.0


def _always(type: str) -> bool:
    return True


class InternalFeed:
    """The way into the internal feed: match, and learn the rules anew when the store says that they moved on."""

    def __init__(
        self,
        match: Matching,
        learn: Callable[[], Awaitable[object]] | None,
        clock: Clock,
        listens: Callable[[str], bool] | None = None,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        self.match = match
        self.listens = listens or _always
        self.on_started = on_started
        self._learn = learn
        self._clock = clock
        self._pause = 0.0

    async def relearn(self) -> None:
        """Return when it is worth matching again; slower and slower while the rules do not settle."""
        await self._clock.sleep(self._pause)
        self._pause = min(max(self._pause * 2, LEARN_PAUSE), LONGEST_LEARN_PAUSE)
        if self._learn is not None:
            await patiently(self._learn, self._clock)

    def settled(self) -> None:
        self._pause = 0.0


class RunStore(Runs, Records, Protocol):
    """The part of the store that runs need."""


class Unwritten:
    """What a ledger had not written when its run ended, parked or was stopped."""

    __slots__ = ("events", "records")

    def __init__(self, records: list[StepRecord], events: list[Event]) -> None:
        self.records = records
        self.events = events


class Journal:
    """The journal of one run in flight. `done` has the latest record of each path, also those of earlier tries."""

    def __init__(
        self,
        claimed: Claimed,
        store: RunStore,
        clock: Clock,
        internal: InternalFeed,
        discreet: Callable[[Any], Any] = as_it_is,
    ) -> None:
        self.done: dict[str, StepRecord] = {record.path: record for record in claimed.journal}
        self._claimed = claimed
        self._store = store
        self._clock = clock
        self._internal = internal
        self._discreet = discreet
        self._records: list[StepRecord] = []
        self._events: list[Event] = []
        self._urgent = False
        self._turn: asyncio.Lock | None = None

    def note(self, record: StepRecord, *, pure: bool, caused: Sequence[Event] = ()) -> StepRecord:
        """Keep a record for the next write. Returns it as it is kept, which is what later tries will see of it."""
        record = _without_tokens(record, self._discreet)
        self.done[record.path] = record
        self._records.append(record)
        self._events.extend(msgspec.structs.replace(event, data=self._discreet(event.data)) for event in caused)
        self._urgent = self._urgent or not pure
        return record

    async def ready_for(self, *, pure: bool) -> None:
        """Return once everything is written that must be before a step of this sort begins."""
        if self._urgent or not pure:
            await self.flush()

    async def flush(self) -> None:
        # a record that another branch is writing is not safe before that write returns
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            if self._records or self._events:
                await self._write_all()

    async def _write_all(self) -> None:
        rest = self.rest()
        try:
            await self.write(rest.records, rest.events)
        except BaseException:
            # whoever stops the run writes them; twice is harmless, not at all is not
            self._records[:0], self._events[:0], self._urgent = rest.records, rest.events, True
            raise

    async def write(
        self, records: Sequence[StepRecord], events: Sequence[Event] = (), start: Sequence[NewRun] = ()
    ) -> None:
        """Journal at once; raises LeaseLost when the run is no longer ours."""
        await journal(self._store, self._clock, self._claimed, self._internal, records, events, start)
        self.done.update((record.path, record) for record in records)

    def rest(self) -> Unwritten:
        """Hand over what is not written."""
        rest = Unwritten(self._records, self._events)
        self._records, self._events, self._urgent = [], [], False
        return rest


def _without_tokens(record: StepRecord, discreet: Callable[[Any], Any]) -> StepRecord:
    if discreet is as_it_is:
        return record
    output, warnings = discreet(record.output), tuple(discreet(record.warnings))
    return msgspec.structs.replace(record, output=output, error=discreet(record.error), warnings=warnings)


async def park(
    store: RunStore, clock: Clock, claimed: Claimed, internal: InternalFeed, aside: Park, rest: Unwritten
) -> None:
    """Write what is left and set the run aside."""
    # an emitted event goes with its record, and parking takes no events
    split = len(rest.records) if rest.events else max(len(rest.records) - 1, 0)
    if split:
        await journal(store, clock, claimed, internal, rest.records[:split], rest.events)
    last = rest.records[split] if split < len(rest.records) else None
    await patiently(lambda: store.park(claimed.id, claimed.token, aside, last), clock)


async def journal(
    store: RunStore,
    clock: Clock,
    claimed: Claimed,
    internal: InternalFeed,
    records: Sequence[StepRecord],
    events: Sequence[Event] = (),
    start: Sequence[NewRun] = (),
) -> None:
    """Append to a run's journal; events are matched again for as long as the internal rules move on meanwhile."""

    async def append() -> Stale | None:
        commit = internal.match(events) if events else None
        caused = () if commit is None else (commit,)
        return await store.journal(claimed.id, claimed.token, records, caused, start)

    while await patiently(append, clock) is not None:
        await internal.relearn()
    internal.settled()
    if events or start:
        internal.on_started()
