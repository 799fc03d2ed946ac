"""What the configuration says about trackers and projects, as values that the rules and the engine use."""

from __future__ import annotations

import msgspec

from harken.tickets.labeller_trust import Trust
from harken.tickets.lifecycle_labels import LifecycleLabels
from harken.tickets.project_of_ticket import ProjectScope
from harken.tickets.readiness import Scope
from harken.tickets.routing import Routes

__all__ = [
    "FIRST_STEP",
    "LAST_STEP",
    "ProjectSettings",
    "TrackerSettings",
    "feed_name",
    "scope_of",
    "tracker_of",
    "trigger_name",
]

FIRST_STEP, LAST_STEP = "preflight", "postflight"
"""The steps that every run of a ticket begins and ends with. No step of a pipeline can have these names."""

_FEED = "tracker/"


class ProjectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A project of a tracker. `location` is where its tickets are (see `TrackerSettings.locations`).

    `repository` is the address that its code is cloned from, `base` the branch that pull requests go into; empty
    without code.
    """

    name: str
    location: str
    scope: ProjectScope
    routes: Routes
    trust: Trust = Trust()
    repository: str = ""
    base: str = ""


class TrackerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A tracker with its projects, in the order of the configuration.

    `account` names the integration that holds its credential. `locations` are what the service's tracker is made for:
    repositories of GitHub, projects of GitLab and Azure DevOps, project keys of Jira. `open_states` and
    `trigger_statuses` are in lower case. A tracker that is not `polled` is still swept, as webhooks get lost.
    `doorbell`: a webhook only wakes the poll. A first read that would start more runs than `flood_limit` holds them.
    """

    name: str
    kind: str
    account: str
    locations: tuple[str, ...]
    projects: tuple[ProjectSettings, ...]
    lifecycle: LifecycleLabels = LifecycleLabels()
    open_states: frozenset[str] = frozenset()
    trigger_statuses: frozenset[str] = frozenset()
    done_status: str = ""
    failed_status: str = ""
    polled: bool = False
    interval: float = 60.0
    jitter: float = 0.1
    webhook: bool = False
    doorbell: bool = False
    zero_match_comment: bool = False
    flood_limit: int = 100

    def project(self, name: str) -> ProjectSettings | None:
        return next((project for project in self.projects if project.name == name), None)


def scope_of(tracker: TrackerSettings, project: ProjectSettings) -> Scope:
    """What of the project decides about its tickets."""
    return Scope(
        routes=project.routes,
        lifecycle=tracker.lifecycle,
        open_states=tracker.open_states,
        trigger_statuses=tracker.trigger_statuses,
    )


def feed_name(tracker: str) -> str:
    """The feed of a tracker: polled, and the target of its webhooks."""
    return f"{_FEED}{tracker}"


def tracker_of(feed: str) -> str:
    """The tracker that the feed of this name reads; empty if it reads something else."""
    return feed.removeprefix(_FEED) if feed.startswith(_FEED) else ""


def trigger_name(tracker: str, project: str) -> str:
    """The trigger of one project of a tracker."""
    return f"{tracker}/{project}"
