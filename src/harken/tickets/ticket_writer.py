"""Brings one ticket to what its newest run says: the label, then the comments, then the native status.

Each visit reads the ticket and compares, so it does not matter where an earlier one was interrupted. A write is
remembered after it was made; one that is repeated because of that changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import Deferred, NeedsAttention
from harken.event import Event, Recorded
from harken.runs import FINAL, Run
from harken.ticket import Actor, Comment, Ticket, TicketTracker
from harken.tickets.actor_access import Accounts
from harken.tickets.comment_marks import Receipt, is_sticky, notice_line, receipt_line
from harken.tickets.comment_text import (
    UNKNOWN_ACCOUNT,
    Markup,
    Report,
    asked_in,
    fight_text,
    markup_of,
    notice_of,
    notice_text,
    repair_text,
    report_of,
    sticky_text,
    trusted_labeller,
)
from harken.tickets.desired_ticket_label import ENQUEUED_AFTER, UNSURE, desired_state, is_lost, repairs_allowed
from harken.tickets.label_removal_grace import GRACE_SECONDS
from harken.tickets.last_written_ticket_state import TicketMemories, TicketMemory
from harken.tickets.lifecycle_labels import Lifecycle
from harken.tickets.observation_against_last_write import Age, age_of
from harken.tickets.readiness import standing
from harken.tickets.settings import ProjectSettings, TrackerSettings, scope_of
from harken.tickets.still_wanted_check import Preflight, accepted_look
from harken.tickets.write_pace import PROGRESS, WritePace

__all__ = ["NotMoved", "RunStore", "Target", "TicketWriter", "stage_of"]

log = structlog.get_logger("harken.tickets")

PROGRESS_EVERY = timedelta(seconds=60)
"""The sticky comment is edited for progress no more often than this, and a shorter run has one only at its end."""

GONE_AFTER = timedelta(minutes=10)
"""A ticket that is missing so shortly after it was seen may be missing only in a copy that is behind."""

PREFLIGHT_SECONDS = 1.5
"""A run that is looking at its ticket is shown after that; it takes a moment."""

FIGHT = "ticket.label_fight"
_HOUR = timedelta(hours=1)
_NATIVE = frozenset({Lifecycle.DONE, Lifecycle.FAILED})

_change = msgspec.structs.replace


class NotMoved(NeedsAttention):
    """The ticket shows its run, but its native status could not be changed."""


class RunStore(Protocol):
    async def run(self, run_id: str) -> Run | None: ...

    async def event(self, event_id: int) -> Recorded | None: ...


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a ticket is: its tracker, its project, and how to write there."""

    settings: TrackerSettings
    project: ProjectSettings
    tracker: TicketTracker
    memories: TicketMemories
    pace: WritePace

    @property
    def markup(self) -> Markup:
        return markup_of(self.settings.kind)


