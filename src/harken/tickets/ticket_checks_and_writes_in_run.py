"""What happens around the run of a ticket: a look before it begins and before it ends, and what its steps may do.

Every write looks at the ticket first. A run whose ticket was withdrawn ends there, as cancelled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import structlog

from harken.circuit_breaker import doubled
from harken.clock import Clock
from harken.errors import Deferred, NeedsAttention, Refused, RetryLater
from harken.event import Known
from harken.run.control_flow_exceptions import Parked, Withdrawn
from harken.run.execute import Frame
from harken.run.plan import Step
from harken.run.steps.wait_and_approve import APPROVAL
from harken.runs import Claimed, Park, Run, StepRecord
from harken.ticket import Comment, PullRequest, Ticket, TicketTracker
from harken.tickets.actor_access import Accounts
from harken.tickets.cursor import SWEEP_EVERY
from harken.tickets.label_removal_grace import GRACE_SECONDS, grace_of, is_meant, seconds_left
from harken.tickets.settings import FIRST_STEP, LAST_STEP, ProjectSettings, TrackerSettings, feed_name
from harken.tickets.still_wanted_check import PREFLIGHT, Preflight, Seen, accepted_look, is_same_label
from harken.tickets.unique_comments import find_note, inert, note
from harken.tickets.who_may_start_wording import approval_question, how_to_start, question_text
from harken.tickets.withdrawal_decision import remembered

__all__ = ["RunLooks", "Surroundings", "TicketRun"]

log = structlog.get_logger("harken.tickets")

POSTFLIGHT = "ticket.postflight"
LOOK_AGAIN = timedelta(minutes=1)
"""A run that goes on so shortly after its last look does not look again: each of its writes does."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0
PATIENT_TRIES = 50
"""So often a platform that does not answer is waited for; then the tries of the run count."""
RELOOK_SECONDS = 2.5
"""A run at work looks so often whether its label is back."""
LONGEST_TITLE, LONGEST_TEXT = 1_000, 100_000


