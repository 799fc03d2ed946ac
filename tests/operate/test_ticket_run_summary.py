"""What a run of a ticket came to, by its journal."""

from __future__ import annotations

from typing import Any

import pytest

from harken.operate.ticket_run_summary import summary_of
from harken.runs import StepRecord


def step(action: str, output: Any = None, *, status: Any = "ok", tokens: int = 0, usd: float = 0.0) -> StepRecord:
    return StepRecord(path=action, action=action, status=status, output=output, tokens=tokens, usd=usd)


def test_a_run_that_has_done_nothing_has_an_empty_result() -> None:
    assert summary_of(()) == {"labelled_by": "", "tokens": 0, "usd": 0, "pull_request": ""}


def test_cost_is_the_sum_of_all_steps() -> None:
    result = summary_of([step("llm", tokens=40, usd=0.5), step("agent", tokens=2, usd=0.25)])
    assert (result["tokens"], result["usd"]) == (42, 0.75)


@pytest.mark.parametrize(
    ("journal", "labelled_by"),
    [
        ([step("ticket.preflight", {"labelled_by": "mia"}), step("ticket.preflight", {"labelled_by": "leo"})], "leo"),
        ([step("ticket.preflight", {"labelled_by": "eve"}, status="failed")], ""),
        ([step("ticket.preflight", None)], ""),
    ],
)
def test_who_put_the_label_on_is_whom_the_newest_good_look_found(journal: list[StepRecord], labelled_by: str) -> None:
    assert summary_of(journal)["labelled_by"] == labelled_by


@pytest.mark.parametrize(
    ("journal", "address"),
    [
        (
            [step("agent", {"pr_url": "https://hub/pull/1"}), step("agent", {"pr_url": "https://hub/pull/2"})],
            "https://hub/pull/2",
        ),
        ([step("github.pull_request", {"url": "https://hub/pull/3"})], "https://hub/pull/3"),
        ([step("http", {"url": "https://elsewhere/"})], ""),
        ([step("agent", {"pr_url": "javascript:alert(1)"})], ""),
        ([step("agent", {"pr_url": 7}), step("agent", "no object")], ""),
    ],
)
def test_the_pull_request_is_the_newest_web_address_that_a_step_reported(
    journal: list[StepRecord], address: str
) -> None:
    assert summary_of(journal)["pull_request"] == address
