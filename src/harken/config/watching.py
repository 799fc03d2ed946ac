"""Where jobs are written: under `pollers:` in harken.yaml, in pollers.yaml, or in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harken.config.findings import Finding, Path, Place, Report
from harken.config.pollers.legacy_gmail import deprecations, translate
from harken.config.pollers.schema import PollersBlock, Written, job_id
from harken.config.validate import as_table, check
from harken.config.yaml.nodes import Items, Node, Table, is_empty

__all__ = ["LEGACY", "POLLERS", "Section", "read_legacy", "read_sections"]

POLLERS = "pollers.yaml"
LEGACY = ("gmail-poller.yaml", "plugins/gmail-poller.yaml")
"""Where the older jobs for Gmail are looked for."""
_PATH: Path = ("pollers",)
_JOBS: Path = ("pollers", "jobs")


@dataclass(frozen=True, kw_only=True)
class Section:
    """One `pollers:` with what was found wrong while its file was read, such as a variable that is not set."""

    file: str
    node: Node
    found: Sequence[Finding]


def read_sections(sections: Sequence[Section], report: Report) -> tuple[PollersBlock | None, list[Written]]:
    """The settings, which may stand in one file only, and the jobs of all files."""
    jobs: list[Written] = []
    settings: dict[str, Node] = {}
    whole = Table(items={}, keys={}, place=sections[0].node.place if sections else Place(POLLERS))
    for section in sections:
        own = [one for one in section.found if len(one.path) < 3 or one.path[1] != "jobs"]
        report.findings += own
        table = as_table(section.node, report, _PATH)
        if table is None:
            continue
        for key in sorted(settings.keys() & (table.items.keys() - {"jobs"})):
            report.error(table.keys[key], (*_PATH, key), "stands in another file as well", "Keep one", "duplicate")
        settings |= {key: node for key, node in table.items.items() if key != "jobs"}
        whole = Table(items=settings, keys={**whole.keys, **table.keys}, place=table.place)
        jobs += _jobs(table, section, report)
    return check(PollersBlock, whole, report, _PATH), jobs


def read_legacy(tree: Node, explicit: Sequence[Written], report: Report) -> list[Written]:
    """The jobs of an older gmail-poller.yaml, each with a warning; one that pollers.yaml has as well is left to it."""
    translated = translate(tree)
    report.findings += [*translated.findings, *deprecations(translated)]
    taken = {job_id(written.node) for written in explicit}
    return [Written(path=job.path, node=job.node, found=job.found) for job in translated.jobs if job.id not in taken]


def _jobs(table: Table, section: Section, report: Report) -> list[Written]:
    node = table.items.get("jobs")
    if node is None or is_empty(node):
        return []
    if not isinstance(node, Items):
        report.error(node.place, _JOBS, "must be a list", "Write - id: … for each job", "wrong_type")
        return []
    by_place: dict[object, list[Finding]] = {}
    for one in section.found:
        if one.path[:2] == _JOBS and len(one.path) > 2:
            by_place.setdefault(one.path[2], []).append(one)
    return [
        Written(path=(*_JOBS, at), node=inner, found=tuple(by_place.get(at, ()))) for at, inner in enumerate(node.items)
    ]
