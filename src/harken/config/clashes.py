"""Names and addresses that two items claim: neither runs until a person decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harken.config.findings import Place, Report, elsewhere
from harken.config.workflows import Entry

__all__ = ["clashes"]


def clashes(claims: Mapping[str, Sequence[Place]], entries: Mapping[str, Entry]) -> Iterator[tuple[str, Report]]:
    """The workflows and jobs that share a name, or the address of a webhook, with the places of the others.

    `claims` has the places of each name; `entries` are those that are right in all else.
    """
    for name, places in claims.items():
        if len(places) > 1:
            yield name, _told(f"the name {name} is taken", places, places)
    by_path: dict[str, list[str]] = {}
    for name, entry in entries.items():
        if entry.made is not None and entry.made.feed.path and len(claims[name]) == 1:
            by_path.setdefault(entry.made.feed.path, []).append(name)
    for path, names in by_path.items():
        places = [claims[name][0] for name in names]
        for name in names if len(names) > 1 else ():
            yield name, _told(f"the webhook {path} is taken", claims[name][:1], places)


def _told(what: str, own: Sequence[Place], all: Sequence[Place]) -> Report:
    report = Report()
    for place in own:
        others = elsewhere(place, sorted(all, key=lambda at: (at.file, at.line)))
        report.error(place, ("name",), f"{what} by {others} as well", f"Change it in {place.file} or there", "clash")
    return report
