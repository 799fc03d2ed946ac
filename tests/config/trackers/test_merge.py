"""What counts where a setting stands in several places."""

from __future__ import annotations

from typing import Any

import pytest

from harken.config.settings import Settings
from harken.config.trackers.merge import merge_polling, merge_routing, merge_trust
from harken.config.trackers.overlap import Claim, overlap
from harken.config.trackers.schema import PollingBlock, ProjectBlock, TrackerBlock, TrustBlock, kind_of
from harken.tickets import ProjectScope, Trust

MAPS = {
    "trigger": {"t": "trigger"},
    "project": {"p": "project"},
    "tracker": {"r": "tracker"},
    "file": {"a": "file"},
}


def routing(project: dict[str, Any], tracker: dict[str, Any], file: dict[str, Any]) -> Any:
    return merge_routing(
        ProjectBlock(tracker="x", **project), TrackerBlock(type="github", **tracker), Settings(**file), "github"
    )


@pytest.mark.parametrize("count", range(4))
def test_the_map_of_the_innermost_place_counts_as_a_whole(count: int) -> None:
    places = ["trigger", "project", "tracker", "file"][count:]
    given = {name: {"pipeline_from_label": MAPS[name]} for name in places}
    project = given.get("project", {}) | ({"github_trigger": given["trigger"]} if "trigger" in given else {})
    found = routing(project, given.get("tracker", {}), given.get("file", {}))
    assert (found.by_label, found.by_label_from) == (MAPS[places[0]], places[0])


def test_an_empty_map_of_a_project_hides_that_of_the_tracker() -> None:
    found = routing({"pipeline_from_label": {}}, {"pipeline_from_label": {"fix": "fix-bug"}}, {})
    assert found.by_label == {}


@pytest.mark.parametrize(
    ("project", "tracker", "file", "default"),
    [
        ({"github_trigger": {"default_pipeline": "a"}, "default_pipeline": "b"}, {}, {}, "a"),
        ({"default_pipeline": "b", "pipeline": "c"}, {"default_pipeline": "d"}, {}, "b"),
        ({"pipeline": "c"}, {"default_pipeline": "d"}, {}, "c"),
        ({}, {"default_pipeline": "d"}, {"default_pipeline": "e"}, "d"),
        ({}, {}, {"default_pipeline": "e"}, "e"),
        ({"jira_trigger": {"default_pipeline": "a"}}, {}, {}, ""),
    ],
)
def test_the_default_of_the_innermost_place_counts(
    project: dict[str, Any], tracker: dict[str, Any], file: dict[str, Any], default: str
) -> None:
    assert routing(project, tracker, file).default == default


def every(seconds: float, *, enabled: bool = True, jitter: float = 10) -> PollingBlock:
    return PollingBlock(enabled=enabled, interval_seconds=seconds, jitter_percent=jitter)


@pytest.mark.parametrize(
    ("tracker", "projects", "found"),
    [
        (None, [], PollingBlock()),
        (None, [None, every(30, jitter=15)], every(30, jitter=15)),
        (every(60), [None], every(60)),
        (every(60), [every(30)], every(30)),
        (every(60), [every(5, enabled=False)], every(60)),
        (every(10, enabled=False), [every(90)], every(90)),
        (every(10, enabled=False), [every(20, enabled=False)], PollingBlock()),
    ],
)
def test_a_tracker_is_polled_at_the_shortest_interval_that_is_enabled(
    tracker: PollingBlock | None, projects: list[PollingBlock | None], found: PollingBlock
) -> None:
    assert merge_polling(tracker, projects) == found


@pytest.mark.parametrize(
    ("project", "tracker", "found"),
    [
        (None, None, Trust()),
        (None, {"label": "triage"}, Trust(label="triage")),
        ({"bots": ["ci[bot]"]}, {"label": "triage"}, Trust(label="triage", bots=("ci[bot]",))),
        (
            {"label": ["ana", "bo"]},
            {"label": "triage", "untrusted": "hold"},
            Trust(label=("ana", "bo"), untrusted="hold"),
        ),
        ({"label": "write"}, {"label": "anyone"}, Trust(label="write")),
    ],
)
def test_trust_of_a_project_is_added_to_that_of_its_tracker(
    project: dict[str, Any] | None, tracker: dict[str, Any] | None, found: Trust
) -> None:
    blocks = [None if block is None else TrustBlock(**block) for block in (project, tracker)]
    assert merge_trust(blocks[0], blocks[1]) == found


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("GitHub", "github"),
        ("GITLAB", "gitlab"),
        ("AzureDevOps", "azure_devops"),
        ("azure_devops", "azure_devops"),
        ("Azure DevOps", "azure_devops"),
        ("azure-devops", "azure_devops"),
        ("Jira", "jira"),
        ("bugzilla", "bugzilla"),
    ],
)
def test_a_type_is_known_in_every_spelling(written: str, kind: str) -> None:
    assert kind_of(written) == kind


def claim(location: str = "acme", place: str = "server", **scope: str) -> Claim:
    return Claim(place=(place,), location=location, scope=ProjectScope(name="x", **scope))


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (claim(), claim(), "all"),
        (claim(), claim("other"), ""),
        (claim(), claim(place="elsewhere"), ""),
        (claim(""), claim("TL"), "all"),
        (claim("TL"), claim(""), ""),
        (claim(), claim(tag="x"), "all"),
        (claim(tag="x"), claim(), ""),
        (claim(tag="x"), claim(tag="X"), "all"),
        (claim(tag="x"), claim(tag="y"), ""),
        (claim(area_path="Shop"), claim(area_path="Shop\\Web"), "all"),
        (claim(area_path="Shop\\Web"), claim(area_path="Shop"), ""),
        (claim(area_path="Shop\\Web"), claim(area_path="Shop\\App"), ""),
        (claim(tag="x"), claim(area_path="Shop"), "some"),
        (claim(repo="a/b"), claim(repo="A/B"), "all"),
        (claim(repo="a/b"), claim(repo="a/c"), ""),
    ],
)
def test_projects_that_can_want_the_same_ticket_are_found(first: Claim, second: Claim, found: str) -> None:
    assert overlap(first, second) == found
