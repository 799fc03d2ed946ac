"""The tickets of one tracker as the source of its feed: read by polls, told by webhooks, the same events from both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, TypeVar

import structlog
from msgspec.structs import replace

from harken.circuit_breaker import error_code, error_text
from harken.clock import Clock
from harken.errors import (
    HarkenError,
    NeedsAttention,
    NoConnection,
    Offline,
    Refused,
    RetryLater,
    StoreBusy,
    StoreUnavailable,
)
from harken.event import Event, Known
from harken.kit.cursor_codec import dump_cursor, load_cursor
from harken.kit.webhook_body import MAX_BYTES
from harken.source import Batch, Cursor, Request
from harken.ticket import Notice, NoticeReader, Ticket, TicketPage, TicketTracker
from harken.tickets.cursor import (
    SWEEP_EVERY,
    List,
    LocationTrouble,
    Place,
    TicketCursor,
    after_failure,
    after_page,
    begin,
    is_due,
    queue,
    trigger_labels,
)
from harken.tickets.event_from_ticket import Placed, event_of, gone_event
from harken.tickets.last_written_ticket_state import TicketMemories, TicketMemory
from harken.tickets.lifecycle_labels import Lifecycle
from harken.tickets.observation_against_last_write import is_over, is_wanted, observe
from harken.tickets.orphaned_tickets import Orphans
from harken.tickets.settings import TrackerSettings
from harken.tickets.webhook_loss import Deliveries, DeliveryCounter
from harken.tickets.write_pace import PaceLimits, WritePace

__all__ = ["TicketSource"]

T = TypeVar("T")
_Shape: TypeAlias = tuple[str, datetime | None, tuple[str, ...], str, bool, str]

log = structlog.get_logger("harken.tickets")

LIST_SECONDS = 20.0
"""So long a tracker may take for one page."""
GET_SECONDS = 5.0
POLL_SECONDS = 5.0
"""Short pages are taken together for so long."""
MOST_TICKETS = 100
MOST_LOOKS = 5
"""So many tickets are looked at alone before what they tell is stored."""
MOST_WRITES = 20
"""A cycle writes on so many tickets at most that have no run of ours: reading comes first."""
MOST_REMEMBERED = 20_000
GONE_AFTER = timedelta(minutes=10)
"""A ticket that we wrote on so recently may be missing only in a copy that is behind."""
DOUBT_SECONDS = 60.0
"""So long copies may show a ticket as it was before another reader was told that it is ready, or not have it yet."""
SHORTEST_INTERVAL = 10.0
NO_PROJECT = "No project of Harken matches this ticket, so its label starts nothing."

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_LISTED: Mapping[List, tuple[Sequence[Lifecycle], bool]] = {
    "pending": ((Lifecycle.PENDING,), True),
    "active": ((Lifecycle.ENQUEUED, Lifecycle.IN_PROGRESS, Lifecycle.WAITING), True),
    "over": ((Lifecycle.DONE, Lifecycle.FAILED), False),
}


class TicketSource:
    """Both a PollSource and a PushSource.

    `trackers` are those of the locations. `recall` tells what the feed knows of these subjects, `wake` makes its next
    poll due now, and `on_comment` is told of comments. `pace` is that of everything that writes with the credential.
    `deliveries` counts what webhooks tell. `trouble` has the locations that could not be read, and why.
    """

    max_bytes = MAX_BYTES
    claims_tickets = True

    def __init__(
        self,
        settings: TrackerSettings,
        trackers: Mapping[str, TicketTracker],
        memories: TicketMemories,
        clock: Clock,
        notices: NoticeReader | None = None,
        *,
        recall: Callable[[Sequence[str]], Awaitable[Mapping[str, Known]]] | None = None,
        wake: Callable[[], Awaitable[object]] | None = None,
        on_comment: Callable[[str, Notice], Awaitable[object]] | None = None,
        pace: WritePace | None = None,
        deliveries: DeliveryCounter | None = None,
    ) -> None:
        self._settings = settings
        self._trackers = {location.casefold(): tracker for location, tracker in trackers.items()}
        self._locations = {location.casefold(): location for location in settings.locations}
        self._memories = memories
        self._clock = clock
        self._notices = notices
        self._recall = recall
        self._wake = wake
        self._on_comment = on_comment
        self._pace = pace or WritePace(clock, PaceLimits())
        self.trouble: Mapping[str, str] = {}
        # this process has not swept yet
        self._starting = True
        # why the cycle that was just stored is a failure all the same
        self._failure: HarkenError | None = None
        self._errors: dict[str, HarkenError] = {}
        # the tickets that this cycle has shown, and those of them that became ready
        self._observed: set[str] = set()
        self._ready: set[str] = set()
        self._orphans = Orphans(clock)
        self._writes_left = MOST_WRITES
        self._counter = deliveries or DeliveryCounter(clock)
        # when each ticket had changed last, of what was shown to us
        self._newest: dict[str, datetime] = {}
        # when tickets had changed last that this process has seen wanting their run
        self._wanted: dict[str, datetime] = {}
        # tickets whose run is over and shown, as they were then
        self._finished: dict[str, _Shape] = {}
        self._sweeping = True
        # since when tickets are missing, or shown not to want a run, of which others have seen that they do
        self._doubts: dict[str, float] = {}

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        """Read on from the cursor. A cycle ends with an error if no location could be read."""
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure
        stored = load_cursor(cursor, TicketCursor) or TicketCursor()
        if self._notices is not None:
            await self._counter.load()
        at = stored if self._is_current(stored) else self._begin(stored, since)
        self._sweeping = at.sweep
        events: list[Event] = []
        begun, until = at, self._clock.monotonic() + POLL_SECONDS
        while _goes_on(at):
            try:
                following, found = await self._step(at, since)
            except HarkenError as error:
                if at is begun:
                    raise
                self._failure = error
                return Batch(events=_in_order(events), cursor=dump_cursor(at), more=True)
            at, events = following, [*events, *found]
            if _goes_on(at) and (len(events) >= MOST_TICKETS or self._clock.monotonic() >= until):
                return Batch(events=_in_order(events), cursor=dump_cursor(at), more=True)
        return self._end(at, events, stored)

    async def receive(self, request: Request) -> list[Event]:
        """Verify and read a webhook. What it says is never an error; what we cannot do now is to be sent again."""
        if self._notices is None:
            raise Refused(f"{self._settings.name} takes no webhooks", fix="Set webhook_secret of the tracker")
        told = self._notices.read(request)
        try:
            return await self._take_notices(told)
        except RetryLater:
            raise
        except HarkenError as error:
            raise RetryLater(error.message, fix=error.fix) from error
        except Exception as error:
            log.exception("tickets.webhook_failed", tracker=self._settings.name)
            raise RetryLater("it failed here; send it again") from error

    @property
    def deliveries(self) -> Deliveries:
        """How reliable the webhooks of this tracker are, as far as this process knows."""
        return self._counter.counted

    def _is_current(self, at: TicketCursor) -> bool:
        """Whether the cursor is within a cycle over the locations that we have now."""
        left = {*at.waiting, *(location for location, _ in at.look)}
        if at.place is not None:
            left.add(at.place.location)
        return at.reading and left <= set(self._settings.locations)

    def _begin(self, at: TicketCursor, since: datetime) -> TicketCursor:
        now = self._clock.now()
        self._observed.clear()
        self._errors.clear()
        self._ready.clear()
        self._counter.begin_cycle()
        self._writes_left = MOST_WRITES
        return begin(at, self._settings, since=since, now=now, sweep=self._starting or is_due(at, now))

    async def _step(self, at: TicketCursor, since: datetime) -> tuple[TicketCursor, list[Event]]:
        """Read one page, or look at a few tickets alone. Returns where to go on, and what was found."""
        if at.place is not None:
            return await self._read_page(at, at.place, since)
        if at.sweep and not at.gathered:
            return replace(queue(at, await self._unlisted()), gathered=True), []
        return await self._look(at)

    async def _read_page(self, at: TicketCursor, place: Place, since: datetime) -> tuple[TicketCursor, list[Event]]:
        try:
            async with asyncio.timeout(LIST_SECONDS):
                page = await self._list(place)
        except TimeoutError as error:
            late = RetryLater(f"{place.location} gave no list within {LIST_SECONDS:.0f} s", reason="timeout")
            late.__cause__ = error
            return after_failure(at, since, self._note(place.location, late)), []
        except HarkenError as error:
            return after_failure(at, since, self._note(place.location, error)), []
        events, look = await self._observe(place.location, page.tickets, single=False)
        following = after_page(at, self._settings, page.next, since)
        return queue(following, [(place.location, id) for id in look]), events

    def _list(self, place: Place) -> Awaitable[TicketPage]:
        tracker, label = self._tracker(place.location), self._settings.lifecycle.label
        if place.list == "changed":
            return tracker.list_changed(place.start, page=place.page)
        if place.list == "labelled":
            wanted = trigger_labels(self._settings, place.location)
            return tracker.list_labelled(wanted, closed=False, page=place.page)
        states, closed = _LISTED[place.list]
        return tracker.list_labelled([label(state) for state in states], closed=closed, page=place.page)

    def _tracker(self, location: str) -> TicketTracker:
        tracker = self._trackers.get(location.casefold())
        if tracker is None:
            raise NeedsAttention(f"{location} of {self._settings.name} cannot be read", fix="Check its project")
        return tracker

    def _note(self, location: str, error: HarkenError) -> str:
        """Note why a location could not be read, unless that is no trouble of this location alone."""
        if isinstance(error, NoConnection | Offline | StoreBusy | StoreUnavailable):
            raise error
        if isinstance(error, RetryLater) and error.reason == "rate_limited":
            raise error
        self._errors.setdefault(location, error)
        return error_text(error)

    async def _unlisted(self) -> list[tuple[str, str]]:
        """The tickets with a run that is not over, or with a label that was not confirmed, that no list has shown."""
        found = []
        for id, memory in (await self._memories.all()).items():
            project = self._settings.project(memory.project)
            unsettled = bool(memory.run) and not (is_over(memory) and (memory.confirmed or memory.shown is None))
            if project is not None and unsettled and id not in self._observed:
                found.append((project.location, id))
        return found

    async def _look(self, at: TicketCursor) -> tuple[TicketCursor, list[Event]]:
        events: list[Event] = []
        failed = dict(at.failed)
        for location, id in at.look[:MOST_LOOKS]:
            try:
                events += await self._look_at(location, id)
            except HarkenError as error:
                failed[location] = self._note(location, error)
        return replace(at, look=at.look[MOST_LOOKS:], failed=failed), events

    async def _look_at(self, location: str, id: str) -> list[Event]:
        ticket = await self._get(location, id)
        if ticket is None:
            return await self._missing(id)
        return (await self._observe(location, [ticket], single=True))[0]

    async def _missing(self, id: str) -> list[Event]:
        """A ticket is not there: its run is to end, unless only a copy that is behind may be missing it."""
        memory = await self._memories.get(id)
        if memory is None or not memory.run or is_over(memory):
            return []
        wrote = memory.wrote_at
        if wrote is None and self._is_in_doubt(id):
            # a webhook or a list has shown it, and right after it was opened a copy may not have it
            return []
        if wrote is not None and self._clock.now() - wrote < GONE_AFTER:
            return []
        return [gone_event(id, memory.project, self._settings.name)]

    async def _get(self, location: str, id: str) -> Ticket | None:
        try:
            async with asyncio.timeout(GET_SECONDS):
                return await self._tracker(location).get(id)
        except TimeoutError as error:
            message = f"{location} did not show the ticket within {GET_SECONDS:.0f} s"
            raise RetryLater(message, reason="timeout") from error

    async def _observe(
        self, location: str, tickets: Sequence[Ticket], *, single: bool, polled: bool = True, told: bool = False
    ) -> tuple[list[Event], list[str]]:
        """What these tickets tell, and the ids of those that have to be looked at alone before they tell anything.

        `told`: a webhook tells the same."""
        fresh = [ticket for ticket in tickets if self._is_fresh(ticket)]
        self._observed.update(ticket.id for ticket in fresh)
        if polled and not single and not self._sweeping:
            fresh = [ticket for ticket in fresh if self._finished.get(ticket.id) != _shape(ticket)]
        known = await self._recall([ticket.id for ticket in fresh]) if self._recall and fresh else {}
        memories = await asyncio.gather(*(self._memories.get(ticket.id) for ticket in fresh))
        events, look = [], []
        for ticket, memory in zip(fresh, memories, strict=True):
            before = known[ticket.id].state if ticket.id in known else None
            seen = observe(ticket, self._settings, location, memory=memory, known=before, single=single)
            if seen.confirms and memory is not None:
                await self._memories.confirm(ticket.id, memory, ticket.version)
            if seen.look:
                look.append(ticket.id)
            unsure = single and not told and (memory is None or not memory.confirmed)
            if seen.placed is not None and not (self._is_doubtful(seen.placed, before) and unsure):
                event = event_of(seen.placed, self._settings.name)
                events.append(event)
                if self._recall is not None and self._notices is not None:
                    (self._counter.count_poll if polled else self._counter.count_webhook)(event, before)
                if polled and seen.placed.standing.ready and event.state != before:
                    self._ready.add(ticket.id)
                if polled:
                    await self._tend(location, seen.placed, memory)
            self._note_finished(ticket, memory, events[-1:], before)
        return events, look

    def _note_finished(
        self, ticket: Ticket, memory: TicketMemory | None, told: Sequence[Event], before: str | None
    ) -> None:
        """Remember a ticket whose run is over and shown: until it changes, only sweeps have to look what it tells."""
        over = memory is not None and bool(memory.run) and is_over(memory) and memory.confirmed
        if over and told and (told[0].subject, told[0].state) == (ticket.id, before):
            _remember(self._finished, ticket.id, _shape(ticket))
        else:
            self._finished.pop(ticket.id, None)

    def _is_fresh(self, ticket: Ticket) -> bool:
        """Whether nothing newer was shown to us of this ticket before."""
        if ticket.updated_at is None:
            return True
        newest = self._newest.get(ticket.id)
        if newest is not None and newest > ticket.updated_at:
            return False
        _remember(self._newest, ticket.id, ticket.updated_at)
        return True

    def _is_doubtful(self, placed: Placed, before: str | None) -> bool:
        """Whether this may be a copy from before another replica learned that the ticket is ready."""
        ticket = placed.ticket
        if is_wanted(placed.standing.state):
            self._doubts.pop(ticket.id, None)
            if ticket.updated_at is not None:
                _remember(self._wanted, ticket.id, ticket.updated_at)
            return False
        seen = self._wanted.get(ticket.id)
        if not is_wanted(before or "") or (seen is not None and _changed_at(ticket) > seen):
            self._doubts.pop(ticket.id, None)
            return False
        return self._is_in_doubt(ticket.id)

    def _is_in_doubt(self, id: str) -> bool:
        """Whether a ticket is shown like this, or is missing, for so short a time that a copy may be behind."""
        now, first = self._clock.monotonic(), self._doubts.get(id)
        if first is None:
            _remember(self._doubts, id, now)
        return first is None or now - first < DOUBT_SECONDS

    async def _tend(self, location: str, placed: Placed, memory: TicketMemory | None) -> None:
        """Write on tickets that have no run of ours and need it: that is no reason for the read to fail."""
        try:
            async with asyncio.timeout(LIST_SECONDS):
                if placed.project and (memory is None or not memory.run):
                    await self._release_orphan(location, placed)
                elif not placed.project and memory is None and self._settings.zero_match_comment:
                    await self._tell_no_project(location, placed)
        except (HarkenError, TimeoutError) as error:
            reason = error_text(error)
            log.warning("tickets.not_written", tracker=self._settings.name, ticket=placed.ticket.ref, reason=reason)

    async def _release_orphan(self, location: str, placed: Placed) -> None:
        ticket, labels = placed.ticket, self._settings.lifecycle
        state = None if ticket.closed else labels.state_of(ticket.labels)
        if not self._orphans.is_stale(ticket, state) or state is None or not self._writes_left:
            return
        self._writes_left -= 1
        log.warning("tickets.orphan", tracker=self._settings.name, ticket=ticket.ref, label=labels.label(state))
        surplus = labels.surplus(ticket.labels, Lifecycle.PENDING)
        async with self._pace.turn(ticket.id):
            await self._tracker(location).swap_labels(ticket, [labels.label(Lifecycle.PENDING)], surplus)
        self._orphans.forget(ticket.id)

    async def _tell_no_project(self, location: str, placed: Placed) -> None:
        """Comment once that no project wants the ticket, if a label says that somebody expects a run."""
        ticket = placed.ticket
        wanted = [*trigger_labels(self._settings, location), self._settings.lifecycle.label(Lifecycle.PENDING)]
        present = {label.casefold() for label in ticket.labels}
        if ticket.closed or not present & {label.casefold() for label in wanted} or not self._writes_left:
            return
        self._writes_left -= 1
        tracker = self._tracker(location)
        # it may have been written just before a crash
        if not any(NO_PROJECT in comment.text for comment in await tracker.comments(ticket)):
            async with self._pace.turn(ticket.id):
                await tracker.comment(ticket, NO_PROJECT)
        await self._memories.put(ticket.id, TicketMemory(project="", commented_at=self._clock.now()))

    def _end(self, at: TicketCursor, events: list[Event], stored: TicketCursor) -> Batch:
        """End the cycle. It is a failure if no location could be read; what was read is stored first."""
        self.trouble = at.failed
        everywhere = bool(at.failed) and len(at.failed) == len(self._settings.locations)
        swept = at.sweep and not everywhere
        self._starting = self._starting and not swept
        done = TicketCursor(
            marks=at.marks,
            resume=at.resume,
            swept_at=at.began if swept else stored.swept_at,
            trouble=stored.trouble,
        )
        self._log_cycle(at)
        if everywhere and done == stored and not events:
            raise self._summary(at.failed)
        done = replace(done, trouble=self._trouble_after(at, stored.trouble))
        if everywhere:
            self._failure = self._summary(at.failed)
            return Batch(events=_in_order(events), cursor=dump_cursor(done), more=True)
        return Batch(events=_in_order(events), cursor=dump_cursor(done), next_at=self._next_at(done))

    def _trouble_after(self, at: TicketCursor, before: Mapping[str, LocationTrouble]) -> dict[str, LocationTrouble]:
        """Which locations could not be read, and since when. What changed about that is logged."""
        after = {}
        for location, message in at.failed.items():
            since = before[location].since if location in before else self._clock.now()
            code = error_code(self._errors[location]) if location in self._errors else ""
            after[location] = LocationTrouble(message=message, since=since, code=code)
            if location not in before:
                log.warning("tickets.unread", tracker=self._settings.name, location=location, reason=message)
        for location in before.keys() - after.keys():
            log.info("tickets.read_again", tracker=self._settings.name, location=location)
        return after

    def _summary(self, failed: Mapping[str, str]) -> HarkenError:
        """The error of a cycle in which no location could be read: that of the first."""
        location, message = next(iter(failed.items()))
        # after a restart only its text is left
        return self._errors.get(location) or RetryLater(message, after=self._settings.interval)

    def _next_at(self, done: TicketCursor) -> datetime | None:
        """When the next cycle is due, where the schedule of the feed does not tell."""
        now, interval = self._clock.now(), self._settings.interval
        if self._counter.lossy:
            seconds = max(SHORTEST_INTERVAL, interval / 4) if self._settings.polled else interval
            return now + timedelta(seconds=seconds)
        if done.trouble and not self._settings.polled:
            return now + timedelta(seconds=interval)
        return None if self._settings.polled else (done.swept_at or now) + SWEEP_EVERY

    def _log_cycle(self, at: TicketCursor) -> None:
        began = at.began or self._clock.now()
        log.info(
            "tick",
            tracker=self._settings.name,
            sweep=at.sweep,
            listed=len(self._observed),
            ready=len(self._ready),
            failed=len(at.failed),
            seconds=round((self._clock.now() - began).total_seconds(), 3),
        )

    async def _take_notices(self, told: Sequence[Notice]) -> list[Event]:
        events: list[Event] = []
        ours = [(notice, places) for notice in told if (places := self._places(notice))]
        for notice, _ in ours:
            self._counter.note_webhook(notice.ticket.id if notice.ticket is not None else notice.id)
            if (notice.commented or notice.comment is not None) and self._on_comment is not None:
                await self._on_comment(self._settings.name, notice)
        if self._settings.doorbell:
            if ours and self._wake is not None:
                await self._wake()
            return []
        for notice, places in ours:
            events += await self._take_notice(notice, places)
        return events

    def _places(self, notice: Notice) -> list[str]:
        """Our locations where the ticket may be: all of them if the webhook names none."""
        names = [name.casefold() for name in (notice.location, *notice.aliases) if name]
        if not names:
            return list(self._locations.values())
        # a tracker without a location is of the whole platform
        found = next((self._locations[name] for name in (*names, "") if name in self._locations), None)
        return [] if found is None else [found]

    async def _take_notice(self, notice: Notice, places: Sequence[str]) -> list[Event]:
        location, whole = places[0], notice.ticket
        if whole is not None and await self._memories.get(whole.id) is None:
            events, look = await self._observe(location, [whole], single=False, polled=False)
            if not look:
                return events
        read = await self._get(location, notice.id)
        for other in places[1:]:
            if read is None:
                location, read = other, await self._get(other, notice.id)
        if read is None:
            return await self._missing(notice.id)
        behind = whole is not None and _is_behind(read, whole)
        shown = whole if behind and whole is not None else read
        return (await self._observe(location, [shown], single=not behind, polled=False, told=whole is not None))[0]


def _shape(ticket: Ticket) -> _Shape:
    """All of a ticket that decides about its runs."""
    return ticket.version, ticket.updated_at, ticket.labels, ticket.status, ticket.closed, ticket.area_path


def _remember(known: dict[str, T], id: str, value: T) -> None:
    """Keep it as the newest, and forget the oldest when there are too many."""
    known.pop(id, None)
    known[id] = value
    if len(known) > MOST_REMEMBERED:
        del known[next(iter(known))]


def _goes_on(at: TicketCursor) -> bool:
    return at.place is not None or bool(at.look) or (at.sweep and not at.gathered)


def _changed_at(ticket: Ticket) -> datetime:
    return ticket.updated_at or _LONG_AGO


def _is_behind(read: Ticket, told: Ticket) -> bool:
    """Whether the read is older than what a webhook told. Within one second nobody knows, and the webhook counts."""
    if _changed_at(read) != _changed_at(told):
        return _changed_at(read) < _changed_at(told)
    return (set(read.labels), read.status, read.closed) != (set(told.labels), told.status, told.closed)


def _in_order(events: Sequence[Event]) -> list[Event]:
    """Oldest change first; of the same ticket, what was read later comes later."""
    return sorted(events, key=lambda event: event.occurred_at or datetime.max.replace(tzinfo=UTC))
