"""To which project a ticket of a tracker belongs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harken.ticket import Ticket

__all__ = ["ProjectScope", "Resolution", "is_within", "resolve"]


class ProjectScope(msgspec.Struct, frozen=True, kw_only=True):
    """What a ticket must have to belong to the project: all of what is set. With nothing set, every ticket does."""

    name: str
    tag: str = ""
    area_path: str = ""
    repo: str = ""


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The first project that matches, and the others that match too, which is worth a finding."""

    project: str = ""
    also: tuple[str, ...] = ()


def resolve(ticket: Ticket, projects: Sequence[ProjectScope]) -> Resolution:
    """Find the project of a ticket. Projects are asked in the order of the configuration."""
    names = [project.name for project in projects if _belongs(ticket, project)]
    return Resolution(project=names[0], also=tuple(names[1:])) if names else Resolution()


def _belongs(ticket: Ticket, project: ProjectScope) -> bool:
    if project.tag and project.tag.casefold() not in {label.casefold() for label in ticket.labels}:
        return False
    if project.repo and project.repo.casefold() != ticket.repo.casefold():
        return False
    return not project.area_path or is_within(ticket.area_path, project.area_path)


def is_within(path: str, area: str) -> bool:
    """Whether a path of Azure DevOps is the area or below it: `Shop\\Web` is below `Shop`, `Shopping` is not."""
    parts, wanted = _parts(path), _parts(area)
    return parts[: len(wanted)] == wanted


def _parts(path: str) -> list[str]:
    return [part.casefold() for part in path.replace("/", "\\").split("\\") if part]
