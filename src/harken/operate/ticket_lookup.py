"""Find the ticket that a person means: by its name (`acme/shop#12`, `SHOP-7`), its number or its address."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from harken.errors import NotFound, Refused
from harken.operate.context import Context
from harken.suggest import suggest_fix
from harken.ticket import Ticket, TicketTracker
from harken.tickets import ProjectSettings, TrackerSettings, resolve

__all__ = ["FoundTicket", "find_ticket", "tracker_of"]

_NUMBERED = re.compile(r"(?:(?P<location>[^#\s]+)#|#)?(?P<number>\d{1,18})")
_KEYED = re.compile(r"(?P<location>[A-Za-z][A-Za-z0-9_]*)-\d{1,18}")
_ADDRESS = re.compile(r"https?://[^/]+/(?P<path>[^?#]+)")
_PLACES = (
    # GitHub, GitLab, Azure DevOps and Jira, in this order
    re.compile(r"(?P<location>[^/]+/[^/]+)/issues/(?P<number>\d+)/?"),
    re.compile(r"(?P<location>.+?)/-/(?:issues|work_items)/(?P<number>\d+)/?"),
    re.compile(r"(?:.+/)?(?P<location>[^/]+)/_workitems/edit/(?P<number>\d+)/?"),
    re.compile(r"(?:.+/)?browse/(?P<number>(?P<location>[A-Za-z][A-Za-z0-9_]*)-\d+)/?"),
)


class FoundTicket(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket as its platform shows it now, and whose it is; without a project if none wants it."""

    settings: TrackerSettings
    location: str
    ticket: Ticket
    tracker: TicketTracker
    project: ProjectSettings | None = None


def tracker_of(context: Context, name: str) -> TrackerSettings:
    """The tracker of this name. Raise NotFound with the nearest names if there is none."""
    known = trackers_of(context)
    if name not in known:
        context.refuse_broken(name, kinds=("tracker",))
        fix = suggest_fix(name, known) if known else "Write trackers: and projects: in harken.yaml"
        raise NotFound(f"there is no tracker {name}", fix=fix)
    return known[name]


def trackers_of(context: Context) -> Mapping[str, TrackerSettings]:
    return context.loaded.trackers if context.loaded else {}


async def find_ticket(context: Context, name: str, tracker: str = "") -> FoundTicket:
    """Ask the platform for the ticket. Raise Refused if several trackers may have one of this name."""
    location, number = parse_name(name)
    chosen = [tracker_of(context, tracker)] if tracker else list(trackers_of(context).values())
    places = [
        (settings, place)
        for settings in chosen
        for place in settings.locations
        # a tracker without a location is of the whole platform
        if not location or not place or place.casefold() == location.casefold()
    ]
    if not places:
        known = ", ".join(place for settings in chosen for place in settings.locations) or "none"
        raise NotFound(f"no tracker has the tickets of {location or name}", fix=f"There are those of: {known}")
    if len(places) > 1:
        fix = "Name it as the platform does, such as acme/shop#12, or say --tracker"
        raise Refused(f"{name} may be a ticket of {', '.join(place for _, place in places)}", fix=fix)
    settings, place = places[0]
    asked = context.running().trackers(settings.name)[place]
    ticket = await asked.get(number)
    if ticket is None:
        raise NotFound(f"{settings.name} shows no ticket {name}", fix="It may be deleted, moved, or hidden from us")
    scopes = [project.scope for project in settings.projects if project.location == place]
    found = resolve(ticket, scopes).project
    return FoundTicket(settings=settings, location=place, ticket=ticket, tracker=asked, project=settings.project(found))


def parse_name(name: str) -> tuple[str, str]:
    """The location, empty if the name does not tell it, and what the tracker calls the ticket there."""
    name = name.strip()
    if address := _ADDRESS.fullmatch(name.partition("?")[0].partition("#")[0]):
        for place in _PLACES:
            if found := place.fullmatch(address["path"]):
                return found["location"], found["number"]
    if found := _KEYED.fullmatch(name):
        return found["location"], name.upper()
    if found := _NUMBERED.fullmatch(name):
        return found["location"] or "", found["number"]
    raise Refused(f"{name[:80]!r} is not the name of a ticket", fix="Write acme/shop#12, SHOP-7, 12 or its address")
