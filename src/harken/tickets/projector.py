"""Shows on every ticket what its newest run is doing. Labels and comments are a projection of the store.

The store tells which runs moved; what they mean for a ticket is noted in its memory, and only then the store is told
that we know. From there on a ticket is visited until it shows what its run says (`ticket_writer.py`), so a crash, a
failed write or a long queue changes when something is written, never what. One replica writes at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec
import structlog

from harken.circuit_breaker import doubled, error_text, is_permanent
from harken.clock import Clock
from harken.errors import Deferred, HarkenError, Misconfigured, RetryLater, StoreBusy, StoreUnavailable
from harken.event import Event, Recorded
from harken.runs import FINAL, OPEN, Run
from harken.store import MovedRun
from harken.store.document_kinds import TICKET
from harken.task_cancellation import cancel_and_wait
from harken.ticket import TicketTracker
from harken.tickets.last_written_ticket_state import DocumentStore, TicketMemories, TicketMemory
from harken.tickets.recovery_after_store_loss import AdoptionResult, adopt
from harken.tickets.settings import TrackerSettings, trigger_name
from harken.tickets.ticket_writer import NotMoved, Target, TicketWriter
from harken.tickets.write_pace import PATIENCE, NoTurn, WritePaces
from harken.timings import Timings

__all__ = ["Lease", "Projector", "ProjectorStore"]

log = structlog.get_logger("harken.tickets")

MOST_MOVED = 200
PASS_SECONDS = 5.0
"""A pass ends after so long, so that what moved meanwhile is noted before more is written."""
HANG_SECONDS = 10.0
"""For so long a pass waits for a credential whose platform does not answer."""
LOOK_SECONDS = 3.0
LOOK_AT_TICKET, LOOK_SPREAD = 60.0, 3.0
"""A ticket with an open run is looked at so often; with many of them, one every three seconds per credential."""
RETRY_FIRST, RETRY_CAP = 10.0, 600.0
ATTENTION_FIRST, ATTENTION_CAP = 900.0, 21_600.0
FAILED_IN_A_ROW = 3
"""So many visits that fail one after the other are no fault of the tickets: the credential rests."""

_change = msgspec.structs.replace


class ProjectorStore(DocumentStore, Protocol):
    """What the projector needs of the store."""

    async def moved_runs(self, seen: Mapping[str, int] = ..., limit: int = ...) -> Sequence[MovedRun]: ...

    async def run(self, run_id: str) -> Run | None: ...

    async def event(self, event_id: int) -> Recorded | None: ...


class Lease(Protocol):
    async def keep(self) -> bool:
        """Take or renew the right to write; whether it is ours."""
        ...


class _Visit:
    """A ticket that does not show everything yet, or whose run is not over. Times are monotonic.

    `moves` counts what was told of its run. `not_before`: the platform asked us to leave it alone until then, whatever
    happens to its run.
    """

    def __init__(self, tracker: str, ticket: str, project: str, *, is_open: bool) -> None:
        self.tracker = tracker
        self.ticket = ticket
        self.project = project
        self.is_open = is_open
        self.began: datetime | None = None
        self.moves = 0
        self.moved = True
        self.due = 0.0
        self.not_before = 0.0
        self.failures = 0


class _Rest:
    """How a credential is doing."""

    def __init__(self) -> None:
        self.failures = 0
        self.until = 0.0


class Projector:
    """`trackers` maps the name of a tracker to its locations. `key` signs receipts: see `receipt.receipt_key`.

    `paces` is shared with whatever else writes with the same credentials. `announce` gets alerts as events, `redact`
    hides secrets in what runs printed. `look_seconds`: how often runs are looked for that have moved.
    """

    def __init__(
        self,
        store: ProjectorStore,
        trackers: Callable[[str], Mapping[str, TicketTracker]],
        settings: Callable[[], Mapping[str, TrackerSettings]],
        clock: Clock,
        key: bytes,
        *,
        paces: WritePaces | None = None,
        announce: Callable[[Event], Awaitable[object]] | None = None,
        redact: Callable[[str], str] = str,
        look_seconds: float = Timings().projection_round,
    ) -> None:
        self._store = store
        self._trackers = trackers
        self._settings = settings
        self._clock = clock
        self._key = key
        self._look_seconds = look_seconds
        self._paces = paces or WritePaces(clock)
        self._writer = TicketWriter(store, clock, key, redact=redact, announce=announce)
        self._visits: dict[tuple[str, str], _Visit] = {}
        self._rests: dict[str, _Rest] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._loaded: set[tuple[str, str]] = set()
        self._seen: dict[str, int] = {}
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """A run moved: look at once."""
        self._nudged.set()

    def forget(self) -> None:
        """Another replica writes; what is to be done is read from the store when it is our turn again."""
        self._visits.clear()
        self._loaded.clear()
        self._seen.clear()

    async def keep(self, lease: Lease) -> None:
        """Project until cancelled, while the lease is ours."""
        try:
            while True:
                self._nudged.clear()
                await self._rest(await self._keep_once(lease))
        finally:
            await cancel_and_wait(self._writing.values())
            self._writing.clear()

    async def _keep_once(self, lease: Lease) -> float:
        try:
            if await lease.keep():
                return await self.project()
            self.forget()
        except HarkenError as error:
            away = isinstance(error, StoreUnavailable)
            (log.debug if away else log.warning)("tickets.trouble", reason=str(error))
        except Exception:
            log.exception("tickets.failed")
        return self._look_seconds

    async def project(self) -> float:
        """One pass: note what moved, then write what is due, each credential for itself.

        Return after how many seconds there is something to do again."""
        settings = self._settings()
        self._reap()
        await self._load(settings)
        await self._take_moved(settings)
        now = self._clock.monotonic()
        due: dict[str, list[_Visit]] = {}
        for visit in [visit for visit in self._visits.values() if visit.due <= now]:
            if visit.tracker in settings:
                due.setdefault(settings[visit.tracker].account, []).append(visit)
            else:
                # its tracker was taken out of the configuration
                self._drop(visit)
        started = []
        for account, visits in due.items():
            if account not in self._writing:
                writing = asyncio.create_task(self._write_due(settings, account, visits), name=f"tickets {account}")
                self._writing[account] = writing
                started.append(writing)
        if started:
            # one that hangs goes on by itself, and the others are not kept waiting for it
            await asyncio.wait(started, timeout=HANG_SECONDS)
        self._reap()
        return self._next_pass(settings)

    def _reap(self) -> None:
        """Let go of passes that have ended, and raise the error of one that failed."""
        ended = [account for account, task in self._writing.items() if task.done()]
        failed = [error for account in ended if (error := self._writing.pop(account).exception()) is not None]
        if failed:
            raise failed[0]

    async def adopt(self, tracker: str) -> AdoptionResult:
        """Rebuild the memory of a tracker's tickets from what is on them, after the store was lost."""
        settings = self._settings().get(tracker)
        if settings is None:
            raise Misconfigured(f"there is no tracker {tracker!r}", fix="See: harken trackers list")
        adopted = AdoptionResult()
        for location, client in self._trackers(tracker).items():
            projects = [project for project in settings.projects if project.location == location]
            if projects:
                memories, pace = TicketMemories(self._store, tracker), self._paces.of(settings.account, settings.kind)
                targets = [
                    Target(settings=settings, project=project, tracker=client, memories=memories, pace=pace)
                    for project in projects
                ]
                adopted += await adopt(targets, self._key, self._clock)
            if adopted.waits is not None:
                break
        return adopted

    async def _rest(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(max(seconds, 0.05)))
        nudged = asyncio.ensure_future(self._nudged.wait())
        try:
            await asyncio.wait((sleeping, nudged), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            nudged.cancel()

    def _next_pass(self, settings: Mapping[str, TrackerSettings]) -> float:
        now, waits = self._clock.monotonic(), [self._look_seconds]
        for visit in self._visits.values():
            account = settings[visit.tracker].account if visit.tracker in settings else ""
            if account not in self._writing:
                rest = self._rests.get(account)
                waits.append(max(visit.due, rest.until if rest else 0.0) - now)
        return max(0.0, min(waits))

    async def _load(self, settings: Mapping[str, TrackerSettings]) -> None:
        """Find tickets that an earlier process left half written, or whose runs are open."""
        projects = {(tracker.name, project.name) for tracker in settings.values() for project in tracker.projects}
        new = projects - self._loaded
        self._loaded &= projects
        if not new:
            return
        for document in await self._store.documents(TICKET):
            name = next((name for name in settings if document.name.startswith(f"{name}/")), "")
            memory, ticket = msgspec.convert(document.value, TicketMemory), document.name[len(name) + 1 :]
            settled = memory.status in FINAL and memory.settled.startswith(f"{memory.run}:{memory.status}:")
            if (name, memory.project) in new and memory.run and not settled:
                self._put(name, ticket, memory)
        self._loaded |= new

    async def _take_moved(self, settings: Mapping[str, TrackerSettings]) -> None:
        places = {
            trigger_name(tracker.name, project.name): (tracker.name, project.name)
            for tracker in settings.values()
            for project in tracker.projects
        }
        while True:
            moved = await self._store.moved_runs(self._seen, MOST_MOVED)
            self._seen = {}
            by_ticket: dict[tuple[str, str, str], list[MovedRun]] = {}
            for run in moved:
                if run.trigger in places and run.subject:
                    by_ticket.setdefault((*places[run.trigger], run.subject), []).append(run)
            for (tracker, project, ticket), runs in by_ticket.items():
                await self._note(tracker, project, ticket, runs)
            # told only now: what is noted is not lost, whatever happens to this process
            self._seen = {run.id: run.seen for run in moved}
            if len(moved) < MOST_MOVED:
                return

    async def _note(self, tracker: str, project: str, ticket: str, runs: Sequence[MovedRun]) -> None:
        memories = TicketMemories(self._store, tracker)
        known = await memories.get(ticket)
        newest = max(runs, key=lambda run: (run.status in OPEN, run.since))
        if known is not None and known.run and known.run not in {run.id for run in runs}:
            # a run that ended before the one that the ticket shows says nothing new
            other = await self._store.run(known.run)
            if other is not None and _rank(other) > (newest.status in OPEN, newest.since):
                return
        memory = await memories.update(ticket, lambda before: _noted(before, project, newest))
        visit = self._put(tracker, ticket, memory)
        visit.began = newest.since

    def _put(self, tracker: str, ticket: str, memory: TicketMemory) -> _Visit:
        visit = self._visits.get((tracker, ticket))
        is_open = memory.status in OPEN
        if visit is None:
            visit = self._visits[tracker, ticket] = _Visit(tracker, ticket, memory.project, is_open=is_open)
        visit.project, visit.is_open, visit.moved, visit.due = memory.project, is_open, True, visit.not_before
        visit.moves += 1
        return visit

    def _drop(self, visit: _Visit) -> None:
        self._visits.pop((visit.tracker, visit.ticket), None)

    async def _write_due(self, settings: Mapping[str, TrackerSettings], account: str, visits: Iterable[_Visit]) -> None:
        """Visit tickets of one credential, one after the other: what moved comes before what is only looked at."""
        rest = self._rests.setdefault(account, _Rest())
        ends = self._clock.monotonic() + PASS_SECONDS
        ours = {name for name, tracker in settings.items() if tracker.account == account}
        count = sum(visit.is_open and visit.tracker in ours for visit in self._visits.values())
        for visit in sorted(visits, key=lambda visit: (not visit.moved, visit.due)):
            tracker = settings[visit.tracker]
            now = self._clock.monotonic()
            wait = self._paces.of(account, tracker.kind).wait(visit.ticket)
            if self._visits.get((visit.tracker, visit.ticket)) is not visit:
                # another replica writes
                continue
            if now < rest.until or now >= ends or wait > PATIENCE:
                rest.until = max(rest.until, now + wait if wait > PATIENCE else 0.0)
                return
            await self._visit(tracker, visit, rest, max(LOOK_AT_TICKET, LOOK_SPREAD * count))

    async def _visit(self, tracker: TrackerSettings, visit: _Visit, rest: _Rest, look_every: float) -> None:
        known = visit.moves
        try:
            target = self._target(tracker, visit.project)
            again = None if target is None else await self._writer.visit(target, visit.ticket, visit.began, look_every)
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:
            self._failed(tracker, visit, rest, error)
            return
        if visit.failures:
            log.info("ticket.written_again", tracker=tracker.name, ticket=visit.ticket)
        visit.failures = rest.failures = 0
        if visit.moves != known:
            # its run went on while it was being written
            return
        visit.moved = False
        if again is None:
            self._drop(visit)
        else:
            visit.due = self._clock.monotonic() + again

    def _target(self, tracker: TrackerSettings, project: str) -> Target | None:
        """None if the project was taken out of the configuration."""
        found = tracker.project(project)
        client = self._trackers(tracker.name).get(found.location) if found is not None else None
        if found is None or client is None:
            return None
        return Target(
            settings=tracker,
            project=found,
            tracker=client,
            memories=TicketMemories(self._store, tracker.name),
            pace=self._paces.of(tracker.account, tracker.kind),
        )

    def _failed(self, tracker: TrackerSettings, visit: _Visit, rest: _Rest, error: Exception) -> None:
        """Try the ticket again later. If the platform asks for it, or everything fails, the whole credential rests."""
        now, after = self._clock.monotonic(), (error.after or 0.0) if isinstance(error, RetryLater) else 0.0
        if isinstance(error, Deferred):
            # nothing was refused: there was no room for it
            visit.due = now + max(after, LOOK_SECONDS)
            if not isinstance(error, NoTurn):
                # the quota of requests is used up, and no other ticket of the credential would have more luck
                rest.until = max(rest.until, now + max(after, LOOK_SECONDS))
            return
        needs_person = isinstance(error, HarkenError) and is_permanent(error.code)
        first, cap = (ATTENTION_FIRST, ATTENTION_CAP) if needs_person else (RETRY_FIRST, RETRY_CAP)
        visit.not_before = now + after
        visit.due = now + max(after, doubled(first, visit.failures, cap))
        visit.failures += 1
        # a status that a workflow does not have says nothing about the credential
        rest.failures += not isinstance(error, NotMoved)
        limited = isinstance(error, RetryLater) and error.reason == "rate_limited"
        if limited and tracker.kind != "jira":
            # GitHub wants longer waits from whoever meets a limit again; jira has limits for each issue
            rest.until = max(rest.until, now + max(after, doubled(after or RETRY_FIRST, rest.failures - 1, RETRY_CAP)))
        elif rest.failures >= FAILED_IN_A_ROW:
            rest.until = max(rest.until, now + max(after, doubled(first, rest.failures - FAILED_IN_A_ROW, cap)))
        told = log.warning if visit.failures == 1 else log.debug
        told("ticket.not_written", tracker=tracker.name, ticket=visit.ticket, reason=error_text(error))
        if not isinstance(error, HarkenError):
            log.error("ticket.writing_failed", tracker=tracker.name, exc_info=error)


def _noted(before: TicketMemory | None, project: str, run: MovedRun) -> TicketMemory:
    """The memory of a ticket with this run as its newest."""
    known = before or TicketMemory(project=project)
    if known.run == run.id and run.status in FINAL and known.settled.startswith(f"{run.id}:{run.status}:"):
        return known
    if known.run == run.id:
        return _change(known, project=project, status=run.status)
    # of this run nothing is shown yet: a label of the run before would count as ours, and as seen
    return _change(
        known,
        project=project,
        run=run.id,
        status=run.status,
        shown=None,
        confirmed=False,
        repairs=(),
        fought=False,
        asked_at=None,
        settled="",
    )


def _rank(run: Run) -> tuple[bool, datetime]:
    return run.status in OPEN, run.finished_at or run.started_at or run.created_at
