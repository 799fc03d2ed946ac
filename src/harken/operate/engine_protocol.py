"""What operations need from the running engine. `harken.app` implements it, with a controller and without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from harken.clock import Clock
from harken.event import Event, Outcome
from harken.feed import Feed
from harken.outgoing_rate_limit import Level
from harken.store import Store

if TYPE_CHECKING:
    from harken.config.loaded import Account
    from harken.ingest.feed_runtime_state import Late
    from harken.ingest.refused_webhooks import Refusal
    from harken.operate.activity_counts import Buckets
    from harken.operate.trigger_activity_counts import Counts
    from harken.source import Announced, Cursor, Host, Lag, Located, Place
    from harken.ticket import TicketTracker
    from harken.tickets.recovery_after_store_loss import AdoptionResult
    from harken.tickets.write_pace import WritePace

__all__ = ["DraftEvents", "DraftFeed", "Engine", "Preview", "Shown"]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One item that the source returned in a dry run, and its would-be verdict."""

    key: str
    subject: str
    type: str
    outcome: Outcome
    reason: str = ""
    occurred_at: datetime | None = None
    title: str = ""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a read would do. `complete` is False when there was more than a dry run reads.

    `found` maps names in the query to what the service resolved them to; `unknown` has a sentence for each other.
    """

    trigger: str
    feed: str
    since: datetime | None
    shown: tuple[Shown, ...] = ()
    complete: bool = True
    notes: tuple[str, ...] = ()
    found: Mapping[str, str] = {}
    unknown: tuple[str, ...] = ()


class DraftFeed(msgspec.Struct, frozen=True, kw_only=True):
    """The feed of a trigger that is not stored, with the validated query and the account that its source needs."""

    feed: Feed
    query: Any = None
    account: Any = None
    secrets: frozenset[str] = frozenset()


class DraftEvents(msgspec.Struct, frozen=True, kw_only=True):
    """What a draft's service shows, oldest first. `complete` is False when there was more than was read."""

    events: tuple[Event, ...] = ()
    complete: bool = True
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Engine(Protocol):
    """The running controller, or, without one, as much of it as a single command needs."""

    async def reload(self) -> Mapping[str, Any]:
        """Reload and apply the configuration. The plan has add, replace, remove, keep, refused, findings and freed.

        Feeds that were paused because of a credential that has changed are resumed (`freed`)."""
        ...

    async def diff(self) -> Mapping[str, Any]:
        """The plan that `reload` would apply, without applying it."""
        ...

    async def tick(self, feed: str, by_hand: str = "") -> Mapping[str, Any]:
        """Read the feed now through the same lease and commit as its schedule: result, seen, new, error.

        The runs of the trigger `by_hand` do not wait for its quiet hours."""
        ...

    async def preview(self, trigger: str, lookback_seconds: float, *, since_start: bool = False) -> Preview:
        """Read the API and match, but write nothing. With `since_start` as if the trigger began with that span."""
        ...

    async def read_draft(self, draft: DraftFeed, lookback_seconds: float) -> DraftEvents:
        """What the service of a trigger that is not stored shows, perhaps a minute ago. Nothing is written."""
        ...

    def status(self) -> Mapping[str, Any]:
        """uptime, version, pid, url, generation, connections, worker counters, lag. Empty when no controller runs."""
        ...

    def lend(self, account: Account) -> Host:
        """The Host (HTTP client, clock, rate limit) for a call on behalf of this account."""
        ...

    def refused_webhooks(self, path: str) -> Sequence[Refusal]:
        """The last webhooks that this process refused at the path, newest first. Empty when no controller runs."""
        ...

    def refused_count(self, path: str) -> int:
        """How many webhooks this process refused at the path since it started. 0 when no controller runs."""
        ...

    def unsaved_activity(self) -> Buckets:
        """What this process has counted and not stored yet. Empty when no controller runs."""
        ...

    def unsaved_trigger_activity(self) -> Counts:
        """What this process has counted for each trigger and not stored yet. Empty when no controller runs."""
        ...

    def budgets(self) -> Mapping[str, Level]:
        """The state of each credential's rate limit, by the credential's name."""
        ...

    def clock_skews(self) -> Mapping[str, float]:
        """How many seconds the clock of a feed's service is ahead of ours, of those feeds for which it is off."""
        ...

    def service_clocks(self) -> Mapping[str, float]:
        """As `clock_skews`, of all feeds whose service dates its answers: 0 where its clock agrees with ours."""
        ...

    def late_reads(self) -> Mapping[str, Late]:
        """The feeds whose reads are due and have not begun, because they wait for a slot."""
        ...

    def stream_lags(self) -> Mapping[str, Lag]:
        """What waits at the brokers of the streams that this process follows, by feed, as far as they say."""
        ...

    def announced(self) -> Mapping[str, Announced]:
        """How many changes the feeds that hear of them were told of, since this process reads them."""
        ...

    def in_hand_since(self, feed: str, key: str) -> datetime | None:
        """Since when this process holds a message of a stream that is not committed yet; None if it has none."""
        ...

    async def place_of(self, feed: str, key: str, cursor: Cursor) -> Place | None:
        """Where the message of this name is in the stream of the feed; None where its source cannot tell."""
        ...

    async def locate(self, feed: str, at: datetime, cursor: Cursor) -> Located | None:
        """The place of that time in the stream of the feed; None where its source cannot be read from another place."""
        ...

    def trackers(self, name: str) -> Mapping[str, TicketTracker]:
        """The tickets of a tracker by location; calls count against the rate limit of its account."""
        ...

    def write_pace(self, tracker: str) -> WritePace:
        """The pace of everything that this process writes with the tracker's credential."""
        ...

    async def tell(self, feed: str, events: Sequence[Event]) -> None:
        """Commit events as if the feed's service had sent them, and start what they start."""
        ...

    async def adopt_tickets(self, tracker: str) -> AdoptionResult:
        """Rebuild the memory of a tracker's tickets from what is on them."""
        ...

    def scratch(self, clock: Clock) -> AbstractAsyncContextManager[Store]:
        """An empty store on this clock, which is thrown away at the end: to try what real ones would decide."""
        ...

    async def sync_rows(self) -> None:
        """Apply the rows of triggers that were changed in the store. Nothing when no controller runs."""
        ...

    def nudge(self) -> None:
        """A person changed the store: look at it now instead of at the next timer."""
        ...

    async def changed(self, seconds: float) -> bool:
        """Return True once something was committed or `seconds` have passed; False when the engine is stopping."""
        ...
