"""Labels choose pipelines."""

from __future__ import annotations

import pytest

from harken.tickets import LifecycleLabels, Route, Routes, route

MAP = {"agent-smith": "fix-bug", "security-review": "security-scan"}
SMITH = LifecycleLabels(prefix="agent-smith")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["agent-smith"], Route(pipeline="fix-bug", label="agent-smith")),
        (["Security-Review"], Route(pipeline="security-scan", label="Security-Review")),
        # the order of the map counts, not that of the ticket
        (["security-review", "agent-smith"], Route(pipeline="fix-bug", label="agent-smith")),
        (["agent-smith:pending", "security-review"], Route(pipeline="security-scan", label="security-review")),
    ],
)
def test_the_first_key_of_the_map_whose_label_is_on_the_ticket_wins(labels: list[str], expected: Route) -> None:
    assert route(labels, Routes(by_label=MAP, default="other"), SMITH) == expected


@pytest.mark.parametrize("labels", [[], ["bug"], ["agent-smith:pending"], ["agent"], ["agent-smith2"]])
def test_a_map_without_a_hit_starts_nothing_and_says_so(labels: list[str]) -> None:
    chosen = route(labels, Routes(by_label=MAP, default="fix-bug"), SMITH)
    assert not chosen.pipeline
    assert "agent-smith, security-review" in chosen.reason


def test_without_a_map_the_default_pipeline_is_started() -> None:
    assert route(["whatever"], Routes(default="fix-bug"), SMITH) == Route(pipeline="fix-bug")


def test_without_a_map_and_a_default_nothing_is_started_and_it_is_said() -> None:
    chosen = route(["bug"], Routes(), SMITH)
    assert (chosen.pipeline, chosen.reason) == ("", "no pipeline_from_label and no default_pipeline is configured")


def test_a_lifecycle_label_never_chooses_a_pipeline_even_if_the_map_has_it() -> None:
    assert not route(["agent-smith:done"], Routes(by_label={"agent-smith:done": "again"}), SMITH).pipeline
