"""How far the tickets of a tracker were read, and which of its locations cannot be read, out of its feed's cursor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harken.circuit_breaker import is_permanent
from harken.feed import FeedState
from harken.ingest.partly_committed_page import stored_position
from harken.kit.cursor_codec import load_cursor
from harken.operate.trigger_status import Unread
from harken.tickets import TrackerSettings, feed_name, trigger_name
from harken.tickets.cursor import LocationTrouble, TicketCursor

__all__ = ["cursor_of", "trouble_of", "unread_triggers"]

SHOWN = 5


def cursor_of(state: FeedState | None) -> TicketCursor | None:
    """How far the tracker of the feed was read; None before its first read."""
    return load_cursor(stored_position(state.cursor)[0], TicketCursor) if state is not None else None


def trouble_of(cursor: TicketCursor | None, settings: TrackerSettings) -> str:
    """Which locations could not be read last time, with the projects that miss their tickets; empty if all are read."""
    told = [
        f"{location or settings.name} is not read ({_projects(settings, location)}): {trouble.message}"
        for location, trouble in _troubles(cursor, settings).items()
    ]
    more = [f"and {len(told) - SHOWN} more"] if len(told) > SHOWN else []
    return "; ".join([*told[:SHOWN], *more])


def unread_triggers(trackers: Iterable[TrackerSettings], feeds: Mapping[str, FeedState]) -> dict[str, Unread]:
    """The triggers whose tickets are not read, while others of the same tracker are."""
    return {
        trigger_name(settings.name, project.name): _unread(settings, project.location, trouble)
        for settings in trackers
        if (troubles := _troubles(cursor_of(feeds.get(feed_name(settings.name))), settings))
        for project in settings.projects
        if (trouble := troubles.get(project.location)) is not None
    }


def _unread(settings: TrackerSettings, location: str, trouble: LocationTrouble) -> Unread:
    return Unread(
        what=location or settings.name,
        since=trouble.since,
        message=trouble.message,
        advice=f"It is tried at every read. Test it: harken trackers test {settings.name}",
        needs_person=is_permanent(trouble.code),
    )


def _troubles(cursor: TicketCursor | None, settings: TrackerSettings) -> Mapping[str, LocationTrouble]:
    """Without locations that the tracker has no more."""
    found = cursor.trouble if cursor is not None else {}
    return {location: trouble for location, trouble in found.items() if location in settings.locations}


def _projects(settings: TrackerSettings, location: str) -> str:
    return ", ".join(project.name for project in settings.projects if project.location == location) or "no project"