def stage_of(run: Run) -> str:
    """Names the state of a run that a ticket shows once. A run that is tried again, or asks again, has a new one."""
    if run.status in FINAL:
        return f"{run.id}:{run.status}:{run.attempt}"
    return f"{run.id}:{run.status}:{len(run.journal) if run.status == 'waiting' else 0}"


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Who asked for a run, with which label, and for which pipeline."""

    by: Actor | None = None
    label: str = ""
    pipeline: str = ""


class TicketWriter:
    """`key` signs receipts. `redact` hides secrets in what runs printed. `announce` raises an alert."""

    def __init__(
        self,
        store: RunStore,
        clock: Clock,
        key: bytes,
        *,
        redact: Callable[[str], str] = str,
        announce: Callable[[Event], Awaitable[object]] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._key = key
        self._redact = redact
        self._announce = announce
        self._own: dict[str, str] = {}
        self._asked: dict[str, _Asked] = {}
        self._told: dict[str, Report] = {}
        # since when the label of runs is off that are done
        self._unlabelled: dict[str, float] = {}
        self._accounts: dict[str, Accounts] = {}
        # runs that have not begun, of which somebody who may has asked for them
        self._trusted: set[str] = set()

    async def visit(self, target: Target, id: str, began: datetime | None, look_every: float) -> float | None:
        """Bring the ticket up to date. `began`: when its run came into its state, if that is known.

        Return in how many seconds to look at it again; None if it is finished."""
        memory = await target.memories.get(id)
        if memory is None or not memory.run:
            return None
        run = await self._store.run(memory.run)
        now = self._clock.now()
        if run is None:
            return await self._visit_orphan(target, id, memory)
        if run.status in FINAL and memory.settled == stage_of(run):
            return None
        if memory.status != run.status:
            # it moved while its project was not configured
            memory = await self._remember(target, id, memory, status=run.status)
        too_soon = ENQUEUED_AFTER - (now - (began or run.created_at))
        if run.status in ("ready", "blocked", "gathering") and too_soon > timedelta():
            return too_soon.total_seconds()
        if run.status == "running" and accepted_look(run.journal) is None:
            return PREFLIGHT_SECONDS
        ticket = await target.tracker.get(id)
        if ticket is None and now - (run.finished_at or run.created_at) < GONE_AFTER:
            return look_every
        if ticket is None:
            log.info("ticket.gone", tracker=target.settings.name, ticket=id, run=run.id)
            await self._remember(target, id, memory, settled=stage_of(run))
            return None
        trusted = run.status not in UNSURE or await self._is_trusted(target, ticket, run)
        wanted = self._wanted(target, run, ticket, memory, began or run.created_at, trusted=trusted)
        if run.status == "done" and wanted is None and (left := self._grace_left(target, run, ticket)) > 0:
            return left
        memory = await self._show(target, ticket, memory, run, wanted)
        memory = await self._tell(target, ticket, memory, run)
        if run.status in FINAL:
            await self._move(target, ticket, wanted)
        if memory.settled != stage_of(run):
            # a run that ended too late for a person who took their wish back counts as cancelled
            status = "cancelled" if run.status == "done" and wanted is None else run.status
            await self._remember(target, id, memory, settled=stage_of(run), status=status)
        if run.status in FINAL:
            self._asked.pop(run.id, None)
            self._told.pop(run.id, None)
            self._unlabelled.pop(run.id, None)
            self._trusted.discard(run.id)
            return None
        return look_every

    async def _is_trusted(self, target: Target, ticket: Ticket, run: Run) -> bool:
        """Whether somebody who may has asked for this run. Of one that waits, that is found out as its first step will.

        A person who waits for a worker for hours wants to see that, but a stranger must not make us write."""
        if run.id in self._trusted or accepted_look(run.journal) is not None:
            return True
        event = await self._store.event(run.event_ids[0]) if run.event_ids else None
        if event is None:
            return False
        name = f"{target.settings.name}:{target.settings.account}"
        accounts = self._accounts.setdefault(name, Accounts(self._clock))
        preflight = Preflight(target.tracker, accounts, self._clock, target.settings, target.project, event)
        try:
            trusted = (await preflight.judge(ticket, run.journal)).trusted.yes
        except Deferred as error:
            log.debug("ticket.not_shown_yet", tracker=target.settings.name, ticket=ticket.ref, reason=str(error))
            return False
        if trusted:
            self._trusted.add(run.id)
        return trusted

    def _wanted(
        self, target: Target, run: Run, ticket: Ticket, memory: TicketMemory, began: datetime, *, trusted: bool
    ) -> Lifecycle | None:
        wanted = desired_state(run.status, began, self._clock.now(), memory.shown, trusted=trusted)
        if wanted is not Lifecycle.DONE or memory.shown is wanted or not memory.version:
            return wanted
        by_itself = any(record.action == "ticket.transition" for record in run.journal)
        if by_itself or _is_behind(ticket, memory) or not _is_withdrawn(target, ticket):
            return wanted
        # a person took back what they asked for in the moment when it ended
        return None

    def _grace_left(self, target: Target, run: Run, ticket: Ticket) -> float:
        """How many seconds the label may still be off, if that is all that is missing."""
        if _state_with(target, ticket, Lifecycle.IN_PROGRESS) != "withdrawn:label":
            return 0.0
        now = self._clock.monotonic()
        return GRACE_SECONDS - (now - self._unlabelled.setdefault(run.id, now))

    async def _visit_orphan(self, target: Target, id: str, memory: TicketMemory) -> float | None:
        """The run is not in the store any more. If it had not ended, the ticket can be claimed again."""
        if memory.status in FINAL or not memory.status:
            return None
        ticket = await target.tracker.get(id)
        if ticket is not None:
            memory = await self._swap(target, ticket, memory, Lifecycle.PENDING)
        log.warning("ticket.run_lost", tracker=target.settings.name, ticket=id, run=memory.run)
        await self._remember(target, id, memory, run="", status="", settled="")
        return None

    async def _show(
        self, target: Target, ticket: Ticket, memory: TicketMemory, run: Run, wanted: Lifecycle | None
    ) -> TicketMemory:
        labels, behind = target.settings.lifecycle, _is_behind(ticket, memory)
        found = labels.state_of(ticket.labels)
        leftover = wanted is None and found is not None and run.status in FINAL and not behind
        if wanted != memory.shown or leftover:
            share = PROGRESS if wanted is Lifecycle.ENQUEUED else 1.0
            return await self._swap(target, ticket, memory, wanted, share=share)
        if run.status in FINAL or memory.shown is None:
            return memory
        if is_lost(memory, ticket, labels, self._clock.now()):
            return await self._repair(target, ticket, memory, run)
        if found == memory.shown and not memory.confirmed and not behind:
            return await self._remember(target, ticket.id, memory, confirmed=True)
        return memory

    async def _swap(
        self, target: Target, ticket: Ticket, memory: TicketMemory, wanted: Lifecycle | None, *, share: float = 1.0
    ) -> TicketMemory:
        """Write the label, unless a read that is not behind shows it: then only our memory of the write was lost.

        Before the first write for a run, the label may be that of the run before, which a person has taken off since,
        in a copy that does not know it yet."""
        labels = target.settings.lifecycle
        is_right = labels.state_of(ticket.labels) == wanted and not labels.surplus(ticket.labels, wanted)
        of_earlier_run = memory.shown is None and memory.wrote_at is not None
        there = is_right and not of_earlier_run and not _is_behind(ticket, memory)
        after = ticket if there else await self._write_labels(target, ticket, memory, wanted, share)
        now = self._clock.now()
        return await self._remember(
            target, ticket.id, memory, shown=wanted, wrote_at=now, version=after.version, confirmed=there
        )

    async def _write_labels(
        self, target: Target, ticket: Ticket, memory: TicketMemory, wanted: Lifecycle | None, share: float
    ) -> Ticket:
        labels = target.settings.lifecycle
        add = [] if wanted is None else [labels.label(wanted)]
        # all of them, because a read that is behind does not show which are there
        others = [labels.label(state) for state in Lifecycle if state is not wanted]
        surplus = dict.fromkeys([*labels.surplus(ticket.labels, wanted), *others])
        if _is_behind(ticket, memory) and memory.shown is not None:
            # it has the label that we wrote, whatever the copy shows
            ticket = _change(ticket, labels=tuple(dict.fromkeys([*ticket.labels, labels.label(memory.shown)])))
        async with target.pace.turn(ticket.id, share=share):
            return await target.tracker.swap_labels(ticket, add, list(surplus))

    async def _repair(self, target: Target, ticket: Ticket, memory: TicketMemory, run: Run) -> TicketMemory:
        """Put our label back, unless a person is ending the run, or another account fights with us."""
        assert memory.shown is not None
        if memory.fought or run.cancel_requested or _is_withdrawn(target, ticket, memory.shown):
            return memory
        now, label = self._clock.now(), target.settings.lifecycle.label(memory.shown)
        recent = tuple(at for at in memory.repairs if now - at < _HOUR)
        if not repairs_allowed(recent, now):
            return await self._give_up(target, ticket, memory, run, label, len(recent))
        # counted before it is made: a crash must not make room for one more
        memory = await self._remember(target, ticket.id, memory, repairs=(*recent, now), confirmed=False)
        memory = await self._swap(target, ticket, memory, memory.shown)
        log.info("ticket.label_restored", tracker=target.settings.name, ticket=ticket.ref, label=label, run=run.id)
        if not recent:
            asked = await self._who_asked(target, ticket, run)
            async with target.pace.turn(ticket.id):
                await target.tracker.comment(ticket, repair_text(label, asked.label, target.markup))
        return memory

    async def _give_up(
        self, target: Target, ticket: Ticket, memory: TicketMemory, run: Run, label: str, repairs: int
    ) -> TicketMemory:
        accounts = await self._who_changes(target, ticket)
        await self._alert(target, ticket, run, label, accounts, repairs)
        memory = await self._remember(target, ticket.id, memory, fought=True)
        async with target.pace.turn(ticket.id):
            await target.tracker.comment(ticket, fight_text(label, accounts, repairs, target.markup))
        return memory

    async def _alert(
        self, target: Target, ticket: Ticket, run: Run, label: str, accounts: Sequence[str], repairs: int
    ) -> None:
        """Log and announce a fight. An alert that is announced again after a crash has the same key."""
        facts = {"tracker": target.settings.name, "ticket": ticket.ref, "label": label, "accounts": list(accounts)}
        log.warning(FIGHT, run=run.id, **facts)
        if self._announce is None:
            return
        subject = f"{target.settings.name}/{ticket.id}"
        key = f"{FIGHT}:{subject}:{run.id}"
        who = ", ".join(accounts) or UNKNOWN_ACCOUNT
        text = (
            f"{who} changed the label {label} of {ticket.ref} {repairs} times within an hour; it is not put "
            "back any more. Keep that account from changing labels of Harken"
        )
        data: Mapping[str, Any] = {**facts, "url": ticket.url, "run": run.id, "alert": True, "text": text}
        at = self._clock.now()
        await self._announce(Event(subject=subject, type=FIGHT, key=key, state=key, occurred_at=at, data=data))

    async def _who_changes(self, target: Target, ticket: Ticket) -> list[str]:
        """The accounts other than ours that changed a label of ours within the last hour."""
        changes = await target.tracker.label_history(ticket) or ()
        own, since = await self._own_id(target), self._clock.now() - _HOUR
        ours = [change for change in changes if not target.settings.lifecycle.others([change.label])]
        late = [change.actor for change in ours if change.at is None or change.at >= since]
        return sorted({actor.login or actor.id for actor in late if actor is not None and actor.id != own})

    async def _tell(self, target: Target, ticket: Ticket, memory: TicketMemory, run: Run) -> TicketMemory:
        """Write what a person must know at once, and progress now and then."""
        is_new = memory.settled != stage_of(run)
        if run.status == "held" or (run.status == "cancelled" and not memory.comment and run.started_at is None):
            return memory
        kind = notice_of(run) if is_new else ""
        urgent = bool(kind) or (is_new and run.status in FINAL)
        if not urgent and not self._may_report(memory, run):
            return memory
        asked = await self._who_asked(target, ticket, run)
        report = self._report(run, asked)
        if memory.comment and self._told.get(run.id) == report:
            return memory
        notice = notice_text(kind, report, target.markup, notice_line(stage_of(run))) if kind else ""
        earlier: Comment | None = None
        if not memory.comment or notice:
            memory, earlier = await self._find_own(target, ticket, memory, notice_line(stage_of(run)))
        if earlier is not None:
            memory = await self._note_question(target, ticket, memory, run, earlier)
            # in the sticky comment it stays: answers are looked for behind its line
            notice = notice if earlier.id == memory.comment else ""
        elif notice and memory.comment:
            async with target.pace.turn(ticket.id):
                written = await target.tracker.comment(ticket, notice)
            memory = await self._note_question(target, ticket, memory, run, written)
            notice = ""
        memory = await self._write_sticky(target, ticket, memory, run, report, notice, urgent=urgent)
        self._told[run.id] = report
        return memory

    def _may_report(self, memory: TicketMemory, run: Run) -> bool:
        if run.status == "waiting":
            return memory.settled != stage_of(run) and bool(memory.comment)
        if run.status != "running":
            return False
        last = memory.commented_at if memory.comment else run.started_at
        return last is None or self._clock.now() - last >= PROGRESS_EVERY

    async def _find_own(
        self, target: Target, ticket: Ticket, memory: TicketMemory, line: str
    ) -> tuple[TicketMemory, Comment | None]:
        """Look for what an earlier visit wrote and could not remember: the sticky comment, and one with this line."""
        own = await self._own_id(target)
        ours = [one for one in await target.tracker.comments(ticket) if one.author is not None and one.author.id == own]
        if memory.comment not in {one.id for one in ours}:
            sticky = next((one.id for one in reversed(ours) if is_sticky(one)), "")
            memory = await self._remember(target, ticket.id, memory, comment=sticky)
        return memory, next((one for one in reversed(ours) if line in one.text), None)

    async def _write_sticky(
        self,
        target: Target,
        ticket: Ticket,
        memory: TicketMemory,
        run: Run,
        report: Report,
        notice: str,
        *,
        urgent: bool,
    ) -> TicketMemory:
        receipt = Receipt(run=run.id, pipeline=report.pipeline, revision=run.workflow_rev, state=run.status)
        line = receipt_line(receipt, self._key, target.settings.kind, ticket.id)
        now, share = self._clock.now(), 1.0 if urgent else PROGRESS
        text = sticky_text(report, line, target.markup, notice=notice, at=now)
        written: Comment | None = None
        if memory.comment:
            async with target.pace.turn(ticket.id, share=share):
                written = await target.tracker.edit_comment(ticket, memory.comment, text)
        if written is None:
            async with target.pace.turn(ticket.id, share=share):
                written = await target.tracker.comment(ticket, text)
        made = written
        memory = await self._remember(target, ticket.id, memory, comment=made.id, commented_at=now)
        return await self._note_question(target, ticket, memory, run, made) if notice else memory

    async def _note_question(
        self, target: Target, ticket: Ticket, memory: TicketMemory, run: Run, written: Comment
    ) -> TicketMemory:
        """Remember when a question was asked, by the clock of the platform: answers come after it."""
        if not asked_in(run):
            return memory
        at = written.created_at or self._clock.now()
        return await self._remember(target, ticket.id, memory, asked_at=at)

    def _report(self, run: Run, asked: _Asked) -> Report:
        report = report_of(run, asked.pipeline or run.workflow, asked.label, asked.by)
        return _change(
            report,
            error=self._redact(report.error),
            question=self._redact(report.question),
            lines=tuple(self._redact(line) for line in report.lines),
        )

    async def _who_asked(self, target: Target, ticket: Ticket, run: Run) -> _Asked:
        """Whoever put the trigger label on last; found once per run."""
        if run.id not in self._asked:
            event = await self._store.event(run.event_ids[0]) if run.event_ids else None
            data = event.data if event is not None and isinstance(event.data, Mapping) else {}
            label, pipeline = str(data.get("label") or ""), str(data.get("pipeline") or "")
            by = trusted_labeller(run)
            if by is None and label:
                by = await self._who_labelled(target, ticket, label)
            self._asked[run.id] = _Asked(by=by, label=label, pipeline=pipeline)
        return self._asked[run.id]

    async def _who_labelled(self, target: Target, ticket: Ticket, label: str) -> Actor | None:
        changes: Sequence[Any] = await target.tracker.label_history(ticket) or ()
        added = [change for change in changes if change.added and change.label.casefold() == label.casefold()]
        return added[-1].actor if added else None

    async def _remember(self, target: Target, ticket: str, memory: TicketMemory, **changes: Any) -> TicketMemory:
        return await target.memories.update(ticket, lambda known: _change(known or memory, **changes))

    async def _own_id(self, target: Target) -> str:
        if target.settings.account not in self._own:
            self._own[target.settings.account] = (await target.tracker.own_account()).id
        return self._own[target.settings.account]

    async def _move(self, target: Target, ticket: Ticket, wanted: Lifecycle | None) -> None:
        """Move the ticket into the status that the configuration has for the end of a run."""
        if wanted not in _NATIVE or ticket.closed:
            return
        settings = target.settings
        status = settings.done_status if wanted is Lifecycle.DONE else settings.failed_status
        if status and ticket.status.casefold() != status.strip().casefold():
            try:
                async with target.pace.turn(ticket.id):
                    await target.tracker.transition(ticket, status)
            except NeedsAttention as error:
                raise NotMoved(error.message, fix=error.fix) from error


def _is_behind(ticket: Ticket, memory: TicketMemory) -> bool:
    """Whether the ticket was read from a copy that does not know our last write."""
    return age_of(ticket, memory) is Age.OLDER


def _is_withdrawn(target: Target, ticket: Ticket, shown: Lifecycle = Lifecycle.IN_PROGRESS) -> bool:
    """Whether a person took away what started the run: the trigger label, an open state, or the ticket is closed."""
    state = _state_with(target, ticket, shown)
    return state == "closed" or state.startswith("withdrawn")


def _state_with(target: Target, ticket: Ticket, shown: Lifecycle) -> str:
    """Where the ticket would stand with this label of ours.

    Without one, a ticket that has a run looks like one that waits for one."""
    labels = target.settings.lifecycle
    as_shown = _change(ticket, labels=(*labels.others(ticket.labels), labels.label(shown)))
    return standing(as_shown, scope_of(target.settings, target.project)).state
