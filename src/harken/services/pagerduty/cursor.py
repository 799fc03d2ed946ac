"""How far the incidents have been read, and which page comes next. Pure functions from one `Place` to the next.

Every read lists all open incidents, oldest first, because nothing else shows a reassignment. Resolved ones are listed
by the time of their resolution, newest first, back to the last read.
https://developer.pagerduty.com/docs/pagination
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from harken.errors import NeedsAttention, RetryLater
from harken.kit import load_cursor
from harken.services.pagerduty.event import Incident

__all__ = [
    "LIMIT",
    "Part",
    "Place",
    "next_place",
    "page_params",
    "remember_acknowledged",
    "resume",
]

Part = Literal["open", "resolved"]

LIMIT = 100
# the API refuses a larger offset + limit
LAST_OFFSET = 10_000
# the API refuses more than six months at once
WINDOW = timedelta(days=180)
OVERLAP = 5
MOST_RESTARTS = 3


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`of` is the fingerprint of the query; a place of another query is not used.

    `tail` are the last ids of the page before: if none of them is on this page, the listing shifted between the pages.
    `since` keeps the engine's value from the beginning of the read. `start` limits the listing by creation time.
    `acked`: when open incidents were last acknowledged, by complete reads; `shown`: the same by this read so far.
    """

    of: str
    reading: bool = False
    part: Part = "open"
    since: datetime | None = None
    start: datetime | None = None
    offset: int = 0
    tail: list[str] = []
    restarts: int = 0
    partial: bool = False
    acked: Mapping[str, str] = {}
    shown: Mapping[str, str] = {}


def resume(cursor: Any, of: str, since: datetime, part: Part) -> Place:
    """The stored place of an unfinished read, or the beginning of a new read."""
    place = load_cursor(cursor, Place) or Place(of="")
    if place.reading and place.of == of:
        return place
    # after an unfinished read or one with gaps, start again no later than where it started
    return Place(of=of, reading=True, part=part, since=min(since, place.since or since), acked=place.acked)


def remember_acknowledged(place: Place, to: Place, page: Sequence[Incident]) -> Place:
    """The place `to`, with the acknowledgements on this page; those of closed incidents are dropped."""
    shown = dict(place.shown)
    for one in page:
        if one.status == "acknowledged":
            shown[one.id] = _stamp(one.changed_at) if one.changed_at else "once"
        elif one.status == "triggered" and one.id in place.acked:
            shown.setdefault(one.id, place.acked[one.id])
    if to.reading:
        return msgspec.structs.replace(to, acked=place.acked, shown=shown)
    return msgspec.structs.replace(to, acked={**place.acked, **shown} if to.partial else shown)


def page_params(place: Place, open_statuses: Sequence[str], now: datetime) -> list[tuple[str, str | int]]:
    """The parameters of the next page."""
    params: list[tuple[str, str | int]] = [("limit", LIMIT), ("offset", place.offset)]
    if place.part == "resolved":
        return [*params, ("statuses[]", "resolved"), ("date_range", "all"), ("sort_by", "resolved_at:desc")]
    params += [("statuses[]", status) for status in open_statuses]
    params.append(("sort_by", "created_at:asc,incident_number:asc"))
    if place.start is None:
        return [*params, ("date_range", "all")]
    return [*params, ("since", _stamp(place.start)), ("until", _stamp(_window_end(place.start, now)))]


def next_place(place: Place, page: Sequence[Incident], more: bool, now: datetime, parts: Sequence[Part]) -> Place:
    """The place after a page; the read is finished if it is not `reading`."""
    if place.tail and not any(incident.id in place.tail for incident in page):
        if place.restarts < MOST_RESTARTS:
            return _restart(place)
        place = msgspec.structs.replace(place, partial=True)
    elif more and place.tail and page[-1].id == place.tail[-1]:
        # older incidents that come into the listing can push a whole page down, but not again and again
        if place.restarts < MOST_RESTARTS:
            return _restart(place)
        raise RetryLater("PagerDuty sends the same page again and again", fix="Check base_url: it ignores the offset")
    if more and page and not _is_covered(place, page):
        return _next_page(place, page)
    if place.part == "open" and place.start is not None and _window_end(place.start, now) < now:
        return _continue_from(place, _window_end(place.start, now))
    if place.part == "open" and "resolved" in parts:
        return Place(of=place.of, reading=True, part="resolved", since=place.since, partial=place.partial)
    return Place(of=place.of, since=place.since if place.partial else None, partial=place.partial)


def _restart(place: Place) -> Place:
    return Place(
        of=place.of,
        reading=True,
        part=place.part,
        since=place.since,
        start=place.start,
        restarts=place.restarts + 1,
        partial=place.partial,
    )


def _next_page(place: Place, page: Sequence[Incident]) -> Place:
    overlap = min(OVERLAP, len(page) // 2)
    offset = place.offset + len(page) - overlap
    if offset + LIMIT > LAST_OFFSET:
        return _continue_by_time(place, page)
    tail = [incident.id for incident in page[len(page) - overlap :]]
    return msgspec.structs.replace(place, offset=offset, tail=tail)


def _continue_by_time(place: Place, page: Sequence[Incident]) -> Place:
    """Offsets are limited: continue from the newest creation time on the page."""
    created = [incident.created_at for incident in page if incident.created_at]
    # one second earlier: times have whole seconds, and not all incidents of that second were listed
    start = max(created) - timedelta(seconds=1) if created else None
    if place.part == "resolved" or start is None or (place.start and start <= place.start):
        what = "were resolved since the last read" if place.part == "resolved" else "are open"
        fix = "Narrow the query with services, teams or urgencies"
        raise NeedsAttention(f"more than {LAST_OFFSET:,} incidents {what}, and PagerDuty lists no more", fix=fix)
    return _continue_from(place, start)


def _continue_from(place: Place, start: datetime) -> Place:
    return msgspec.structs.replace(place, start=start, offset=0, tail=[])


def _is_covered(place: Place, page: Sequence[Incident]) -> bool:
    """Whether the newest-first listing has reached incidents that earlier reads covered."""
    oldest = page[-1].resolved_at
    return place.part == "resolved" and bool(oldest and place.since and oldest < place.since)


def _window_end(start: datetime, now: datetime) -> datetime:
    # one day ahead, in case their clock is ahead of ours
    return min(start + WINDOW, max(now, start) + timedelta(days=1))


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
