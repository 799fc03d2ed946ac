"""Read `trackers:` and `projects:`. A wrong project is refused alone, and a wrong tracker with its projects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harken.config.findings import Finding, Path, Place, Report
from harken.config.loaded import item
from harken.config.model_validation import as_table
from harken.config.resolver import Resolver
from harken.config.trackers.feed_and_triggers_from_tracker import with_projects
from harken.config.trackers.overlap import check_overlaps
from harken.config.trackers.project_from_spec import Known, Project, build_project
from harken.config.trackers.schema import Hook
from harken.config.trackers.tracker_and_project_parser import ProjectSpec, TrackerSpec, read_project, read_tracker
from harken.config.trackers.tracker_from_projects import build_tracker, hook_of
from harken.config.yaml.nodes import Node, Table, locate
from harken.suggest import suggest_fix
from harken.tickets import TrackerSettings, trigger_name

__all__ = ["Section", "Taken", "Tickets", "read_tickets"]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of harken.yaml, with the findings of reading the file that are about it."""

    node: Node
    found: Sequence[Finding] = ()


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What other items have already: the names of triggers, and where each webhook path is given away."""

    triggers: Iterable[str] = ()
    paths: Mapping[str, Place] = field(default_factory=dict)


@dataclass(kw_only=True)
class Tickets:
    """The trackers by name, what their webhooks are verified with, and the findings of each item by its name."""

    trackers: dict[str, TrackerSettings] = field(default_factory=dict)
    hooks: dict[str, Hook] = field(default_factory=dict)
    reports: list[tuple[str, Report]] = field(default_factory=list)


def read_tickets(
    trackers: Section | None, projects: Section | None, resolver: Resolver, known: Known, taken: Taken
) -> Tickets:
    """Read both sections. Nothing in them raises; what is wrong is in the reports."""
    return _Reader(resolver, known, taken).read(trackers, projects)


class _Reader:
    def __init__(self, resolver: Resolver, known: Known, taken: Taken) -> None:
        self._resolver = resolver
        self._known = known
        self._taken = taken
        self._specs: dict[str, TrackerSpec] = {}
        self._projects: dict[str, ProjectSpec] = {}
        # of a tracker and of a project with `tickets:`; the latter has the report of its project
        self._tracker_reports: dict[str, Report] = {}
        self._reports: dict[str, Report] = {}
        self._used: set[str] = set()

    def read(self, trackers: Section | None, projects: Section | None) -> Tickets:
        sections: list[tuple[str, Report]] = []
        for name, node, report in self._items("trackers", trackers, sections):
            self._tracker_reports[name] = report
            spec = read_tracker(name, node, self._resolver, report, ("trackers", name))
            if spec is not None:
                self._specs[name] = spec
        for name, node, report in self._items("projects", projects, sections):
            self._reports[name] = report
            self._read_project(name, node, report)
        found = self._build()
        found.reports = [
            *sections,
            *((item("tracker", name), report) for name, report in self._tracker_reports.items()),
            *((item("project", name), report) for name, report in self._reports.items()),
        ]
        return found

    def _items(
        self, section: str, given: Section | None, reports: list[tuple[str, Report]]
    ) -> list[tuple[str, Node, Report]]:
        if given is None:
            return []
        whole = Report([finding for finding in given.found if len(finding.path) == 1])
        reports.append((item("section", section), whole))
        table = as_table(given.node, whole, (section,))
        own: dict[object, list[Finding]] = {}
        for finding in given.found:
            if len(finding.path) > 1:
                own.setdefault(finding.path[1], []).append(finding)
        return [(name, node, Report(own.get(name, ()))) for name, node in table.items.items()] if table else []

    def _read_project(self, name: str, node: Node, report: Report) -> None:
        path: Path = ("projects", name)
        spec = read_project(name, node, self._resolver, report, path)
        inline = node.items.get("tickets") if isinstance(node, Table) else None
        if inline is not None and name in self._tracker_reports:
            message = f"its tickets: make a tracker of the name {name}, which stands under trackers: as well"
            fix = f"Write tracker: {name}, or call one of them something else"
            report.error(inline.place, (*path, "tickets"), message, fix, "clash")
        elif inline is not None:
            tracker = read_tracker(name, inline, self._resolver, report, (*path, "tickets"))
            if tracker is not None and not report.failed:
                self._specs[name] = tracker
        if spec is not None and not report.failed:
            self._projects[name] = spec

    def _build(self) -> Tickets:
        by_tracker: dict[str, list[Project]] = {name: [] for name in self._specs}
        for name, spec in self._projects.items():
            report = self._reports[name]
            tracker = self._tracker_of(spec, report)
            project = build_project(spec, tracker, self._known, report) if tracker else None
            if project is not None and tracker is not None:
                self._check_trigger(spec, tracker, report)
                by_tracker[tracker.name].append(project)
        found = Tickets()
        for name, projects in by_tracker.items():
            self._build_tracker(self._specs[name], projects, found)
        self._refuse_overlaps(found)
        return found

    def _tracker_of(self, spec: ProjectSpec, report: Report) -> TrackerSpec | None:
        name = spec.block.tracker or spec.name
        self._used.add(name)
        if name in self._specs:
            return self._specs[name]
        place, path = locate(spec.table, ("tracker",)), (*spec.path, "tracker")
        if name in self._tracker_reports:
            report.error(place, path, f"the tracker {name} was refused", "Correct it first", "depends")
        else:
            fix = suggest_fix(name, self._tracker_reports) if self._tracker_reports else "Add it under trackers:"
            report.error(place, path, f"there is no tracker {name!r}", fix, "unknown_name")
        return None

    def _check_trigger(self, spec: ProjectSpec, tracker: TrackerSpec, report: Report) -> None:
        name = trigger_name(tracker.name, spec.name)
        if name in self._taken.triggers:
            message = f"its trigger would be {name}, as one of another item is called"
            report.error(spec.table.place, spec.path, message, "Call the project something else", "clash")

    def _build_tracker(self, spec: TrackerSpec, projects: Sequence[Project], found: Tickets) -> None:
        inline = spec.name not in self._tracker_reports
        report = self._reports[spec.name] if inline else self._tracker_reports[spec.name]
        settings, odd = build_tracker(
            spec, projects, self._known.settings.label_prefix, self._reports, used=spec.name in self._used
        )
        if inline and not settings.projects:
            # its project is refused, which says enough
            return
        report.findings += odd.findings
        hook = hook_of(spec, projects) if settings.webhook else None
        clash = self._taken.paths.get(f"{spec.kind}/{spec.name}")
        if hook is not None and clash is not None:
            message = f"its webhook {spec.kind}/{spec.name} is taken by {clash.file}:{clash.line} as well"
            report.error(spec.table.place, spec.path, message, "Call one of them something else", "clash")
            return
        found.trackers[spec.name] = settings
        if hook is not None:
            found.hooks[spec.name] = hook

    def _refuse_overlaps(self, found: Tickets) -> None:
        places = {name: _place(self._specs[name]) for name in found.trackers}
        check_overlaps(found.trackers, places, self._projects, self._reports)
        for name, tracker in list(found.trackers.items()):
            valid = tuple(project for project in tracker.projects if not self._reports[project.name].failed)
            if len(valid) < len(tracker.projects):
                found.trackers[name] = with_projects(tracker, valid)


def _place(spec: TrackerSpec) -> tuple[str, ...]:
    """The server of a tracker, for comparing."""
    base_url = str(getattr(spec.account.model, "base_url", "") or spec.address.base_url)
    organization = spec.address.organization if spec.kind == "azure_devops" else ""
    return spec.kind, base_url.casefold(), organization.casefold()
