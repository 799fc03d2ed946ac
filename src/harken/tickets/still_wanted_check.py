"""One look at the ticket of a run: is the run still wanted, and by somebody who may want it?

Lists, single reads and histories of a platform may come from a copy that is behind. A look that is older than what we
know already is not counted: the run waits a moment and looks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.clock import Clock
from harken.errors import Deferred
from harken.event import Recorded
from harken.runs import StepRecord
from harken.ticket import Actor, LabelChange, Ticket, TicketTracker
from harken.tickets.actor_access import Accounts
from harken.tickets.event_from_ticket import VOUCHED
from harken.tickets.label_removal_grace import Removal, find_removal
from harken.tickets.labeller_trust import Trusted
from harken.tickets.lifecycle_labels import Lifecycle
from harken.tickets.observation_against_last_write import is_another_wish
from harken.tickets.settings import ProjectSettings, TrackerSettings
from harken.tickets.withdrawal_decision import OwnMove, Wish, is_replaced, missing_label, own_move, why_withdrawn

__all__ = ["PREFLIGHT", "Preflight", "Seen", "accepted_look", "is_same_label", "is_unordered", "last_addition"]

PREFLIGHT = "ticket.preflight"
BEHIND_FOR = timedelta(minutes=10)
"""So long after the event a copy may be behind it; later, what the platform shows is what there is."""
UNORDERED_FOR = timedelta(seconds=15)
"""So long after an event a copy may be from just before it, in the same second."""
FIRST_PAUSE = 2.0
GONE_AFTER = timedelta(minutes=1)
"""A ticket that is missing so shortly after its event may be missing only in a copy."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a look has shown. `reason`: why the run is not wanted any more. `change` is what put the label on.

    `removal` is set if the only reason is that the label is off, which may be for a moment."""

    ticket: Ticket | None
    reason: str = ""
    removal: Removal | None = None
    trusted: Trusted = Trusted(yes=True)
    change: LabelChange | None = None


class Preflight:
    """Looks at the ticket of the run that this event started. `journal` is that of the run as it is now."""

    def __init__(
        self,
        tracker: TicketTracker,
        accounts: Accounts,
        clock: Clock,
        settings: TrackerSettings,
        project: ProjectSettings,
        event: Recorded,
    ) -> None:
        self._tracker = tracker
        self._accounts = accounts
        self._clock = clock
        self._settings = settings
        self._project = project
        self.event = event

    def wish(self, journal: Iterable[StepRecord], moved: OwnMove | None = None) -> Wish:
        known = list(journal)
        return Wish(
            tracker=self._settings,
            project=self._project,
            label=_label_of(self.event),
            begun=accepted_look(known) is not None,
            moved=moved or own_move(known),
        )

    async def look(self, journal: Iterable[StepRecord], *, moving: bool = False) -> Seen:
        """Read the ticket and judge it. Raise Deferred while the platform shows something older than we know.

        With `moving` its status does not count: the run may have changed it a moment ago."""
        records = list(journal)
        ticket = await self.read(records)
        if ticket is None:
            return Seen(ticket=None, reason="the ticket is gone")
        wish = self.wish(records, moved=_stays(ticket) if moving else None)
        if reason := why_withdrawn(ticket, wish):
            if is_unordered(ticket, self.event, self._clock.now()):
                raise Deferred(f"{ticket.ref} may be shown as it was before", after=FIRST_PAUSE)
            if label := missing_label(ticket, wish):
                removal = await find_removal(self._tracker, ticket, label)
                for_good = is_replaced(ticket, wish)
                return Seen(ticket=ticket, reason=removal.text, removal=None if for_good else removal)
            return Seen(ticket=ticket, reason=reason)
        return await self.judge(ticket, records)

    async def judge(self, ticket: Ticket, journal: Iterable[StepRecord]) -> Seen:
        """Find out whether somebody wants the run who may. Raise Deferred if the platform does not show it yet."""
        history = await self._history(ticket)
        change = self._change(ticket, history)
        accepted = accepted_look(journal)
        if accepted is not None and (change is None or is_same_label(change, accepted)):
            return Seen(ticket=ticket, change=change)
        if self.event.data.get(VOUCHED):
            return Seen(ticket=ticket, change=change)
        trusted = await self._judge(change.actor if change is not None else _author(ticket))
        if trusted.yes and (removal := self._removal(ticket, history or (), change)) is not None:
            trusted = _asked_again(removal, await self._judge(removal.actor))
        return Seen(ticket=ticket, trusted=trusted, change=change)

    async def _judge(self, actor: Actor | None) -> Trusted:
        return await self._accounts.judge(self._tracker, self._project.location, actor, self._project.trust)

    async def read(self, journal: Sequence[StepRecord]) -> Ticket | None:
        """The ticket as it is now; None if it is gone. Raise Deferred if this is older than what we have seen."""
        ticket, now = await self._tracker.get(self.event.subject), self._clock.now()
        age = now - self.event.recorded_at
        if ticket is None:
            if age < GONE_AFTER:
                raise Deferred("the ticket cannot be read yet", after=_pause(age))
            return None
        looked_at, changed_at = _earlier_look(journal)
        known = max(filter(None, [self.event.occurred_at, changed_at]), default=None)
        age = min(age, now - looked_at) if looked_at is not None else age
        if known is not None and ticket.updated_at is not None and ticket.updated_at < known and age < BEHIND_FOR:
            raise Deferred(f"{ticket.ref} is shown as it was before", after=_pause(age))
        return ticket

    async def _history(self, ticket: Ticket) -> Sequence[LabelChange] | None:
        """The changes of the ticket's labels, where they tell who wants the run; None if they cannot be read."""
        by_status = not _label_of(self.event) and bool(self._settings.trigger_statuses)
        return () if by_status and not is_another_wish(self.event.state) else await self._tracker.label_history(ticket)

    def _change(self, ticket: Ticket, history: Sequence[LabelChange] | None) -> LabelChange | None:
        label = _label_of(self.event)
        if not label:
            return self._asked_by_hand(history)
        if history is None:
            return LabelChange(label=label, added=True, actor=None, at=None)
        change = last_addition(history, label)
        if change is not None:
            return change
        self._wait_for_history(f"the history of {ticket.ref} does not show its label yet")
        return LabelChange(label=label, added=True, actor=None, at=None)

    def _asked_by_hand(self, history: Sequence[LabelChange] | None) -> LabelChange | None:
        """Without a label map a person asks with the label `pending`, unless a status has started the run."""
        if self._settings.trigger_statuses:
            return None
        pending = self._settings.lifecycle.label(Lifecycle.PENDING)
        return last_addition(history or (), pending) or LabelChange(label=pending, added=True, actor=None, at=None)

    def _removal(self, ticket: Ticket, history: Iterable[LabelChange], asked: LabelChange | None) -> LabelChange | None:
        """What took the label of an earlier run off, if that is the wish for this one.

        A label that a person put on since is a wish of its own."""
        if not is_another_wish(self.event.state):
            return None
        labels, last = self._settings.lifecycle, None
        ended = {labels.label(state).casefold() for state in (Lifecycle.DONE, Lifecycle.FAILED)}
        for change in history:
            if change is asked:
                last = None
            elif change.label.casefold() in ended:
                last = change
        if last is not None and last.added:
            self._wait_for_history(f"the history of {ticket.ref} does not show yet who took {last.label} off")
        return last if last is not None and not last.added else None

    def _wait_for_history(self, why: str) -> None:
        age = self._clock.now() - self.event.recorded_at
        if age < BEHIND_FOR:
            raise Deferred(why, after=_pause(age))