class RunLooks(Protocol):
    """The part of a store that a look needs."""

    async def run(self, run_id: str) -> Run | None: ...

    async def recall(self, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]: ...


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the runs of one tracker share.

    `turn` waits for the turn to write to a ticket, or raises Deferred. `note_withdrawn(project, ticket, run)` remembers
    that a person took back what they asked for, so that asking again counts as a new wish.
    """

    store: RunLooks
    clock: Clock
    accounts: Accounts
    turn: Callable[[TrackerSettings, str], Awaitable[None]]
    note_withdrawn: Callable[[str, str, str], Awaitable[None]]


class TicketRun:
    """A claimed run with its ticket: the `Bracket` around its steps, and the `TicketActs` that they may use."""

    def __init__(
        self,
        around: Surroundings,
        tracker: TicketTracker,
        settings: TrackerSettings,
        project: ProjectSettings,
        claimed: Claimed,
    ) -> None:
        self._around = around
        self._tracker = tracker
        self._settings = settings
        self._project = project
        self._claimed = claimed
        self._event = claimed.events[0]
        self._check = Preflight(tracker, around.accounts, around.clock, settings, project, self._event)

    @property
    def first(self) -> Step:
        # not pure, so that it is in the store before the next step begins: only then is the run shown on its ticket
        return Step(id=FIRST_STEP, action=PREFLIGHT, act=self._preflight, pure=False, replays=True)

    @property
    def last(self) -> Step:
        return Step(id=LAST_STEP, action=POSTFLIGHT, act=self._postflight, pure=True)

    async def comment(self, frame: Frame, text: str) -> Mapping[str, Any]:
        with _patient(frame):
            ticket = await self._look_again(frame)
            return _shown(await self._write_once(ticket, frame.key, text))

    async def ask(self, frame: Frame, question: str) -> Mapping[str, Any]:
        with _patient(frame):
            ticket = await self._look_again(frame)
            comment = await self._write_once(ticket, frame.key, question_text(question, self._project.trust))
            asked_at = comment.created_at or self._around.clock.now()
            return {**_shown(comment), "asked_at": asked_at.isoformat()}

    async def transition(self, frame: Frame, status: str) -> Mapping[str, Any]:
        """What was begun is noted before: a ticket that we have closed ourselves is not withdrawn."""
        begun = frame.earlier is not None and frame.earlier.status == "waiting"
        with _patient(frame):
            ticket = await self._look_again(frame, moving=begun)
            if ticket.status.casefold() == status.casefold():
                return {"status": ticket.status, "closed": ticket.closed}
            await self._around.turn(self._settings, ticket.id)
            if not begun:
                frame.execution.journal.add(frame.waiting_record({"status": status}), pure=False)
                await frame.execution.journal.flush_effects()
            moved = await self._tracker.transition(ticket, status)
            return {"status": moved.status, "closed": moved.closed}

    async def open_pull_request(self, frame: Frame, given: Mapping[str, str]) -> Mapping[str, Any]:
        open_request = getattr(self._tracker, "ensure_pull_request", None)
        if open_request is None:
            fix = "Open it with an action of the service that has the code"
            raise Refused(f"{self._settings.kind} has no pull requests", fix=fix)
        with _patient(frame):
            ticket = await self._look_again(frame)
            wanted = PullRequest(
                repo=given["repo"] or ticket.repo or _repository_name(self._project.repository),
                head=given["head"],
                base=given["base"] or self._project.base or "main",
                title=given["title"] or ticket.title,
                text=given["text"],
            )
            await self._around.turn(self._settings, ticket.id)
            return {"url": await open_request(wanted), "head": wanted.head, "base": wanted.base}

    async def _preflight(self, frame: Frame) -> Any:
        earlier = frame.earlier
        if earlier is not None and earlier.status == "ok" and _is_recent(earlier, self._around.clock):
            return earlier.output
        await self._note_approval(frame)
        with _patient(frame):
            seen = await self._look(frame)
        approved_by = self._approved_by(frame, seen)
        if not seen.trusted.yes and not approved_by:
            await self._refuse(frame, seen)
        assert seen.ticket is not None
        output = self._written(seen, seen.ticket, frame, approved_by)
        if earlier is not None and earlier.status == "ok":
            # the engine writes a step that was done before only once
            now = self._around.clock.now()
            record = StepRecord(path=frame.path, action=PREFLIGHT, status="ok", output=output, finished_at=now)
            frame.execution.journal.add(record, pure=True)
        return output

    async def _postflight(self, frame: Frame) -> Any:
        with _patient(frame):
            ticket = await self._look_again(frame)
        return {"ticket": ticket.ref, "status": ticket.status}

    async def _look_again(self, frame: Frame, *, moving: bool = False) -> Ticket:
        seen = await self._look(frame, moving=moving)
        if not seen.trusted.yes:
            raise Withdrawn(seen.trusted.reason)
        assert seen.ticket is not None
        return seen.ticket

    async def _look(self, frame: Frame, *, moving: bool = False) -> Seen:
        journal = self._records(frame)
        run = await self._around.store.run(self._claimed.id)
        if run is not None and run.cancel_requested:
            raise Withdrawn(run.error or "it was asked to stop")
        seen = await self._look_for_label(journal, moving=moving)
        if seen.reason:
            await self._around.note_withdrawn(self._project.name, self._event.subject, self._claimed.id)
            raise Withdrawn(seen.reason)
        feed = feed_name(self._settings.name)
        known = (await self._around.store.recall(feed, [self._event.subject])).get(self._event.subject)
        told = remembered(known.state if known is not None else None, self._check.wish(journal))
        if told.reason and told.certain and not moving:
            # a webhook or a list has told us more than this read did: one of them is behind
            raise Deferred(f"the ticket is shown as it was before {told.reason}", after=FIRST_PAUSE)
        return seen

    async def _look_for_label(self, journal: Sequence[StepRecord], *, moving: bool) -> Seen:
        """Look until the ticket shows its label, or was without it for so long that this is meant."""
        clock, begun = self._around.clock, accepted_look(journal) is not None
        grace, began = grace_of(self._settings, begun=begun), clock.monotonic()
        while True:
            seen = await self._check.look(journal, moving=moving)
            if seen.removal is None:
                return seen
            if not begun and (left := seconds_left(seen.removal, grace, clock.now())):
                raise Deferred(f"{seen.reason}, perhaps for a moment", after=left)
            seen_for = clock.monotonic() - began
            if is_meant(seen.removal, GRACE_SECONDS, seen_for=seen_for, now=clock.now()):
                return seen
            await clock.sleep(RELOOK_SECONDS)

    async def _note_approval(self, frame: Frame) -> None:
        """Write down who approved the run before anything else: a try that fails loses its answer."""
        asked, answer = _questions(self._records(frame)), frame.execution.claimed.answer
        if not asked or not isinstance(answer, Mapping) or "approved" not in answer:
            return
        if answer.get("step", frame.path) != frame.path:
            return
        by = inert(str(answer.get("by") or "somebody"))
        if answer["approved"] is not True:
            raise Withdrawn(f"{by} did not approve it")
        frame.execution.journal.add(frame.waiting_record({**asked[-1], "approved_by": by}), pure=False)
        await frame.execution.journal.flush_effects()

    def _approved_by(self, frame: Frame, seen: Seen) -> str:
        """Who has let the run begin although the label is not trusted; empty if nobody has, or for another label."""
        for asked in _questions(self._records(frame)):
            if asked.get("approved_by") and (seen.change is None or is_same_label(seen.change, asked)):
                return str(asked["approved_by"])
        return ""

    def _records(self, frame: Frame) -> list[StepRecord]:
        """All records of the run: a look that failed must not hide the one that was accepted."""
        return [*self._claimed.journal, *frame.execution.journal.latest.values()]

    async def _refuse(self, frame: Frame, seen: Seen) -> None:
        """End the run, or let it wait for somebody who may start it; then the ticket says who that is."""
        ticket, trust, why = seen.ticket, self._project.trust, inert(seen.trusted.reason, 300)
        assert ticket is not None
        if trust.untrusted == "skip":
            raise Withdrawn(f"{why}. {how_to_start(trust, self._label(), _seen_within(self._settings))}")
        question = approval_question(why, trust, self._claimed.id)
        with _patient(frame):
            asked = await self._ask_for_approval(ticket, question)
        at = asked.created_at if asked is not None else None
        noted = {
            "prompt": question,
            "comment": asked.id if asked is not None else "",
            "asked_at": (at or self._around.clock.now()).isoformat(),
            **_label_facts(seen),
        }
        raise Parked(Park(waiting_for=APPROVAL, prompt=question), frame.waiting_record(noted))

    async def _ask_for_approval(self, ticket: Ticket, question: str) -> Comment | None:
        """None if we may not comment: an operator can approve the run all the same."""
        try:
            return await self._write_once(ticket, f"{self._claimed.id}:approval", question)
        except NeedsAttention as error:
            log.warning("ticket.comment_refused", tracker=self._settings.name, ticket=ticket.ref, reason=str(error))
            return None

    async def _write_once(self, ticket: Ticket, key: str, text: str) -> Comment:
        return await self._written_before(ticket, key) or await self._write(ticket, key, text)

    async def _written_before(self, ticket: Ticket, key: str) -> Comment | None:
        since = self._event.occurred_at
        own = await self._around.accounts.own(self._tracker, self._project.location)
        return find_note(await self._tracker.comments(ticket, since), key, own)

    async def _write(self, ticket: Ticket, key: str, text: str) -> Comment:
        await self._around.turn(self._settings, ticket.id)
        return await self._tracker.comment(ticket, note(text, key, self._settings.kind))

    def _label(self) -> str:
        return inert(str(self._event.data.get("label") or ""))

    def _written(self, seen: Seen, ticket: Ticket, frame: Frame, approved_by: str) -> dict[str, Any]:
        before = accepted_look(self._records(frame)) or {}
        output: dict[str, Any] = {
            "ticket": ticket.ref,
            "status": ticket.status,
            "updated_at": ticket.updated_at.isoformat() if ticket.updated_at is not None else None,
            "looked_at": self._around.clock.now().isoformat(),
            **(_label_facts(seen) if seen.change is not None else {}),
        }
        if approved := approved_by or before.get("approved_by"):
            output["approved_by"] = approved
        if text := before.get("event") if before else self._newer_text(ticket):
            output["event"] = text
        return output

    def _newer_text(self, ticket: Ticket) -> Mapping[str, str]:
        if self._project.trust.text == "as_labelled":
            return {}
        now = {"title": _cut(ticket.title, LONGEST_TITLE), "text": _cut(ticket.text, LONGEST_TEXT)}
        return {name: value for name, value in now.items() if self._event.data.get(name) != value}


@contextmanager
def _patient(frame: Frame) -> Iterator[None]:
    """A platform that does not answer is waited for, longer each time, without using up the run's tries."""
    try:
        yield
    except Deferred:
        raise
    except RetryLater as error:
        failed = frame.earlier.attempt if frame.earlier is not None and frame.earlier.status == "failed" else 0
        if failed >= PATIENT_TRIES:
            raise
        pause = max(error.after or 0.0, doubled(FIRST_PAUSE, failed, LONGEST_PAUSE))
        raise Deferred(error.message, after=pause, fix=error.fix) from error


