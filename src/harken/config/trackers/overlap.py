"""Whether two projects can want the same ticket. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from harken.tickets import ProjectScope
from harken.tickets.resolution import is_within

__all__ = ["Claim", "overlap"]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Which tickets a project wants: those at `place` (the server, and the location there) that are in its scope.

    An empty location is a whole Jira.
    """

    place: tuple[str, ...]
    location: str
    scope: ProjectScope


def overlap(first: Claim, second: Claim) -> Literal["", "some", "all"]:
    """How many tickets of the second project belong to the first as well, which is asked before it.

    Two tags are no overlap here: only a ticket with both would be, and that is found when there is one.
    """
    if first.place != second.place or not _same(first.location, second.location):
        return ""
    a, b = first.scope, second.scope
    if not _same(a.repo, b.repo) or not _related(a.area_path, b.area_path):
        return ""
    if a.tag and b.tag and a.tag.casefold() != b.tag.casefold():
        return ""
    if _covers(first, second):
        return "all"
    # the first is narrower: the second gets the rest
    return "" if _covers(second, first) else "some"


def _covers(wide: Claim, narrow: Claim) -> bool:
    a, b = wide.scope, narrow.scope
    return (
        (not wide.location or bool(narrow.location))
        and (not a.tag or a.tag.casefold() == b.tag.casefold())
        and (not a.repo or a.repo.casefold() == b.repo.casefold())
        and (not a.area_path or (bool(b.area_path) and is_within(b.area_path, a.area_path)))
    )


def _same(one: str, other: str) -> bool:
    return not one or not other or one.casefold() == other.casefold()


def _related(one: str, other: str) -> bool:
    return not one or not other or is_within(one, other) or is_within(other, one)
