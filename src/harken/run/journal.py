"""The journal of a run: which steps it has done, in the store and not yet there.

A step's record is written before the next step with an effect begins, together with the events that the step emitted.
Records that are left when the run ends are written with its settlement. Records of pure steps wait for the next write,
so a run of pure steps costs no write of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol, TypeAlias

import msgspec

from harken.circuit_breaker import doubling
from harken.clock import Clock
from harken.event import Event
from harken.run.retry import retry_store
from harken.run.services_given_to_steps import unchanged
from harken.runs import Claimed, Park, StepRecord
from harken.store import Commit, NewRun, Records, Runs, Stale

__all__ = ["InternalFeed", "Journal", "Matching", "RunStore", "Unwritten", "append_records", "bound_input", "park"]

Matching: TypeAlias = Callable[[Sequence[Event]], Commit | None]
"""Match events against the internal feed's rules as this process knows them; None when they would never be seen."""

INPUT_LIMIT = 8_000
INPUT_TEXT_LIMIT = 2_000
"""Characters of a step's input that its record keeps, in all and of each text in it."""

RULES_FIRST_PAUSE, RULES_LONGEST_PAUSE = 0.01, 1.0


class RunStore(Runs, Records, Protocol):
    """The part of the store that runs need."""


class Unwritten:
    """Records and events that were not in the store when their run ended, parked or was stopped."""

    __slots__ = ("events", "records")

    def __init__(self, records: list[StepRecord], events: list[Event]) -> None:
        self.records = records
        self.events = events


class Journal:
    """The journal of one run in flight. `latest` has the newest record of each path, also from earlier tries."""

    def __init__(
        self,
        claimed: Claimed,
        store: RunStore,
        clock: Clock,
        internal: InternalFeed,
        redact: Callable[[Any], Any] = unchanged,
    ) -> None:
        self.latest: dict[str, StepRecord] = {record.path: record for record in claimed.journal}
        self._claimed = claimed
        self._store = store
        self._clock = clock
        self._internal = internal
        self._redact = redact
        self._records: list[StepRecord] = []
        self._events: list[Event] = []
        self._has_effect = False
        self._writing: asyncio.Lock | None = None

    def add(self, record: StepRecord, *, pure: bool, caused: Sequence[Event] = ()) -> StepRecord:
        """Keep a record for the next write. Returns it redacted, as later tries will read it."""
        record = _prepare_record(record, self._redact)
        self.latest[record.path] = record
        self._records.append(record)
        self._events.extend(msgspec.structs.replace(event, data=self._redact(event.data)) for event in caused)
        self._has_effect = self._has_effect or not pure
        return record

    async def prepare_step(self, *, pure: bool) -> None:
        """Write what must be in the store before a step begins: everything, unless it and all kept records are pure."""
        if self._has_effect or not pure:
            await self._flush()

    async def flush_effects(self) -> None:
        """Write now if a kept record is of a step with an effect."""
        if self._has_effect:
            await self._flush()

    async def _flush(self) -> None:
        # a record that another branch is writing is not safe before that write returns
        if self._writing is None:
            self._writing = asyncio.Lock()
        async with self._writing:
            if self._records or self._events:
                await self._write_kept()

    async def _write_kept(self) -> None:
        unwritten = self.take_unwritten()
        try:
            await self.write(unwritten.records, unwritten.events)
        except BaseException:
            # keep them for the settlement: writing a record twice is harmless, losing it is not
            self._records[:0], self._events[:0], self._has_effect = unwritten.records, unwritten.events, True
            raise

    async def write(
        self, records: Sequence[StepRecord], events: Sequence[Event] = (), start: Sequence[NewRun] = ()
    ) -> None:
        """Write at once; raises LeaseLost when the run is no longer ours."""
        await append_records(self._store, self._clock, self._claimed, self._internal, records, events, start)
        self.latest.update((record.path, record) for record in records)

    def take_unwritten(self) -> Unwritten:
        """Hand over what is not in the store; the caller writes it."""
        unwritten = Unwritten(self._records, self._events)
        self._records, self._events, self._has_effect = [], [], False
        return unwritten