def _asked_again(removal: LabelChange, trusted: Trusted) -> Trusted:
    """Whether taking our label off was the wish for another run: a robot that tidies up wishes nothing."""
    who = removal.actor.login if removal.actor is not None else ""
    reason = f"{removal.label} was taken off by {who or 'an unknown account'}, who may not ask for another run"
    return trusted if trusted.yes else Trusted(yes=False, reason=reason)


def is_unordered(ticket: Ticket, event: Recorded, now: datetime) -> bool:
    """Whether the ticket may be shown as it was just before the event: platforms tell times in whole seconds."""
    known, shown = event.occurred_at, ticket.updated_at
    same = known is not None and shown is not None and int(shown.timestamp()) <= int(known.timestamp())
    return same and now - event.recorded_at < UNORDERED_FOR


def _author(ticket: Ticket) -> Actor | None:
    """Where a status starts the pipeline, and no label, whoever wrote the ticket has started it."""
    bot = ticket.author.endswith("[bot]")
    return Actor(id="", login=ticket.author, bot=bot) if ticket.author else None


def _stays(ticket: Ticket) -> OwnMove:
    return OwnMove(status=ticket.status, closed=ticket.closed)


def _label_of(event: Recorded) -> str:
    return str(event.data.get("label") or "") if isinstance(event.data, Mapping) else ""


def _pause(age: timedelta) -> float:
    """Copies are behind by seconds, rarely by minutes."""
    return min(60.0, max(2.0, age.total_seconds() / 2))


def last_addition(history: Iterable[LabelChange], label: str) -> LabelChange | None:
    """The change that put the label on as it is now; None if the history ends with the label off."""
    wanted, last = label.casefold(), None
    for change in history:
        if change.label.casefold() == wanted:
            last = change
    return last if last is not None and last.added else None


def accepted_look(journal: Iterable[StepRecord]) -> Mapping[str, Any] | None:
    """What the look that let the run begin has written down."""
    looks = [record for record in journal if record.action == PREFLIGHT and record.status == "ok"]
    output = looks[-1].output if looks else None
    return output if isinstance(output, Mapping) else None


def is_same_label(change: LabelChange, accepted: Mapping[str, Any]) -> bool:
    """Whether the label is on since the look that was accepted. A history that cannot be read does not change that."""
    # an account that was deleted since has no name any more
    same_actor = change.actor is None or change.actor.id == accepted.get("labelled_by_id")
    return same_actor and (change.at is None or change.at.isoformat() == accepted.get("labelled_at"))


def _earlier_look(journal: Iterable[StepRecord]) -> tuple[datetime | None, datetime | None]:
    """When the run has looked last, and when the ticket had changed last by then."""
    accepted = accepted_look(journal) or {}
    looked_at, changed_at = accepted.get("looked_at"), accepted.get("updated_at")
    return (
        datetime.fromisoformat(looked_at) if isinstance(looked_at, str) else None,
        datetime.fromisoformat(changed_at) if isinstance(changed_at, str) else None,
    )
