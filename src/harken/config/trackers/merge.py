"""What counts where a setting stands in several places: project over tracker over the whole file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from harken.config.settings import Settings
from harken.config.trackers.schema import PollingBlock, ProjectBlock, TicketTriggerBlock, TrackerBlock, TrustBlock
from harken.tickets import Trust

__all__ = ["FALLBACK", "RoutingText", "merge_polling", "merge_routing", "merge_trust", "trigger_block"]

FALLBACK = "fix-bug"
"""The pipeline without a label map and a default, if there is a workflow of this name."""

_TRIGGERS = {
    "github": "github_trigger",
    "gitlab": "gitlab_trigger",
    "azure_devops": "azuredevops_trigger",
    "jira": "jira_trigger",
}


class RoutingText(msgspec.Struct, frozen=True, kw_only=True):
    """The label map and the default that count, and where each is written: `project`, `trigger`, `tracker`, `file`."""

    by_label: dict[str, str] = {}
    by_label_from: str = ""
    default: str = ""
    default_from: str = ""


def trigger_block(project: ProjectBlock, kind: str) -> tuple[str, TicketTriggerBlock | None]:
    """The trigger block of the project for this platform, and its key."""
    key = _TRIGGERS.get(kind, "")
    return key, getattr(project, key, None) if key else None


def merge_routing(project: ProjectBlock, tracker: TrackerBlock, settings: Settings, kind: str) -> RoutingText:
    """The label map counts as a whole: labels of the tracker are not added to those of a project."""
    _, trigger = trigger_block(project, kind)
    maps = (
        ("trigger", trigger.pipeline_from_label if trigger else None),
        ("project", project.pipeline_from_label),
        ("tracker", tracker.pipeline_from_label),
        ("file", settings.pipeline_from_label),
    )
    defaults = (
        ("trigger", trigger.default_pipeline if trigger else None),
        ("project", project.default_pipeline),
        ("pipeline", project.pipeline),
        ("tracker", tracker.default_pipeline),
        ("file", settings.default_pipeline),
    )
    by_label_from, by_label = next(((where, found) for where, found in maps if found is not None), ("", {}))
    default_from, default = next(((where, found) for where, found in defaults if found is not None), ("", ""))
    return RoutingText(by_label=by_label, by_label_from=by_label_from, default=default, default_from=default_from)


def merge_polling(tracker: PollingBlock | None, projects: Iterable[PollingBlock | None]) -> PollingBlock:
    """A tracker is asked for all its projects together: at the shortest interval of the blocks that switch it on."""
    written = [block for block in (tracker, *projects) if block is not None]
    enabled: Sequence[PollingBlock] = [block for block in written if block.enabled]
    return min(enabled, key=lambda block: block.interval_seconds) if enabled else PollingBlock()


def merge_trust(project: TrustBlock | None, tracker: TrustBlock | None) -> Trust:
    """Each setting of its own: a project that names its bots keeps the rest of the tracker's."""
    given: dict[str, Any] = {}
    for block in (tracker, project):
        given |= block.model_dump(exclude_unset=True) if block is not None else {}
    merged = TrustBlock(**given)
    label = merged.label if isinstance(merged.label, str) else tuple(merged.label)
    return Trust(label=label, bots=tuple(merged.bots), untrusted=merged.untrusted, text=merged.text)