def _prepare_record(record: StepRecord, redact: Callable[[Any], Any]) -> StepRecord:
    if redact is unchanged:
        return record if record.input is None else msgspec.structs.replace(record, input=bound_input(record.input))
    # redacted before it is shortened: what is left of a secret that was cut could not be recognised
    given = None if record.input is None else bound_input(redact(_as_json(record.input)))
    output, warnings = redact(record.output), tuple(redact(record.warnings))
    return msgspec.structs.replace(record, input=given, output=output, error=redact(record.error), warnings=warnings)


def bound_input(value: Any) -> Any:
    """The value as JSON holds it, with long texts shortened; as one shortened text when it is long even so."""
    value = _as_json(value)
    if len(msgspec.json.encode(value)) <= INPUT_LIMIT:
        return value
    value = _shorten_texts(value)
    encoded = msgspec.json.encode(value)
    return value if len(encoded) <= INPUT_LIMIT else _shorten(encoded.decode(), INPUT_LIMIT)


def _as_json(value: Any) -> Any:
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))
    except (ValueError, TypeError, msgspec.MsgspecError):
        # text that is not Unicode, or keys that are no text: shown as Python writes it
        return ascii(value)


def _shorten_texts(value: Any) -> Any:
    if isinstance(value, str):
        return _shorten(value, INPUT_TEXT_LIMIT)
    if isinstance(value, dict):
        return {name: _shorten_texts(inner) for name, inner in value.items()}
    return [_shorten_texts(inner) for inner in value] if isinstance(value, list) else value


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


class InternalFeed:
    """How events that runs cause enter the internal feed: `match` them, and refresh its rules when they are stale.

    `listens` tells whether any trigger wants this type of event; `on_started` is called when runs may be ready.
    """

    def __init__(
        self,
        match: Matching,
        learn: Callable[[], Awaitable[object]] | None,
        clock: Clock,
        listens: Callable[[str], bool] | None = None,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        self.match = match
        self.listens = listens or (lambda type: True)
        self.on_started = on_started
        self._learn = learn
        self._clock = clock
        self._pauses = _rules_pauses()

    async def refresh_rules(self) -> None:
        """Fetch the rules after the store called them stale; the first time at once, then after longer pauses."""
        await self._clock.sleep(next(self._pauses))
        if self._learn is not None:
            await retry_store(self._learn, self._clock)

    def rules_accepted(self) -> None:
        """The store took what was matched: the next refresh starts without a pause."""
        self._pauses = _rules_pauses()


def _rules_pauses() -> Iterator[float]:
    return chain([0.0], doubling(RULES_FIRST_PAUSE, RULES_LONGEST_PAUSE))


async def append_records(
    store: RunStore,
    clock: Clock,
    claimed: Claimed,
    internal: InternalFeed,
    records: Sequence[StepRecord],
    events: Sequence[Event] = (),
    start: Sequence[NewRun] = (),
) -> None:
    """Append to a run's journal in the store. Events are matched again if the internal rules have changed."""

    async def append() -> Stale | None:
        commit = internal.match(events) if events else None
        caused = () if commit is None else (commit,)
        return await store.journal(claimed.id, claimed.token, records, caused, start)

    while await retry_store(append, clock) is not None:
        await internal.refresh_rules()
    internal.rules_accepted()
    if events or start:
        internal.on_started()


async def park(
    store: RunStore, clock: Clock, claimed: Claimed, internal: InternalFeed, parking: Park, unwritten: Unwritten
) -> None:
    """Park the run in the store. The last record is written with it, the others before."""
    # parking takes no events, and an emitted event is written with its record
    records = unwritten.records
    split = len(records) if unwritten.events else max(len(records) - 1, 0)
    if split:
        await append_records(store, clock, claimed, internal, records[:split], unwritten.events)
    last = records[split] if split < len(records) else None
    await retry_store(lambda: store.park(claimed.id, claimed.token, parking, last), clock)
