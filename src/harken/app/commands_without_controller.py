"""What commands use when no controller runs: the store and the files themselves."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from harken.app.application import refuse_blocking
from harken.app.controller import finding_lines, last_applied, load_start_lines, locate_in, preview_trigger
from harken.app.draft_read import DraftReads
from harken.app.fleet import notify_replicas
from harken.app.source_and_action_factory import Factory
from harken.app.store import KEY, open_store, rekey_store, scratch_store, without_password
from harken.app.stored_triggers import TriggerRows
from harken.clock import Clock, SystemClock
from harken.config.loaded import Account, Loaded
from harken.config.reload_plan import plan
from harken.config.settings import is_url
from harken.errors import HarkenError, NotFound, Refused
from harken.event import Event
from harken.ingest.feed_runtime_state import Late
from harken.ingest.refused_webhooks import Refusal
from harken.operate.activity_counts import Buckets
from harken.operate.engine_protocol import DraftEvents, DraftFeed, Preview
from harken.operate.load_and_check_configuration import credentials_of, load_directory
from harken.operate.operator import Operator
from harken.operate.trigger_activity_counts import Counts
from harken.outgoing_rate_limit import Level
from harken.services import registry
from harken.source import Announced, Cursor, Host, Lag, Located, Place, PositionedSource
from harken.store import Store
from harken.store.transfer_protocol_and_exclusive_access import refuse_marked
from harken.ticket import TicketTracker
from harken.tickets.recovery_after_store_loss import AdoptionResult
from harken.tickets.write_pace import WritePace

__all__ = ["open_factory", "open_offline", "rekey"]


class Offline:
    """The engine of a single command when no controller runs: it reads, and writes nothing.

    `temporary`: there is no store yet, and the start lines of this one mean nothing.
    """

    def __init__(self, store: Store, factory: Factory, clock: Clock, *, temporary: bool = False) -> None:
        self._store = store
        self._factory = factory
        self._clock = clock
        self._temporary = temporary

    async def reload(self) -> Mapping[str, Any]:
        raise Refused("no controller is running", fix="Start one with: harken start")

    async def diff(self) -> Mapping[str, Any]:
        before = await last_applied(self._store, self._factory.loaded)
        answer: dict[str, Any] = msgspec.to_builtins(plan(before, self._factory.loaded))
        return answer | {"findings": finding_lines(self._factory.loaded)}

    async def tick(self, feed: str, by_hand: str = "") -> Mapping[str, Any]:
        raise Refused("no controller is running", fix="Start one with: harken start")

    async def read_draft(self, draft: DraftFeed, lookback_seconds: float) -> DraftEvents:
        return await DraftReads(self._clock).read(self._factory, draft, lookback_seconds)

    async def preview(self, trigger: str, lookback_seconds: float, *, since_start: bool = False) -> Preview:
        lines = {} if self._temporary or since_start else await load_start_lines(self._store)
        return await preview_trigger(self._store, self._factory, self._clock, trigger, lookback_seconds, lines)

    def status(self) -> Mapping[str, Any]:
        return {}

    def lend(self, account: Account) -> Host:
        return self._factory.lend(account)

    def trackers(self, name: str) -> Mapping[str, TicketTracker]:
        return self._factory.trackers(name)

    def write_pace(self, tracker: str) -> WritePace:
        raise Refused("no controller is running", fix="Start one with: harken start")

    async def tell(self, feed: str, events: Sequence[Event]) -> None:
        raise Refused("no controller is running", fix="Start one with: harken start")

    async def adopt_tickets(self, tracker: str) -> AdoptionResult:
        raise Refused("no controller is running", fix="Start one with: harken start")

    def refused_webhooks(self, path: str) -> Sequence[Refusal]:
        return ()

    def refused_count(self, path: str) -> int:
        return 0

    def unsaved_activity(self) -> Buckets:
        return {}

    def unsaved_trigger_activity(self) -> Counts:
        return {}

    def budgets(self) -> Mapping[str, Level]:
        return self._factory.budgets()

    def clock_skews(self) -> Mapping[str, float]:
        return {}

    def service_clocks(self) -> Mapping[str, float]:
        return {}

    def late_reads(self) -> Mapping[str, Late]:
        return {}

    def stream_lags(self) -> Mapping[str, Lag]:
        return {}

    def announced(self) -> Mapping[str, Announced]:
        return {}

    def in_hand_since(self, feed: str, key: str) -> datetime | None:
        return None

    async def place_of(self, feed: str, key: str, cursor: Cursor) -> Place | None:
        found = self._factory.loaded.feed(feed)
        # nothing is opened: a stream connects when it is followed
        source = self._factory.source(found) if found is not None and found.way == "stream" else None
        return source.place_of(key, cursor) if isinstance(source, PositionedSource) else None

    async def locate(self, feed: str, at: datetime, cursor: Cursor) -> Located | None:
        return await locate_in(self._factory, feed, at, cursor)

    def scratch(self, clock: Clock) -> AbstractAsyncContextManager[Store]:
        return scratch_store(clock)

    async def sync_rows(self) -> None:
        """There is no engine to apply them."""

    def nudge(self) -> None:
        """There is no engine to notify."""

    async def changed(self, seconds: float) -> bool:
        await self._clock.sleep(min(seconds, 1.0))
        return True


@asynccontextmanager
async def open_offline(directory: Path, *, write: bool = False) -> AsyncIterator[Operator]:
    """An operator on the store without a running controller. If there is no store yet, it gets a temporary one."""
    clock = SystemClock()
    loaded = load_directory(directory)
    if write:
        refuse_blocking(loaded)
    key = os.environ.get(KEY, "")
    async with AsyncExitStack() as stack:
        temporary = not write and not is_url(loaded.store) and not Path(loaded.store).exists()
        if not temporary:
            opened = open_store(loaded.store, clock, readonly=not write, key=key)
            stack.push_async_callback(opened.store.close)
            await opened.connect()
            if write:
                await refuse_marked(opened.store)
        else:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="harken-"))
            opened = open_store(str(Path(scratch) / "new.db"), clock)
            stack.push_async_callback(opened.store.close)
            await opened.store.open(loaded.definitions())
        loaded = await TriggerRows(opened.store, keeping=False).load(loaded)
        factory = Factory(loaded, registry(), clock, Random(), opened.store)
        await factory.load_rate_limits(opened.store, save=False)
        stack.push_async_callback(factory.close)
        yield Operator(opened.store, Offline(opened.store, factory, clock, temporary=temporary), loaded, clock)
        if write and opened.shared:
            await notify_replicas(opened.store)


def rekey(directory: Path, new_key: str) -> str:
    """Encrypt store and credentials with another key than HARKEN_ENCRYPTION_KEY. Returns the store's location."""
    old = os.environ.get(KEY, "")
    if not new_key:
        raise Refused("the new key is empty", fix="Make one, for example with: openssl rand -base64 32")
    if new_key == old:
        raise Refused("the new key is the old one", fix="Make another, for example with: openssl rand -base64 32")
    location = load_directory(directory).store
    credentials = credentials_of(directory)
    exists = is_url(location) or Path(location).exists()
    if not exists and not credentials.path.exists():
        raise NotFound(f"there is no store at {location}", fix="Nothing has to be done: the first start takes any key")
    credentials.check()
    credentials.add_key(new_key)
    if exists:
        try:
            asyncio.run(rekey_store(location, old, new_key))
        except HarkenError:
            credentials.finish_key_change()
            raise
    credentials.change_key(new_key)
    return without_password(location)


@asynccontextmanager
async def open_factory(loaded: Loaded) -> AsyncIterator[Factory]:
    """A factory for this configuration, without a store."""
    factory = Factory(loaded, registry(), SystemClock(), Random())
    try:
        yield factory
    finally:
        await factory.close()
