"""One project of a tracker: where its tickets are, which pipelines they start, and the findings about that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from harken.config.findings import Path, Place, Report
from harken.config.loaded import item
from harken.config.model_validation import Invalid
from harken.config.settings import Settings
from harken.config.trackers.address import repository_in
from harken.config.trackers.merge import FALLBACK, RoutingText, merge_routing, merge_trust, trigger_block
from harken.config.trackers.schema import TicketTriggerBlock
from harken.config.trackers.tracker_and_project_parser import ProjectSpec, TrackerSpec, check_interval, warn_of_ignored
from harken.config.yaml.nodes import Table, locate
from harken.runs import Workflow
from harken.suggest import suggest_fix
from harken.tickets import LifecycleLabels, ProjectScope, ProjectSettings, Routes
from harken.tickets.settings import FIRST_STEP, LAST_STEP

__all__ = ["STATUSES", "Known", "Project", "build_project"]

STATUSES = ("open_states", "trigger_statuses", "done_status", "failed_status")
"""Settings of a whole tracker that may be written on its projects."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What projects refer to: the settings of the file, with their places, and the workflows, also refused ones."""

    settings: Settings
    places: Mapping[str, Place]
    workflows: Mapping[str, Workflow]
    refused: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project of a tracker, with what of it counts for the whole tracker."""

    spec: ProjectSpec
    settings: ProjectSettings
    statuses: Mapping[str, object] = field(default_factory=dict)


def build_project(project: ProjectSpec, tracker: TrackerSpec, known: Known, report: Report) -> Project | None:
    """Return the project; None when it does not fit its tracker or names a pipeline that is not there."""
    _, trigger = trigger_block(project.block, tracker.kind)
    _check_triggers(project, tracker, report)
    location = _location(project, tracker, report)
    scope = _scope(project, tracker, report)
    routes = _routes(project, tracker, known, report)
    check_interval(tracker, project.block.polling, project.table, report, project.path)
    if location is None or routes is None or report.failed:
        return None
    source = project.block.source
    settings = ProjectSettings(
        name=project.name,
        location=location,
        scope=scope,
        routes=routes,
        trust=merge_trust(project.block.trust, tracker.block.trust),
        repository=(source.url or source.path or "") if source else "",
        base=source.default_branch if source else "",
    )
    return Project(spec=project, settings=settings, statuses=_statuses(trigger))


def _check_triggers(project: ProjectSpec, tracker: TrackerSpec, report: Report) -> None:
    key, _ = trigger_block(project.block, tracker.kind)
    for name, node in project.table.items.items():
        if not name.endswith("_trigger"):
            continue
        path = (*project.path, name)
        if name != key:
            place = project.table.keys[name]
            report.warn(place, path, f"its tickets are at {tracker.kind}, so this is not used", "Remove it", "ignored")
        elif isinstance(node, Table):
            warn_of_ignored(node, report, path)


def _statuses(trigger: TicketTriggerBlock | None) -> dict[str, object]:
    if trigger is None:
        return {}
    found = {name: getattr(trigger, name) for name in STATUSES}
    return {name: value for name, value in found.items() if value is not None}


def _location(project: ProjectSpec, tracker: TrackerSpec, report: Report) -> str | None:
    """Where the tickets of the project are: what the tracker is for, or else the repository of the project."""
    resolution, source = project.block.resolution, project.block.source
    wanted = resolution.repo.strip("/") if resolution else ""
    place, path = locate(project.table, ("resolution", "repo")), (*project.path, "resolution", "repo")
    if tracker.kind not in ("github", "gitlab"):
        if wanted:
            fix = "Use tag" + (" or area_path" if tracker.kind == "azure_devops" else "")
            report.error(place, path, f"a ticket of {tracker.kind} has no repository", fix)
        return tracker.address.project
    if wanted and "/" not in wanted and tracker.address.organization:
        wanted = f"{tracker.address.organization}/{wanted}"
    if tracker.address.project:
        if wanted and wanted.casefold() != tracker.address.project.casefold():
            message = f"the tracker is for {tracker.address.project} alone, so no ticket is of {wanted}"
            report.error(place, path, message, "Leave it out, or the repository of the tracker")
        return tracker.address.project
    if not wanted and source is not None and source.url and source.url.startswith(("http://", "https://")):
        return _repository(project, tracker, source.url, report)
    if "/" not in wanted:
        fix = "Add source: {url: …}, or resolution: {repo: owner/name}"
        report.error(project.table.place, project.path, "its repository is not known", fix, "missing")
        return None
    return wanted


def _repository(project: ProjectSpec, tracker: TrackerSpec, url: str, report: Report) -> str | None:
    base_url = str(getattr(tracker.account.model, "base_url", ""))
    place, path = locate(project.table, ("source", "url")), (*project.path, "source", "url")
    try:
        found = repository_in(tracker.kind, url, base_url)
    except Invalid as error:
        report.error(place, path, error.message, error.fix)
        return None
    if not found:
        message = f"names no repository at {base_url}, where the tracker is, so it is not known whose tickets these are"
        report.error(place, path, message, "Add resolution: {repo: owner/name}", "missing")
    return found or None


def _scope(project: ProjectSpec, tracker: TrackerSpec, report: Report) -> ProjectScope:
    resolution = project.block.resolution
    if resolution is None:
        return ProjectScope(name=project.name)
    if resolution.area_path and tracker.kind != "azure_devops":
        place, path = locate(project.table, ("resolution", "area_path")), (*project.path, "resolution", "area_path")
        report.error(place, path, f"a ticket of {tracker.kind} has no area", "Use tag")
    return ProjectScope(name=project.name, tag=resolution.tag.strip(), area_path=resolution.area_path.strip())


def _routes(project: ProjectSpec, tracker: TrackerSpec, known: Known, report: Report) -> Routes | None:
    """The pipelines of the project; None when one of them is not there."""
    text = merge_routing(project.block, tracker.block, known.settings, tracker.kind)
    lifecycle = LifecycleLabels(tracker.block.label_prefix or known.settings.label_prefix)
    default = text.default
    if not text.by_label and not default and FALLBACK in known.workflows:
        default = FALLBACK
    if not text.by_label and not default:
        fix = "Add pipeline_from_label: with a label and its pipeline, or default_pipeline:"
        report.error(project.table.place, project.path, "no ticket of it would start anything", fix, "missing")
        return None
    for label, pipeline in text.by_label.items():
        place, path = _place_of(text.by_label_from, ("pipeline_from_label", label), project, tracker, known)
        if lifecycle.state_of([label]) is not None:
            message = f"{label} is a label by which tickets show where their run is"
            report.error(place, path, message, "Choose another, or another label_prefix")
        _check_pipeline(pipeline, place, path, known, report)
    _warn_of_twins(text, project, tracker, known, report)
    if default:
        key = "pipeline" if text.default_from == "pipeline" else "default_pipeline"
        place, path = _place_of(text.default_from, (key,), project, tracker, known)
        _check_pipeline(default, place, path, known, report)
    return None if report.failed else Routes(by_label=dict(text.by_label), default=default)


def _place_of(
    where: str, inside: tuple[str, ...], project: ProjectSpec, tracker: TrackerSpec, known: Known
) -> tuple[Place, Path]:
    """The place of a setting that counts for the project, wherever it is written."""
    if where == "file":
        return known.places[inside[0]], inside
    if where == "tracker":
        return locate(tracker.table, inside), (*tracker.path, *inside)
    if where == "trigger":
        inside = (trigger_block(project.block, tracker.kind)[0], *inside)
    return locate(project.table, inside), (*project.path, *inside)


def _check_pipeline(name: str, place: Place, path: Path, known: Known, report: Report) -> None:
    if name in known.workflows:
        steps = known.workflows[name].definition.get("steps") or ()
        for taken in sorted({FIRST_STEP, LAST_STEP} & {step.get("id") for step in steps if isinstance(step, Mapping)}):
            message = f"the step {taken} of {name} has the name of one that every run of a ticket has"
            report.error(place, path, message, "Give it another id", "clash")
        return
    if item("workflow", name) in known.refused:
        report.error(place, path, f"the workflow {name} was refused", "Correct it first", "depends")
        return
    fix = suggest_fix(name, known.workflows) if known.workflows else "Write it into workflows/, or see: harken init"
    report.error(place, path, f"there is no workflow {name!r} for this pipeline", fix, "unknown_name")


def _warn_of_twins(text: RoutingText, project: ProjectSpec, tracker: TrackerSpec, known: Known, report: Report) -> None:
    """Case does not count in labels, so of two that differ in nothing else only the first is ever chosen."""
    seen: dict[str, str] = {}
    for label in text.by_label:
        first = seen.setdefault(label.casefold(), label)
        if first != label:
            place, path = _place_of(text.by_label_from, ("pipeline_from_label", label), project, tracker, known)
            report.warn(place, path, f"is the same label as {first}, which is tried first", "Remove one", "ignored")
