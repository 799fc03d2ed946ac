"""The events of a ticket, by what people call it (`acme/shop#12`, `#12`, `SHOP-7`, its address) instead of its id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from harken.errors import HarkenError, Refused
from harken.event import Recorded
from harken.kit.values_from_payload import folded_text
from harken.operate.context import Context
from harken.operate.ticket_lookup import parse_name, trackers_of
from harken.tickets import ProjectSettings, TrackerSettings, tracker_of, trigger_name

__all__ = ["TicketEvents", "find_ticket_events"]

RECENT = 100
"""Among how many events of the feed a ticket is looked for whose id does not begin with its number."""


class TicketEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The events, newest first. `named`: the name is that of a ticket, and the trigger is for tickets.

    `id` is what the engine calls the ticket; `problem` is why that could not be asked.
    """

    events: Sequence[Recorded] = ()
    id: str = ""
    problem: str = ""
    named: bool = False


async def find_ticket_events(context: Context, trigger: str, feed: str, name: str, *, limit: int) -> TicketEvents:
    """Events of the ticket of this name in the project of the trigger; nothing if the name is no ticket's.

    Raise Refused if the name tells that it is a ticket of somewhere else.
    """
    settings = trackers_of(context).get(tracker_of(feed))
    project = _project_of(settings, trigger) if settings is not None else None
    if settings is None or project is None:
        return TicketEvents()
    try:
        location, number = parse_name(name)
    except Refused:
        return TicketEvents()
    if location and project.location and location.casefold() != project.location.casefold():
        others = ", ".join(trigger_name(settings.name, one.name) for one in settings.projects)
        fix = f"The triggers of this tracker: {others}"
        raise Refused(f"{name} is a ticket of {location}, and {trigger} is for those of {project.location}", fix=fix)
    found = await _subject_of(context, feed, project.location or location, number)
    if found:
        return TicketEvents(events=await context.store.events_about(feed, found, limit=limit), id=found, named=True)
    return await _ask(context, settings, project, feed, number, limit)


def _project_of(settings: TrackerSettings, trigger: str) -> ProjectSettings | None:
    return next((one for one in settings.projects if trigger_name(settings.name, one.name) == trigger), None)


async def _subject_of(context: Context, feed: str, location: str, number: str) -> str:
    """The id of the ticket, as the newest event about it has it; empty if none is found."""
    about = await context.store.events_about(feed, number, limit=RECENT)
    recent = (await context.store.events(feed=feed, limit=RECENT)).items
    return next((event.subject for event in [*about, *recent] if _is_ticket(event, location, number)), "")


def _is_ticket(event: Recorded, location: str, number: str) -> bool:
    # the event of a ticket that is gone has no number; those before it have
    if not isinstance(event.data, Mapping) or folded_text(event.data, "number") != number.casefold():
        return False
    names = (number, f"#{number}", f"{location}#{number}")
    return folded_text(event.data, "ref") in {name.casefold() for name in names}


async def _ask(
    context: Context, settings: TrackerSettings, project: ProjectSettings, feed: str, number: str, limit: int
) -> TicketEvents:
    """Ask the platform for the id of the ticket: an old event is found by nothing else."""
    if context.engine is None:
        return TicketEvents(named=True)
    try:
        ticket = await context.engine.trackers(settings.name)[project.location].get(number)
    except HarkenError as error:
        return TicketEvents(problem=error.message, named=True)
    if ticket is None:
        return TicketEvents(named=True)
    events = await context.store.events_about(feed, ticket.id, limit=limit)
    return TicketEvents(events=events, id=ticket.id, named=True)
