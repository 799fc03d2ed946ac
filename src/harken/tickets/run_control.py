"""What is done around the runs that tickets start, for all trackers of a configuration.

Runs get their look at the ticket and the acts of their steps here (`bracket`). Beside them, the open runs of each
tracker are passed over: what was withdrawn is cancelled, and answers on tickets are handed on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import structlog
from msgspec.structs import replace

from harken.clock import Clock
from harken.errors import HarkenError, Misconfigured, NeedsAttention
from harken.run.execute import Frame
from harken.run.plan import Bracket, Step
from harken.runs import Claimed
from harken.task_cancellation import cancel_and_wait
from harken.ticket import Notice, TicketTracker
from harken.tickets.actor_access import Accounts
from harken.tickets.last_written_ticket_state import TicketMemories, TicketMemory
from harken.tickets.run_cancellation_and_answers import OpenRuns, RunControlStore
from harken.tickets.settings import FIRST_STEP, LAST_STEP, TrackerSettings, feed_name
from harken.tickets.still_wanted_check import PREFLIGHT
from harken.tickets.ticket_checks_and_writes_in_run import POSTFLIGHT, Surroundings, TicketRun
from harken.timings import Timings

__all__ = ["Lease", "RunControl"]

log = structlog.get_logger("harken.tickets")

NUDGE_SECONDS = 0.2
"""How long a nudge waits for others."""


class Lease(Protocol):
    async def keep(self) -> bool:
        """Take or renew the right to attend tickets; whether it is ours."""
        ...


async def _at_once(tracker: TrackerSettings, ticket: str) -> None:
    """Nobody else writes with the credential, and the platform has no limit."""


async def _nobody_to_tell() -> None:
    """The next heartbeat of the worker finds out."""


class RunControl:
    """`trackers` maps the name of a tracker to its locations; both it and `settings` are asked each time.

    `turn` waits for the turn to write to a ticket, or raises Deferred. `on_cancelled` is called when runs may have been
    asked to stop, so that the worker need not wait for its next heartbeat. `trouble` has the trackers whose last pass
    failed. `pass_seconds` is the time between two passes.
    """

    def __init__(
        self,
        store: RunControlStore,
        trackers: Callable[[str], Mapping[str, TicketTracker]],
        settings: Callable[[], Mapping[str, TrackerSettings]],
        clock: Clock,
        *,
        turn: Callable[[TrackerSettings, str], Awaitable[None]] = _at_once,
        on_cancelled: Callable[[], Awaitable[object]] = _nobody_to_tell,
        pass_seconds: float = Timings().ticket_runs_round,
    ) -> None:
        self.trouble: dict[str, str] = {}
        self._store = store
        self._trackers = trackers
        self._settings = settings
        self._clock = clock
        self._turn = turn
        self._on_cancelled = on_cancelled
        self._pass_seconds = pass_seconds
        self._accounts: dict[str, Accounts] = {}
        self._by_tracker: dict[str, OpenRuns] = {}
        self._commented_trackers: set[str] = set()
        self._nudged = asyncio.Event()

    def bracket(self, claimed: Claimed) -> Bracket | None:
        """What is done around this run; None for a run that no ticket started."""
        feed = claimed.events[0].feed if claimed.events else ""
        name = feed.removeprefix(feed_name(""))
        if not feed or name == feed:
            return None
        try:
            return self._ticket_run(name, claimed)
        except HarkenError as error:
            return _Refusal(error)

    def _ticket_run(self, name: str, claimed: Claimed) -> TicketRun:
        settings, data = self._settings().get(name), claimed.events[0].data
        project = settings.project(str(data.get("project") or "")) if settings is not None else None
        if settings is None or project is None:
            message = f"the project of {claimed.trigger} is not configured any more, so its ticket cannot be read"
            raise NeedsAttention(message, fix="Configure it again, then: harken dead retry ID")
        around = Surroundings(
            store=self._store,
            clock=self._clock,
            accounts=self._accounts_of(settings),
            turn=self._turn,
            note_withdrawn=self._note_withdrawn(name),
        )
        return TicketRun(around, self._tracker(settings, project.location), settings, project, claimed)

    def _tracker(self, settings: TrackerSettings, location: str) -> TicketTracker:
        found = self._trackers(settings.name).get(location)
        if found is None:
            raise Misconfigured(f"tracker {settings.name!r} has no {location!r}", fix="Run: harken config check")
        return found

    def _accounts_of(self, settings: TrackerSettings) -> Accounts:
        # by the account too: after it was changed, another one is ours
        return self._accounts.setdefault(f"{settings.name}:{settings.account}", Accounts(self._clock))

    def nudge(self) -> None:
        """Something was learned about a ticket: pass now instead of at the next time."""
        self._nudged.set()

    async def note_comment(self, tracker: str, notice: Notice) -> None:
        """A webhook told of a comment. Who wrote it, and what, is read from the platform."""
        settings = self._settings().get(tracker)
        if settings is not None:
            self._runs_of(settings).note_comment(notice.id)
            self._commented_trackers.add(tracker)
            self.nudge()

    async def keep(self, lease: Lease) -> None:
        """Pass over all trackers until cancelled, while the lease is ours.

        Each tracker has passes of its own: one that hangs or fails stops no other."""
        passes: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                ours = await self._is_ours(lease)
                if not ours:
                    await self._check()
                # what a webhook told this process is not known to the one that attends the tickets
                for name in list(self._settings() if ours else self._commented_trackers):
                    if name not in passes or passes[name].done():
                        self._commented_trackers.discard(name)
                        passes[name] = asyncio.create_task(self.attend(name), name=f"ticket runs {name}")
                await self._wait()
        finally:
            await cancel_and_wait(passes.values())

    async def attend(self, name: str) -> None:
        """Pass once over the open runs of a tracker. A failure is kept in `trouble`, and logged when it begins."""
        settings = self._settings().get(name)
        if settings is None:
            return
        try:
            await self._runs_of(settings).run()
        except HarkenError as error:
            self._note(name, str(error))
        except Exception as error:
            log.exception("ticket_runs.failed", tracker=name)
            self._note(name, f"a bug: {type(error).__name__}")
        else:
            if self.trouble.pop(name, None) is not None:
                log.info("ticket_runs.recovered", tracker=name)

    def _runs_of(self, settings: TrackerSettings) -> OpenRuns:
        known = self._by_tracker.get(settings.name)
        if known is None or known.settings != settings:
            known = self._by_tracker[settings.name] = OpenRuns(
                settings,
                lambda location: self._tracker(settings, location),
                self._store,
                self._clock,
                self._accounts_of(settings),
                self._note_withdrawn(settings.name),
                self._on_cancelled,
            )
        return known

    def _note_withdrawn(self, tracker: str) -> Callable[[str, str, str], Awaitable[None]]:
        memories = TicketMemories(self._store, tracker)

        async def note(project: str, ticket: str, run: str) -> None:
            await memories.update(ticket, lambda known: replace(known or TicketMemory(project=project), withdrawn=run))

        return note

    def _note(self, name: str, why: str) -> None:
        if name not in self.trouble:
            log.warning("ticket_runs.trouble", tracker=name, reason=why)
        self.trouble[name] = why

    async def _check(self) -> None:
        """Another process attends the tickets: what it cancels may be at work here."""
        try:
            await self._on_cancelled()
        except HarkenError as error:
            log.debug("ticket_runs.not_checked", reason=str(error))

    async def _is_ours(self, lease: Lease) -> bool:
        try:
            return await lease.keep()
        except HarkenError as error:
            # that the store is away, and that it is back, is logged by the store itself
            log.debug("ticket_runs.no_lease", reason=str(error))
            return False

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._pass_seconds):
                await self._nudged.wait()
        except TimeoutError:
            return
        await self._clock.sleep(NUDGE_SECONDS)
        self._nudged.clear()


class _Refusal:
    """Around a run whose tracker cannot be had: it does not begin, and says why."""

    def __init__(self, error: HarkenError) -> None:
        self._error = error

    @property
    def first(self) -> Step:
        return Step(id=FIRST_STEP, action=PREFLIGHT, act=self._refuse, pure=True, replays=True)

    @property
    def last(self) -> Step:
        return Step(id=LAST_STEP, action=POSTFLIGHT, act=self._refuse, pure=True)

    async def _refuse(self, frame: Frame) -> None:
        raise self._error
