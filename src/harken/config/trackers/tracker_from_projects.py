"""A tracker with those of its projects that agree about it, and the findings about the tracker itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from harken.config.findings import Report
from harken.config.trackers.address import is_cloud
from harken.config.trackers.merge import merge_polling, trigger_block
from harken.config.trackers.project_from_spec import STATUSES, Project
from harken.config.trackers.schema import Hook
from harken.config.trackers.tracker_and_project_parser import TrackerSpec
from harken.config.yaml.nodes import locate
from harken.tickets import LifecycleLabels, ProjectSettings, TrackerSettings

__all__ = ["SWEEP_SECONDS", "build_tracker", "hook_of"]

SWEEP_SECONDS = 900.0
"""How often a tracker is read that is not polled: webhooks get lost."""

_OPEN_STATES = {"azure_devops": ("New", "Active", "Committed")}


def build_tracker(
    tracker: TrackerSpec, projects: Sequence[Project], prefix: str, reports: Mapping[str, Report], *, used: bool
) -> tuple[TrackerSettings, Report]:
    """Return the tracker with those projects that agree about it, and what is odd about the tracker itself.

    `prefix` is that of all trackers without one; `used`: a project names this one, right or wrong. What is wrong with
    a project is added to its report in `reports`.
    """
    report = Report()
    statuses, agreeing = _settle_statuses(tracker, projects, reports)
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


def _settle_statuses(
    tracker: TrackerSpec, projects: Sequence[Project], reports: Mapping[str, Report]
) -> tuple[dict[str, object], list[Project]]:
    """Statuses belong to the whole tracker. A project may write them, unless another one wrote something else."""
    found: dict[str, object] = {name: value for name in STATUSES if (value := getattr(tracker.block, name)) is not None}
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
