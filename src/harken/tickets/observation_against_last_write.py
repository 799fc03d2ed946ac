"""What an observation of a ticket tells, given what we wrote on it and what the feed knows of it.

Lists, single reads and webhooks may all be behind. So a ticket that has had a run is ready again only if our last label
was seen on it, a single read that is not older than our write shows it gone, and the ticket has changed since.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum

import msgspec
from msgspec.structs import replace

from harken.runs import FINAL
from harken.ticket import Ticket
from harken.tickets.event_from_ticket import Placed, place
from harken.tickets.last_written_ticket_state import TicketMemory
from harken.tickets.lifecycle_labels import Lifecycle
from harken.tickets.readiness import ACTIVE, Standing
from harken.tickets.settings import TrackerSettings

__all__ = ["Age", "Observation", "age_of", "is_another_wish", "is_over", "is_wanted", "observe"]

_UNREADY = frozenset({"withdrawn", "closed", "unrouted", "status"})


class Age(IntEnum):
    """An observation is older than our last write, the state right at it, or newer."""

    OLDER = -1
    SAME = 0
    NEWER = 1


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """`placed` is what the observation tells; None if that is nothing, as it is older than what we know.

    `confirms`: it shows what we wrote. `look`: it tells something only if a read of this one ticket shows it too.
    """

    placed: Placed | None = None
    confirms: bool = False
    look: bool = False


def observe(
    ticket: Ticket,
    settings: TrackerSettings,
    location: str,
    *,
    memory: TicketMemory | None = None,
    known: str | None = None,
    single: bool = False,
) -> Observation:
    """Judge a ticket as it was shown. `known` is the state that the feed has of it; `single`: it was read alone."""
    placed = place(ticket, settings, location)
    age = Age.NEWER if memory is None else age_of(ticket, memory)
    if age is Age.OLDER:
        return Observation()
    if memory is None or not memory.run:
        return _first_time(placed, known or "", single)
    if is_over(memory):
        return _after_run(placed, memory, known or "", settings, age, single)
    return _during_run(placed, memory, known or "", settings, location, single)


def is_over(memory: TicketMemory) -> bool:
    """Whether the ticket's newest run has ended, as far as we know."""
    return memory.status in FINAL


def is_wanted(state: str) -> bool:
    """Whether a ticket in this state wants its run, or has it."""
    return _kind(state) in ("ready", "claimed")


def is_another_wish(state: str | None) -> bool:
    """Whether a ticket in this state is ready again after a run that has ended."""
    return "@" in (state or "")


def age_of(ticket: Ticket, memory: TicketMemory) -> Age:
    """Compare the ticket with our last write, by the platform's own version where there is one."""
    if not memory.version or not ticket.version:
        return _by_time(ticket, memory)
    if ticket.version == memory.version:
        return Age.SAME
    shown, ours = _order(ticket.version), _order(memory.version)
    if shown is None or ours is None or type(shown) is not type(ours):
        return _by_time(ticket, memory)
    return Age.NEWER if shown > ours else Age.SAME if shown == ours else Age.OLDER


def _order(version: str) -> float | None:
    """Versions are numbers or times on every platform; None for anything else."""
    if version.isascii() and version.isdigit():
        return int(version)
    try:
        return datetime.fromisoformat(version).timestamp()
    except ValueError:
        return None


def _by_time(ticket: Ticket, memory: TicketMemory) -> Age:
    if memory.wrote_at is None or ticket.updated_at is None:
        return Age.NEWER
    # whole seconds are the best that some platforms have
    shown, ours = int(ticket.updated_at.timestamp()), int(memory.wrote_at.timestamp())
    return Age.NEWER if shown > ours else Age.SAME if shown == ours else Age.OLDER


def _first_time(placed: Placed, known: str, single: bool) -> Observation:
    """A ticket on which we have written nothing. It may have a run all the same, which the feed's state tells."""
    before, where = _kind(known), placed.standing
    if before == "withdrawn" and _kind(where.state) in ("unrouted", "status"):
        placed = replace(placed, standing=_withdrawn(where))
    elif before == "ready" and not where.ready and _kind(where.state) != "claimed":
        if not single:
            return Observation(look=True)
        placed = placed if where.state == "closed" else replace(placed, standing=_withdrawn(where))
    elif before == "claimed" and where.ready and not single:
        return Observation(look=True)
    return Observation(placed=placed)


