"""A label that is off for a moment withdraws nothing; one that stays off does, and its run says who took it off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harken.testing import VirtualClock, virtual
from harken.ticket import Actor, LabelChange, Ticket
from harken.tickets import Routes
from harken.tickets.label_removal_grace import Removal, find_removal, grace_of, is_meant, seconds_left
from tests.tickets.run_control_world import settings, tickets_world

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ISSUE = Ticket(id="1", ref="shop#1", title="", url="", status="open", closed=False)
DO = {"id": "work", "action": "work.do", "timeout": "2h"}
PULL = {"id": "pull", "action": "ticket.pull_request", "head": "harken/1"}


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


class Historian:
    """A tracker of which only the history is asked."""

    def __init__(self, *changes: tuple[str, bool, str]) -> None:
        self._changes = [
            LabelChange(label=label, added=added, actor=Actor(id=who, login=who) if who else None, at=ago(9))
            for label, added, who in changes
        ]

    async def label_history(self, ticket: Ticket) -> Any:
        return self._changes or None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], Removal(label="Fix")),
        ([("other", False, "ada")], Removal(label="Fix")),
        ([("fix", True, "ada"), ("fix", False, "leo")], Removal(label="Fix", by="leo", at=ago(9))),
        ([("fix", True, "ada"), ("FIX", False, "")], Removal(label="Fix", at=ago(9))),
        ([("fix", False, "leo"), ("fix", True, "leo")], Removal(label="Fix", back=True)),
        ([("fix", False, "@all `x`")], Removal(label="Fix", by="all x", at=ago(9))),
    ],
)
@virtual
async def test_the_history_tells_who_took_the_label_off(
    clock: VirtualClock, changes: list[tuple[str, bool, str]], expected: Removal
) -> None:
    tracker: Any = Historian(*changes)
    assert await find_removal(tracker, ISSUE, "Fix") == expected


@pytest.mark.parametrize(
    ("removal", "text"),
    [
        (Removal(label="fix-bug", by="alice"), "the label fix-bug was taken off by alice"),
        (Removal(label="fix-bug"), "the label fix-bug was taken off"),
    ],
)
def test_a_removal_is_told_with_the_name_of_whoever_did_it(removal: Removal, text: str) -> None:
    assert removal.text == text


@pytest.mark.parametrize(
    ("removal", "seen_for", "meant"),
    [
        (Removal(label="fix", at=ago(1)), 0.0, False),
        (Removal(label="fix", at=ago(5)), 0.0, True),
        (Removal(label="fix", at=ago(1)), 5.0, True),
        (Removal(label="fix"), 4.9, False),
        (Removal(label="fix"), 5.0, True),
        (Removal(label="fix", at=ago(-3600)), 4.9, False),
        (Removal(label="fix", back=True), 9.9, False),
        (Removal(label="fix", back=True), 10.0, True),
    ],
)
def test_a_removal_is_meant_when_it_has_lasted(removal: Removal, seen_for: float, meant: bool) -> None:
    assert is_meant(removal, 5.0, seen_for=seen_for, now=NOW) is meant


@pytest.mark.parametrize(("at", "left"), [(None, 0.0), (ago(20), 40.0), (ago(60), 0.0), (ago(90), 0.0), (ago(-9), 0.0)])
def test_what_is_left_of_the_grace_is_counted_by_the_history(at: datetime | None, left: float) -> None:
    assert seconds_left(Removal(label="fix", at=at), 60.0, NOW) == left


def test_what_has_not_begun_is_waited_for_as_long_as_between_two_polls() -> None:
    assert grace_of(settings(interval=30.0), begun=False) == 30.0
    assert grace_of(settings(interval=3600.0), begun=False) == 60.0
    assert grace_of(settings(interval=1.0), begun=False) == 5.0
    assert grace_of(settings(interval=30.0), begun=True) == 5.0


@pytest.mark.parametrize("gap", [0.5, 3.0])
def test_a_label_off_and_on_at_any_moment_of_a_run_is_one_run(gap: float, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, {**DO, "id": "a"}, DO, PULL) as world:
            world.project()
            world.poll()
            world.seconds = 12.0
            for moment in range(0, 27, 2):
                issue = world.ticket()
                await clock.sleep(30)
                before = len(await world.runs()) - 1
                await clock.sleep(moment)
                world.hub.unlabel(issue, "fix")
                await clock.sleep(gap)
                world.hub.label(issue, "fix")
                await clock.sleep(200)
                assert [run.status for run in (await world.runs())[before:]] == ["done"], moment
                assert "harken:done" in issue.labels, moment

    test()


@virtual
async def test_a_label_off_and_on_before_its_run_begins_is_one_run(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO, working=False) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        world.hub.unlabel(issue, "fix")
        await world.tell(issue)
        world.attend()
        world.work()
        await clock.sleep(40)
        world.hub.label(issue, "fix")
        await world.tell(issue)
        assert (await world.until(run_id)).status == "done"
        assert len(await world.runs()) == 1


@virtual
async def test_a_label_that_is_replaced_by_another_one_is_not_waited_for(clock: VirtualClock, tmp_path: Path) -> None:
    tracker = settings(routes=Routes(by_label={"fix": "fix-bug", "scan": "fix-bug"}))
    async with tickets_world(clock, tmp_path, DO, tracker=tracker, working=False) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        world.hub.label(issue, "scan")
        world.hub.unlabel(issue, "fix")
        await clock.sleep(20)
        world.work()
        assert (await world.until(run_id, seconds=3)).status == "cancelled"
