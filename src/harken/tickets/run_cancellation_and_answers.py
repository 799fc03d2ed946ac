"""One pass over the open runs of a tracker: those that nobody wants any more are cancelled, answers are handed on.

A pass decides by how things are and not by what happened, so a crash in between loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import structlog

from harken.circuit_breaker import error_text
from harken.clock import Clock
from harken.errors import HarkenError, RetryLater
from harken.event import Known, Recorded
from harken.run.steps.ticket import ANSWER
from harken.run.steps.wait_and_approve import APPROVAL
from harken.runs import OPEN, Run, StepRecord
from harken.store import Page
from harken.ticket import Actor, Ticket, TicketTracker
from harken.tickets.actor_access import Accounts
from harken.tickets.answers import answer_in, question_of, replies_to
from harken.tickets.event_from_ticket import VOUCHED
from harken.tickets.label_removal_grace import Removal, find_removal, grace_of, is_meant
from harken.tickets.last_written_ticket_state import DocumentStore
from harken.tickets.settings import ProjectSettings, TrackerSettings, feed_name, trigger_name
from harken.tickets.still_wanted_check import accepted_look, is_unordered
from harken.tickets.withdrawal_decision import Wish, is_replaced, missing_label, own_move, remembered, why_withdrawn

__all__ = ["OpenRuns", "RunControlStore"]

T = TypeVar("T")

log = structlog.get_logger("harken.tickets")

AT_REST = ("held", "ready", "blocked", "waiting")
PAGE = 200
LIST_SECONDS = 15.0
"""How often runs are listed that are not at work: there may be thousands, and none of them does anything."""
LOOK_SECONDS, WEBHOOK_SECONDS = 10.0, 60.0
"""How often a ticket is looked at whose run is at work; less often where webhooks tell that it was withdrawn."""
_LOOKED_AT = {"running": 0.0, "waiting": 60.0}
"""Seconds between two looks at the least. In a run that waits nothing happens meanwhile."""
SPREAD_SECONDS = 2.0
"""Two looks at tickets of one tracker are so far apart on average: a credential has a quota."""
REASON_SECONDS = 3.0
"""So long a platform may take to tell what is only needed for the reason."""
PATIENCE_SHARE, LONGEST_WAIT = 0.05, 300.0
"""The longer a question waits, the less often its answer is looked for: after a part of that time, at most 5 min."""


class RunControlStore(DocumentStore, Protocol):
    """The part of a store that the run control needs."""

    async def runs(
        self, *, trigger: str = "", status: str = "", before: int | None = None, limit: int = 50
    ) -> Page: ...

    async def run(self, run_id: str) -> Run | None: ...

    async def event(self, event_id: int) -> Recorded | None: ...

    async def recall(self, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]: ...

    async def cancel(self, run_id: str, reason: str = ...) -> bool: ...

    async def answer(self, run_id: str, answer: Any) -> bool: ...


class OpenRuns:
    """The open runs of one tracker. `on_cancelled` is called when a run was asked to stop.

    `note_withdrawn(project, ticket, run)` remembers what we saw and the feed may never see.
    """

    def __init__(
        self,
        settings: TrackerSettings,
        connect: Callable[[str], TicketTracker],
        store: RunControlStore,
        clock: Clock,
        accounts: Accounts,
        note_withdrawn: Callable[[str, str, str], Awaitable[None]],
        on_cancelled: Callable[[], Awaitable[object]],
    ) -> None:
        self.settings = settings
        self._connect = connect
        self._store = store
        self._clock = clock
        self._accounts = accounts
        self._note_withdrawn = note_withdrawn
        self._on_cancelled = on_cancelled
        self._events: dict[str, Recorded] = {}
        self._looked: dict[str, float] = {}
        self._sought: dict[str, float] = {}
        self._asked: dict[str, datetime] = {}
        # since when the feed tells of runs that their label is off, and since when our own looks show it
        self._told_off: dict[str, float] = {}
        self._seen_off: dict[str, float] = {}
        self._commented: set[str] = set()
        self._at_rest: list[Run] = []
        self._listed_at: float | None = None
        self._not_before = 0.0
        self._spread = 0.0

    def note_comment(self, ticket: str) -> None:
        """There is a new comment on this ticket: look for an answer in the next pass."""
        self._commented.add(ticket)

    async def run(self) -> None:
        """Pass once. Raise RetryLater if the platform wants us to wait; what needs no platform was done by then."""
        found = await self._open()
        self._forget({run.id for _, run in found})
        events = {run.id: await self._event(run) for _, run in found}
        attended = [(project, run, event) for project, run in found if (event := events[run.id]) is not None]
        left = await self._cancel_withdrawn(attended)
        # a run that asks is looked at, and so are its comments
        self._spread = SPREAD_SECONDS * sum((run.status in _LOOKED_AT) + _asks(run) for _, run, _ in left)
        if self._clock.monotonic() < self._not_before:
            return
        failures: list[HarkenError] = []
        for project, run, event in left:
            try:
                await self._look_after(project, run, event)
            except RetryLater as error:
                self._not_before = self._clock.monotonic() + (error.after or 0.0)
                raise
            except HarkenError as error:
                # what is wrong with one project must not stop the others
                failures.append(error)
        # other comments answer nothing
        self._commented &= {event.subject for _, run, event in left if run.status == "waiting"}
        if failures:
            raise failures[0]

    async def _open(self) -> list[tuple[ProjectSettings, Run]]:
        """The open runs of all projects: those at work as they are now, the others as they were a moment ago."""
        projects = {trigger_name(self.settings.name, project.name): project for project in self.settings.projects}
        now = self._clock.monotonic()
        if self._commented or self._listed_at is None or now - self._listed_at >= LIST_SECONDS:
            at_rest = [await self._list(status, trigger) for trigger in projects for status in AT_REST]
            self._at_rest, self._listed_at = [run for runs in at_rest for run in runs], now
        # there are never more of them than workers have room for, whatever their trigger
        at_work = [run for run in await self._list("running") if run.trigger in projects]
        runs = {run.id: run for run in [*self._at_rest, *at_work]}
        return [(projects[run.trigger], run) for run in runs.values()]

    async def _list(self, status: str, trigger: str = "") -> list[Run]:
        found: list[Run] = []
        before: int | None = None
        while True:
            page = await self._store.runs(trigger=trigger, status=status, before=before, limit=PAGE)
            found += page.items
            if (before := page.next) is None:
                return found

    async def _event(self, run: Run) -> Recorded | None:
        """The event of a ticket that made the run; None for a run that was started without one."""
        if run.id not in self._events and run.event_ids:
            event = await self._store.event(run.event_ids[0])
            if event is not None and event.feed == feed_name(self.settings.name):
                self._events[run.id] = event
        return self._events.get(run.id)

    def _forget(self, there: set[str]) -> None:
        by_run = (self._events, self._looked, self._sought, self._asked, self._told_off, self._seen_off)
        known: tuple[dict[str, Any], ...] = by_run
        for run in {run for one in known for run in one} - there:
            for one in known:
                one.pop(run, None)

    async def _cancel_withdrawn(
        self, attended: Sequence[tuple[ProjectSettings, Run, Recorded]]
    ) -> list[tuple[ProjectSettings, Run, Recorded]]:
        """Cancel what the feed's memory says is withdrawn. Returns the runs that are left to be looked after."""
        feed, left = feed_name(self.settings.name), []
        for start in range(0, len(attended), PAGE):
            part = attended[start : start + PAGE]
            known = await self._store.recall(feed, [event.subject for _, _, event in part])
            for project, run, event in part:
                state = known[event.subject].state if event.subject in known else None
                if not await self._cancel_remembered(project, run, event, state):
                    left.append((project, run, event))
        return left

    async def _cancel_remembered(self, project: ProjectSettings, run: Run, event: Recorded, state: str | None) -> bool:
        if run.cancel_requested:
            return True
        if not remembered(state, self._wish(project, event, ())).reason:
            if self._told_off.pop(run.id, None) is not None:
                # it may be a list that is behind which shows the label
                self._looked.pop(run.id, None)
            return False
        whole = await self._store.run(run.id)
        if whole is None or whole.status not in OPEN:
            return True
        wish = self._wish(project, event, whole.journal)
        told = remembered(state, wish)
        if not told.reason:
            return False
        if not told.certain:
            # only the ticket itself can tell
            self._looked.pop(run.id, None)
            return False
        if told.unlabelled and wish.label:
            return await self._cancel_unlabelled(whole, event, wish)
        ticket = await self._try(project, run, lambda tracker: tracker.get(event.subject))
        await self._cancel(project, run, event, (ticket and why_withdrawn(ticket, wish)) or told.reason)
        return True

    async def _cancel_unlabelled(self, run: Run, event: Recorded, wish: Wish) -> bool:
        """Cancel a run whose label is off by what the feed knows, unless it may be back in a moment."""
        seen_for = self._age(self._told_off, run.id)
        if seen_for < grace_of(self.settings, begun=accepted_look(run.journal) is not None):
            return False
        project, label = wish.project, wish.label
        found = await self._try(project, run, lambda tracker: find_removal(tracker, _ticket_of(event), label))
        removal, ticket = found or Removal(label=label), None
        if removal.back:
            ticket = await self._try(project, run, lambda tracker: tracker.get(event.subject))
        if ticket is not None and not why_withdrawn(ticket, wish):
            # the feed finds out with its next read
            return False
        await self._cancel(project, run, event, removal.text)
        return True

    async def _try(self, project: ProjectSettings, run: Run, read: Callable[[TicketTracker], Awaitable[T]]) -> T | None:
        """Read what a cancelled run would say about itself. Without it the run is cancelled all the same."""
        try:
            async with asyncio.timeout(REASON_SECONDS):
                return await read(self._connect(project.location))
        except (HarkenError, TimeoutError) as error:
            log.debug("ticket.reason_not_read", tracker=self.settings.name, run=run.id, reason=error_text(error))
            return None

    def _age(self, since: dict[str, float], run: str) -> float:
        """For how many seconds this is known of the run; from now on if it is new."""
        now = self._clock.monotonic()
        return now - since.setdefault(run, now)

    async def _look_after(self, project: ProjectSettings, run: Run, event: Recorded) -> None:
        heard = event.subject in self._commented
        if _asks(run) and (heard or self._is_due(self._sought, run, self._patience(run))):
            await self._seek_answer(project, run, event)
        # the feed does not see that the label of this run is gone while another one of the map is on the ticket
        if run.status in _LOOKED_AT and self._is_due(self._looked, run, _LOOKED_AT[run.status]):
            await self._look_at(project, run, event)

    async def _look_at(self, project: ProjectSettings, run: Run, event: Recorded) -> None:
        """Read the ticket, and cancel the run if nobody wants it any more."""
        whole, tracker = await self._store.run(run.id), self._connect(project.location)
        ticket = await tracker.get(event.subject)
        self._looked[run.id] = self._clock.monotonic()
        if whole is None or ticket is None or _is_behind(ticket, event):
            # a ticket that is gone is found by the feed, which knows copies that are behind
            return
        wish = self._wish(project, event, whole.journal, begun=True)
        reason = why_withdrawn(ticket, wish)
        if not reason:
            self._seen_off.pop(run.id, None)
            return
        if is_unordered(ticket, event, self._clock.now()):
            self._looked.pop(run.id)
            return
        if label := missing_label(ticket, wish):
            removal = await find_removal(tracker, ticket, label)
            grace = grace_of(self.settings, begun=accepted_look(whole.journal) is not None)
            seen_for = self._age(self._seen_off, run.id)
            for_good = is_replaced(ticket, wish)
            if not for_good and not is_meant(removal, grace, seen_for=seen_for, now=self._clock.now()):
                # look again in the next pass
                self._looked.pop(run.id)
                return
            reason = removal.text
        await self._cancel(project, run, event, reason)

    def _is_due(self, last: Mapping[str, float], run: Run, least: float) -> bool:
        """Whether this was done last long enough ago for the run."""
        every = max(WEBHOOK_SECONDS if self.settings.webhook else LOOK_SECONDS, self._spread, least)
        at = last.get(run.id)
        return at is None or self._clock.monotonic() - at >= every

    def _patience(self, run: Run) -> float:
        asked_at = self._asked.get(run.id)
        waited = (self._clock.now() - asked_at).total_seconds() if asked_at is not None else 0.0
        return min(LONGEST_WAIT, PATIENCE_SHARE * waited)

    def _wish(
        self, project: ProjectSettings, event: Recorded, journal: Iterable[StepRecord], *, begun: bool = False
    ) -> Wish:
        records = list(journal)
        return Wish(
            tracker=self.settings,
            project=project,
            label=str(event.data.get("label") or ""),
            begun=begun or accepted_look(records) is not None,
            moved=own_move(records),
        )

    async def _cancel(self, project: ProjectSettings, run: Run, event: Recorded, reason: str) -> None:
        await self._note_withdrawn(project.name, event.subject, run.id)
        if await self._store.cancel(run.id, reason):
            log.info("ticket.withdrawn", tracker=self.settings.name, ticket=event.subject, run=run.id, reason=reason)
            await self._on_cancelled()

    async def _seek_answer(self, project: ProjectSettings, run: Run, event: Recorded) -> None:
        whole = await self._store.run(run.id)
        question = question_of(whole) if whole is not None else None
        self._commented.discard(event.subject)
        self._sought[run.id] = self._clock.monotonic()
        if question is None or whole is None:
            return
        self._asked[run.id] = question.asked_at
        tracker, ticket = self._connect(project.location), _ticket_of(event)
        own = await self._accounts.own(tracker, project.location)
        starter = _trusted_starter(whole, event)
        for reply in replies_to(question, await tracker.comments(ticket, question.asked_at), own):
            answer = answer_in(reply, question)
            if answer is None or not await self._may_answer(tracker, project, reply.author, starter):
                continue
            if await self._store.answer(run.id, answer):
                log.info("ticket.answered", tracker=self.settings.name, ticket=ticket.ref, run=run.id)
            return

    async def _may_answer(
        self, tracker: TicketTracker, project: ProjectSettings, author: Actor | None, starter: str
    ) -> bool:
        """Whoever may start a run may answer, and so may whoever started this one."""
        if author is not None and starter and author.id == starter:
            return True
        return (await self._accounts.judge(tracker, project.location, author, project.trust)).yes


def _asks(run: Run) -> bool:
    """Whether the run waits for an answer on its ticket."""
    return run.status == "waiting" and run.waiting_for in (ANSWER, APPROVAL)


def _trusted_starter(run: Run, event: Recorded) -> str:
    """The id of whoever put the label on and was trusted for it; empty if somebody else let the run begin."""
    accepted = accepted_look(run.journal) or {}
    if accepted.get("approved_by") or event.data.get(VOUCHED):
        return ""
    return str(accepted.get("labelled_by_id") or "")


def _ticket_of(event: Recorded) -> Ticket:
    """The ticket as its event had it, which is enough to ask for its comments."""
    ref, number, repo = (str(event.data.get(name) or "") for name in ("ref", "number", "repo"))
    return Ticket(id=event.subject, ref=ref, number=number, repo=repo, title="", url="", status="", closed=False)


def _is_behind(ticket: Ticket, event: Recorded) -> bool:
    known = event.occurred_at
    return known is not None and ticket.updated_at is not None and ticket.updated_at < known
