"""Put a tracker and its projects together: what the engine knows of them, and the findings about both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from harken.config.findings import Path, Place, Report
from harken.config.loaded import item
from harken.config.settings import Settings
from harken.config.trackers.address import is_cloud, repository_in
from harken.config.trackers.merge import FALLBACK, RoutingText, merge_polling, merge_routing, merge_trust, trigger_block
from harken.config.trackers.overlap import Claim, overlap
from harken.config.trackers.schema import Hook, TicketTriggerBlock
from harken.config.trackers.specs import ProjectSpec, TrackerSpec, check_interval, warn_of_ignored
from harken.config.validate import Invalid
from harken.config.yaml.nodes import Table, locate
from harken.runs import Workflow
from harken.suggest import suggest_fix
from harken.tickets import LifecycleLabels, ProjectScope, ProjectSettings, Routes, TrackerSettings
from harken.tickets.settings import FIRST_STEP, LAST_STEP

__all__ = ["SWEEP_SECONDS", "Known", "build_project", "build_tracker", "check_overlaps", "hook_of"]

SWEEP_SECONDS = 900.0
"""How often a tracker is read that is not polled: webhooks get lost."""

_OPEN_STATES = {"azure_devops": ("New", "Active", "Committed")}
_STATUSES = ("open_states", "trigger_statuses", "done_status", "failed_status")


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
    found = {name: getattr(trigger, name) for name in _STATUSES}
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
        wanted = _repository(project, tracker, source.url, report)
    if "/" not in wanted:
        fix = "Add source: {url: …}, or resolution: {repo: owner/name}"
        report.error(project.table.place, project.path, "its repository is not known", fix, "missing")
        return None
    return wanted


def _repository(project: ProjectSpec, tracker: TrackerSpec, url: str, report: Report) -> str:
    base_url = str(getattr(tracker.account.model, "base_url", ""))
    try:
        return repository_in(tracker.kind, url, base_url)
    except Invalid as error:
        place, path = locate(project.table, ("source", "url")), (*project.path, "source", "url")
        report.error(place, path, error.message, error.fix)
        return ""


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


def build_tracker(
    tracker: TrackerSpec, projects: Sequence[Project], prefix: str, reports: Mapping[str, Report], *, used: bool
) -> tuple[TrackerSettings, Report]:
    """Return the tracker with those projects that agree about it, and what is odd about the tracker itself.

    `prefix` is that of all trackers without one; `used`: a project names this one, right or wrong. What is wrong with
    a project is added to its report in `reports`.
    """
    report = Report()
    statuses, agreeing = _agreed(tracker, projects, reports)
    block = tracker.block
    polling = merge_polling(block.polling, [project.spec.block.polling for project in agreeing])
    secret = hook_of(tracker, agreeing)
    settings = TrackerSettings(
        name=tracker.name,
        kind=tracker.kind,
        account=tracker.account.name,
        locations=tuple(dict.fromkeys(project.settings.location for project in agreeing)),
        projects=_with_repos([project.settings for project in agreeing]),
        lifecycle=LifecycleLabels(block.label_prefix or prefix),
        open_states=_folded(statuses.get("open_states") or _OPEN_STATES.get(tracker.kind, ())),
        trigger_statuses=_folded(statuses.get("trigger_statuses") or ()),
        done_status=str(statuses.get("done_status") or ""),
        failed_status=str(statuses.get("failed_status") or ""),
        polled=polling.enabled,
        interval=polling.interval_seconds,
        jitter=polling.jitter_percent / 100,
        webhook=secret is not None,
        # what nobody has signed is not believed
        doorbell=block.doorbell or (secret is not None and secret.secret is None),
        zero_match_comment=block.zero_match_comment,
        flood_limit=block.flood_limit,
    )
    if agreeing:
        _warn_of_access(tracker, settings, agreeing, secret, report)
    elif not used:
        message = "no project uses it, so it is not read"
        report.warn(tracker.table.place, tracker.path, message, "Add one under projects:", "ignored")
    return settings, report


def _folded(values: object) -> frozenset[str]:
    return frozenset(str(value).casefold() for value in values) if isinstance(values, Iterable) else frozenset()


def _agreed(
    tracker: TrackerSpec, projects: Sequence[Project], reports: Mapping[str, Report]
) -> tuple[dict[str, object], list[Project]]:
    """Statuses belong to the whole tracker. A project may write them, unless another one wrote something else."""
    found: dict[str, object] = {
        name: value for name in _STATUSES if (value := getattr(tracker.block, name)) is not None
    }
    agreeing: list[Project] = []
    for project in projects:
        report = reports[project.spec.name]
        key, _ = trigger_block(project.spec.block, tracker.kind)
        for name, value in project.statuses.items():
            if found.setdefault(name, value) != value:
                inside = (key, name)
                place, path = locate(project.spec.table, inside), (*project.spec.path, *inside)
                message = f"the tracker {tracker.name} has another {name} already, and all its projects share one"
                report.error(place, path, message, "Write it on the tracker, or give the project a tracker of its own")
        if not report.failed:
            agreeing.append(project)
    return found, agreeing


def _with_repos(projects: Sequence[ProjectSettings]) -> tuple[ProjectSettings, ...]:
    """Where a tracker reads several repositories, a ticket belongs to the project of its own."""
    if len({project.location.casefold() for project in projects}) < 2:
        return tuple(projects)
    return tuple(
        msgspec.structs.replace(project, scope=msgspec.structs.replace(project.scope, repo=project.location))
        for project in projects
    )


def hook_of(tracker: TrackerSpec, projects: Iterable[Project]) -> Hook | None:
    """What webhooks are verified with; None when the tracker takes none."""
    secrets = [tracker.block.webhook_secret]
    for project in projects:
        _, trigger = trigger_block(project.spec.block, tracker.kind)
        secrets.append(trigger.secret if trigger else None)
    found = next((secret for secret in secrets if secret is not None and secret.get_secret_value()), None)
    if found is not None:
        return Hook(secret=found)
    return Hook() if tracker.block.allow_unsigned else None


def _warn_of_access(
    tracker: TrackerSpec, settings: TrackerSettings, projects: Sequence[Project], hook: Hook | None, report: Report
) -> None:
    place, path = tracker.table.place, tracker.path
    if hook is None and not settings.polled:
        message = "is only read every 15 minutes: it is not polled, and without webhook_secret no webhook is taken"
        report.warn(place, path, message, "Add polling: {enabled: true}, or webhook_secret: ${…}", "missing")
    if hook is not None and hook.secret is None:
        at = locate(tracker.table, ("allow_unsigned",), key=True)
        message = "anybody who knows the address can make us read the tracker"
        report.warn(at, (*path, "allow_unsigned"), message, "Add webhook_secret: ${…}", "trust")
    base_url = str(getattr(tracker.account.model, "base_url", ""))
    explicit = tracker.block.trust is not None or all(project.spec.block.trust for project in projects)
    if settings.kind in ("jira", "azure_devops") and is_cloud(base_url) and not explicit:
        message = "whoever may edit a ticket starts its pipeline; in a public project that may be everybody"
        fix = "Name them in trust: {label: [NAME, …]}, or write trust: {label: write} if that is meant"
        report.warn(place, path, message, fix, "trust")
    for project in projects:
        _warn_of_unknown_authors(settings, project, report)


def _warn_of_unknown_authors(settings: TrackerSettings, project: Project, report: Report) -> None:
    """Where a status starts the pipeline, the author has to be trusted, and only GitHub tells what an author may do."""
    routes, trust = project.settings.routes, project.settings.trust
    by_status = bool(settings.trigger_statuses) and not routes.by_label
    if settings.kind != "github" and by_status and trust.label in ("write", "triage"):
        message = f"{settings.kind} does not tell what the author of a ticket may do, so none of its tickets starts"
        fix = "Add pipeline_from_label:, or name the authors in trust: {label: [NAME, …]}"
        report.warn(project.spec.table.place, project.spec.path, message, fix, "trust")


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