def _is_recent(record: StepRecord, clock: Clock) -> bool:
    return record.finished_at is not None and clock.now() - record.finished_at < LOOK_AGAIN


def _questions(records: Iterable[StepRecord]) -> list[Mapping[str, Any]]:
    """What was noted each time the run asked for approval, and who gave it."""
    asked = (record.output for record in records if record.action == PREFLIGHT and record.status == "waiting")
    return [output for output in asked if isinstance(output, Mapping)]


def _seen_within(settings: TrackerSettings) -> float:
    if settings.webhook:
        return 0.0
    return settings.interval * (1 + settings.jitter) if settings.polled else SWEEP_EVERY.total_seconds()


def _label_facts(seen: Seen) -> dict[str, Any]:
    change = seen.change
    actor = change.actor if change is not None else None
    return {
        "labelled_by": actor.login if actor is not None else "",
        "labelled_by_id": actor.id if actor is not None else "",
        "labelled_at": change.at.isoformat() if change is not None and change.at is not None else None,
    }


def _shown(comment: Comment) -> dict[str, Any]:
    return {"comment": comment.id, "url": comment.url}


def _repository_name(address: str) -> str:
    """The last part of an address that code is cloned from, which Azure DevOps knows a repository by."""
    return address.rstrip("/").rpartition("/")[2].removesuffix(".git")


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
