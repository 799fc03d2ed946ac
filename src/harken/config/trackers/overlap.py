"""Projects that can want the same ticket: whether two of them do, and the findings about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from harken.config.findings import Report
from harken.config.trackers.tracker_and_project_parser import ProjectSpec
from harken.config.yaml.nodes import locate
from harken.tickets import ProjectScope, TrackerSettings
from harken.tickets.project_of_ticket import is_within

__all__ = ["Claim", "check_overlaps", "overlap"]


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


def check_overlaps(
    trackers: Mapping[str, TrackerSettings],
    places: Mapping[str, tuple[str, ...]],
    specs: Mapping[str, ProjectSpec],
    reports: Mapping[str, Report],
) -> None:
    """Report projects that want the tickets of another one. `places` has the server of each tracker.

    Within a tracker the first project gets such a ticket. Two trackers do not know of each other: there the later
    project is refused, or both would run.
    """
    earlier: list[tuple[str, Claim]] = []
    for tracker in trackers.values():
        for project in tracker.projects:
            claim = Claim(place=places[tracker.name], location=project.location, scope=project.scope)
            for other, wanted in earlier:
                _report_overlap(tracker.name, specs[project.name], other, overlap(wanted, claim), reports[project.name])
            earlier.append((f"{tracker.name}/{project.name}", claim))


def _report_overlap(tracker: str, spec: ProjectSpec, other: str, found: str, report: Report) -> None:
    if not found:
        return
    place, path = locate(spec.table, ("resolution",)), spec.path
    name, _, first = other.partition("/")
    if name != tracker:
        fix = f"Let both use tracker: {name}, or tell their tickets apart with resolution:"
        report.error(place, path, f"its tickets may be those of the project {first} of another tracker", fix, "clash")
    elif found == "all":
        fix = f"Write it before {first}, or give both a resolution:"
        report.warn(place, path, f"every ticket of it belongs to the project {first} already", fix, "clash")
    else:
        fix = "Give both a resolution: of the same sort, if that is not meant"
        report.warn(place, path, f"a ticket that fits {first} as well runs there", fix, "clash")
