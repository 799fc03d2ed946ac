"""Reading and swapping lifecycle labels."""

from __future__ import annotations

import pytest

from harken.tickets import Lifecycle, LifecycleLabels

LABELS = LifecycleLabels()


@pytest.mark.parametrize(
    ("labels", "state"),
    [
        ([], None),
        (["bug", "harken"], None),
        (["harken:done"], Lifecycle.DONE),
        (["Harken:In-Progress"], Lifecycle.IN_PROGRESS),
        (["harken:urgent", "harken:"], None),
        (["xharken:done", "harken:done2", " harken:done"], None),
        # a swap that was cut short leaves two
        (["harken:pending", "harken:in-progress"], Lifecycle.IN_PROGRESS),
        (["harken:done", "harken:pending"], Lifecycle.DONE),
        (["harken:enqueued", "harken:failed"], Lifecycle.ENQUEUED),
        (["agent-smith:done"], None),
    ],
)
def test_state_of_labels(labels: list[str], state: Lifecycle | None) -> None:
    assert LABELS.state_of(labels) == state


def test_the_prefix_can_be_chosen() -> None:
    smith = LifecycleLabels(prefix="agent-smith")
    assert smith.label(Lifecycle.DONE) == "agent-smith:done"
    assert smith.state_of(["agent-smith:waiting", "harken:done"]) is Lifecycle.WAITING


def test_pitfall_66_operator_labels_with_our_prefix_survive() -> None:
    labels = ["harken:urgent", "harken:done", "harken", "bug", "HARKEN:PENDING"]
    assert LABELS.others(labels) == ["harken:urgent", "harken", "bug"]
    assert LABELS.surplus(labels, Lifecycle.FAILED) == ["harken:done", "HARKEN:PENDING"]


def test_the_label_that_is_wanted_is_not_removed() -> None:
    assert LABELS.surplus(["harken:pending", "harken:Done", "bug"], Lifecycle.DONE) == ["harken:pending"]
    assert LABELS.surplus(["harken:done", "bug"], None) == ["harken:done"]
    assert LABELS.surplus(["bug"], Lifecycle.DONE) == []