def _during_run(
    placed: Placed, memory: TicketMemory, known: str, settings: TrackerSettings, location: str, single: bool
) -> Observation:
    """The ticket stands as if it showed our label, also while it does not yet, or somebody took the label off."""
    ours = memory.shown if memory.shown in ACTIVE else Lifecycle.ENQUEUED
    confirms = _confirms(placed, memory, settings)
    where = place(_showing(placed.ticket, ours, settings), settings, location).standing
    if placed.project != memory.project and where.state != "closed":
        where = Standing(state="withdrawn:project", reason=f"the ticket belongs no more to {memory.project}")
    if _kind(where.state) == "claimed":
        # once it was withdrawn the run ends: what made the ticket ready again is the wish for another run, after it;
        # but a label that is back before the run was ended for it has never been off
        back = known == "withdrawn:label" and memory.withdrawn != memory.run
        again = _kind(known) in ("withdrawn", "closed") and not back
        return Observation(placed=None if again else replace(placed, standing=where), confirms=confirms)
    if not single and where.state != known:
        return Observation(look=True, confirms=confirms)
    return Observation(placed=replace(placed, standing=where), confirms=confirms)


def _after_run(
    placed: Placed, memory: TicketMemory, known: str, settings: TrackerSettings, age: Age, single: bool
) -> Observation:
    where = placed.standing
    if not where.ready:
        if _kind(where.state) == "withdrawn":
            # the label of the run is still on the ticket, but there is nothing to withdraw any more
            where = _claimed(memory)
        taken_back = memory.shown is None and not memory.confirmed and _kind(where.state) in _UNREADY
        confirms = (taken_back and _is_settled(memory)) or _confirms(placed, memory, settings)
        return Observation(placed=replace(placed, standing=where), confirms=confirms)
    if memory.shown is None and not _is_settled(memory) and _kind(known) in _UNREADY:
        # the wish was made anew before the end of its run was shown: it counts after that
        return Observation()
    if not _is_wanted_again(placed, memory, known, settings, age):
        return Observation(placed=replace(placed, standing=_claimed(memory)))
    if not single:
        return Observation(look=True)
    # named after the run before it, so that it is a new state whatever was seen in between
    return Observation(placed=replace(placed, standing=replace(where, state=f"{where.state}@{memory.run}")))


def _is_wanted_again(placed: Placed, memory: TicketMemory, known: str, settings: TrackerSettings, age: Age) -> bool:
    """Whether a ticket that is ready by what it shows may have another run."""
    if memory.confirmed and age is Age.NEWER:
        return True
    if memory.shown is not None or not _is_settled(memory):
        return False
    # nothing shows on the ticket: what counts is that a person took the wish back and made it anew
    by_hand = settings.lifecycle.state_of(placed.ticket.labels) is Lifecycle.PENDING and age is Age.NEWER
    return by_hand or _kind(known) in _UNREADY or memory.withdrawn == memory.run


def _is_settled(memory: TicketMemory) -> bool:
    """Whether the ticket was brought to what the end of its run says."""
    # a run that was done too late counts as cancelled, and the ticket was brought to its own state
    ends = ("done", "cancelled") if memory.status == "cancelled" else (memory.status,)
    return memory.settled.startswith(tuple(f"{memory.run}:{end}:" for end in ends))


def _confirms(placed: Placed, memory: TicketMemory, settings: TrackerSettings) -> bool:
    if memory.shown is None or memory.confirmed:
        return False
    return settings.lifecycle.state_of(placed.ticket.labels) is memory.shown


def _claimed(memory: TicketMemory) -> Standing:
    shown = memory.shown if memory.shown is not None else memory.status
    return Standing(state=f"claimed:{shown}", reason=f"it has had the run {memory.run}, which is {memory.status}")


def _withdrawn(where: Standing) -> Standing:
    what = "status" if _kind(where.state) == "status" else "label"
    return Standing(state=f"withdrawn:{what}", reason=where.reason)


def _showing(ticket: Ticket, state: Lifecycle, settings: TrackerSettings) -> Ticket:
    labels = (*settings.lifecycle.others(ticket.labels), settings.lifecycle.label(state))
    return replace(ticket, labels=labels)


def _kind(state: str) -> str:
    return state.partition(":")[0]
