"""Where a read of the incidents stands. Pure: each page decides what is asked for next.

Open incidents are listed whole on every read, oldest first, because nothing else shows a reassignment. Resolved ones
are listed by when they were resolved, newest first, as far back as the read has to go.
https://developer.pagerduty.com/docs/pagination
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from harken.errors import NeedsAttention
from harken.services.pagerduty.event import Incident

__all__ = ["Part", "Place", "asked", "following", "remembering", "resume"]

Part = Literal["open", "resolved"]

LIMIT = 100
# offset + limit may not go beyond this
REACH = 10_000
# the API refuses more than six months at once
WINDOW = timedelta(days=180)
OVERLAP = 5
RESTARTS = 3


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cursor. `of` names the query: a place in the listing of another means nothing.

    `tail` are the last ids of the page before: one of them must be on this page too, or others slipped between them.
    `since` is fixed when the read begins, because its first page moves the engine's. `start` cuts by creation time.
    `acked`: when open incidents were last acknowledged, as far as whole reads showed it; `shown`: this read so far.
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
    """Where the cursor stands, or the beginning of a new read."""
    try:
        place = msgspec.convert(cursor, Place)
    except msgspec.ValidationError:
        place = Place(of="")  # nothing was read yet, or another version wrote it
    if place.reading and place.of == of:
        return place
    # a read that was not finished, or that had gaps, is begun again no later than where it began
    return Place(of=of, reading=True, part=part, since=min(since, place.since or since), acked=place.acked)


def remembering(place: Place, to: Place, page: Sequence[Incident]) -> Place:
    """The place `to`, with what this page shows of acknowledgements; those of closed incidents are forgotten."""
    shown = dict(place.shown)
    for one in page:
        if one.status == "acknowledged":
            shown[one.id] = _stamp(one.changed_at) if one.changed_at else "once"
        elif one.status == "triggered" and one.id in place.acked:
            shown.setdefault(one.id, place.acked[one.id])
    if to.reading:
        return msgspec.structs.replace(to, acked=place.acked, shown=shown)
    return msgspec.structs.replace(to, acked={**place.acked, **shown} if to.partial else shown)


def asked(place: Place, open_statuses: Sequence[str], now: datetime) -> list[tuple[str, str | int]]:
    """The parameters of the page at this place."""
    params: list[tuple[str, str | int]] = [("limit", LIMIT), ("offset", place.offset)]
    if place.part == "resolved":
        return [*params, ("statuses[]", "resolved"), ("date_range", "all"), ("sort_by", "resolved_at:desc")]
    params += [("statuses[]", status) for status in open_statuses]
    params.append(("sort_by", "created_at:asc,incident_number:asc"))
    if place.start is None:
        return [*params, ("date_range", "all")]
    return [*params, ("since", _stamp(place.start)), ("until", _stamp(_end(place.start, now)))]


def following(place: Place, page: Sequence[Incident], more: bool, now: datetime, parts: Sequence[Part]) -> Place:
    """Where the read goes on; a place that is not `reading` is its end."""
    if place.tail and not any(incident.id in place.tail for incident in page):
        if place.restarts < RESTARTS:
            return Place(
                of=place.of,
                reading=True,
                part=place.part,
                since=place.since,
                start=place.start,
                restarts=place.restarts + 1,
                partial=place.partial,
            )
        place = msgspec.structs.replace(place, partial=True)
    if more and page and not _reached(place, page):
        return _turned(place, page)
    if place.part == "open" and place.start is not None and _end(place.start, now) < now:
        return _moved(place, _end(place.start, now))
    if place.part == "open" and "resolved" in parts:
        return Place(of=place.of, reading=True, part="resolved", since=place.since, partial=place.partial)
    return Place(of=place.of, since=place.since if place.partial else None, partial=place.partial)


def _turned(place: Place, page: Sequence[Incident]) -> Place:
    overlap = min(OVERLAP, len(page) // 2)
    offset = place.offset + len(page) - overlap
    if offset + LIMIT > REACH:
        return _cut(place, page)
    tail = [incident.id for incident in page[len(page) - overlap :]]
    return msgspec.structs.replace(place, offset=offset, tail=tail)


def _cut(place: Place, page: Sequence[Incident]) -> Place:
    """Behind what offsets can reach, go on by creation time."""
    made = [incident.created_at for incident in page if incident.created_at]
    # a second earlier: whole seconds hide which of one second came first
    start = max(made) - timedelta(seconds=1) if made else None
    if place.part == "resolved" or start is None or (place.start and start <= place.start):
        what = "were resolved since the last read" if place.part == "resolved" else "are open"
        fix = "Narrow the query with services, teams or urgencies"
        raise NeedsAttention(f"more than {REACH:,} incidents {what}, and PagerDuty lists no more", fix=fix)
    return _moved(place, start)


def _moved(place: Place, start: datetime) -> Place:
    return msgspec.structs.replace(place, start=start, offset=0, tail=[])


def _reached(place: Place, page: Sequence[Incident]) -> bool:
    """Whether a newest-first listing has come to what earlier reads have covered."""
    oldest = page[-1].resolved_at
    return place.part == "resolved" and bool(oldest and place.since and oldest < place.since)


def _end(start: datetime, now: datetime) -> datetime:
    # a day ahead, should their clock be ahead of ours
    return min(start + WINDOW, max(now, start) + timedelta(days=1))


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
