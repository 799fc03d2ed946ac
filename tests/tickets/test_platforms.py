"""What every platform must do when its tickets are polled: one run per wish, also with its own odd ways."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from msgspec.structs import replace

from harken.runs import Cancelled
from harken.services.azure_devops import plugin as azure_devops
from harken.services.github import plugin as github
from harken.services.gitlab import plugin as gitlab
from harken.services.jira import plugin as jira
from harken.source import Host, Plugin
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.azure_devops import AzureDevOps
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.gitlab import GitLab
from harken.testing.fakes.jira import Jira
from harken.ticket import TicketTracker
from tests.services.azure_devops import account as azure_account
from tests.services.github import account as github_account
from tests.services.gitlab import account as gitlab_account
from tests.services.jira import account as jira_account
from tests.tickets.tracked import Tracked, host_of, project, settings


class Board(Protocol):
    """A project of a platform. Tickets are called by their number."""

    location: str
    tracker: TicketTracker

    def open(self, *labels: str) -> str: ...

    def label(self, number: str, label: str) -> None: ...

    def unlabel(self, number: str, label: str) -> None: ...

    def close(self, number: str) -> None: ...

    def reopen(self, number: str) -> None: ...

    def labels(self, number: str) -> set[str]: ...

    def hide(self, seconds: float) -> None:
        """Let what is opened next be missing in lists for so long."""
        ...


class HubBoard:
    location = "acme/shop"

    def __init__(self, hub: GitHub, tracker: TicketTracker) -> None:
        self.hub, self.tracker, self._late = hub, tracker, 0.0

    def open(self, *labels: str) -> str:
        return str(self.hub.open(*labels, late=self._late).number)

    def label(self, number: str, label: str) -> None:
        self.hub.label(self._issue(number), label)

    def unlabel(self, number: str, label: str) -> None:
        self.hub.unlabel(self._issue(number), label)

    def close(self, number: str) -> None:
        self.hub.close(self._issue(number))

    def reopen(self, number: str) -> None:
        self.hub.reopen(self._issue(number))

    def labels(self, number: str) -> set[str]:
        return set(self._issue(number).labels)

    def hide(self, seconds: float) -> None:
        self._late = seconds

    def _issue(self, number: str) -> Any:
        return self.hub.repos[self.location].issues[int(number)]


class LabBoard:
    location = "acme/web/shop"

    def __init__(self, lab: GitLab, tracker: TicketTracker) -> None:
        self.lab, self.tracker, self._late = lab, tracker, 0.0

    def open(self, *labels: str) -> str:
        return str(self.lab.open(*labels, late=self._late).iid)

    def label(self, number: str, label: str) -> None:
        self.lab.label(self._issue(number), label)

    def unlabel(self, number: str, label: str) -> None:
        self.lab.unlabel(self._issue(number), label)

    def close(self, number: str) -> None:
        self.lab.close(self._issue(number))

    def reopen(self, number: str) -> None:
        self.lab.reopen(self._issue(number))

    def labels(self, number: str) -> set[str]:
        return set(self._issue(number).labels)

    def hide(self, seconds: float) -> None:
        self._late = seconds

    def _issue(self, number: str) -> Any:
        return self.lab.projects[self.location][int(number)]


class AzureBoard:
    location = "Shop"

    def __init__(self, board: AzureDevOps, tracker: TicketTracker) -> None:
        self.board, self.tracker, self._late = board, tracker, 0.0

    def open(self, *labels: str) -> str:
        return str(self.board.create(*labels, late=self._late).id)

    def label(self, number: str, label: str) -> None:
        self.board.tag(self.board.items[int(number)], label)

    def unlabel(self, number: str, label: str) -> None:
        self.board.untag(self.board.items[int(number)], label)

    def close(self, number: str) -> None:
        self.board.move(self.board.items[int(number)], "Closed")

    def reopen(self, number: str) -> None:
        self.board.move(self.board.items[int(number)], "New")

    def labels(self, number: str) -> set[str]:
        return set(self.board.items[int(number)].fields.get("System.Tags", "").split("; "))

    def hide(self, seconds: float) -> None:
        self._late = seconds


class JiraBoard:
    location = "TEAM"

    def __init__(self, jira: Jira, tracker: TicketTracker) -> None:
        self.jira, self.tracker = jira, tracker

    def open(self, *labels: str) -> str:
        return self.jira.create(labels=labels)

    def label(self, number: str, label: str) -> None:
        self.jira.label(number, *self.jira.issue(number).fields["labels"], label)

    def unlabel(self, number: str, label: str) -> None:
        self.jira.label(number, *(one for one in self.jira.issue(number).fields["labels"] if one != label))

    def close(self, number: str) -> None:
        self.jira.move(number, "Done")

    def reopen(self, number: str) -> None:
        self.jira.move(number, "To Do")

    def labels(self, number: str) -> set[str]:
        return set(self.jira.issue(number).fields["labels"])

    def hide(self, seconds: float) -> None:
        self.jira.late = seconds


def tracker_of(plugin: Plugin, location: str, account: Any, host: Host) -> TicketTracker:
    assert plugin.tracker is not None
    return plugin.tracker(location, account, host)


@asynccontextmanager
async def on_github(clock: VirtualClock) -> AsyncIterator[Board]:
    hub = GitHub(clock)
    hub.writes_a_minute = 10_000
    async with hub.serve(), host_of(clock) as host:
        yield HubBoard(hub, tracker_of(github, HubBoard.location, github_account(hub), host))


@asynccontextmanager
async def on_gitlab(clock: VirtualClock) -> AsyncIterator[Board]:
    lab = GitLab(clock)
    async with lab.serve(), host_of(clock) as host:
        yield LabBoard(lab, tracker_of(gitlab, LabBoard.location, gitlab_account(lab), host))


@asynccontextmanager
async def on_azure_devops(clock: VirtualClock) -> AsyncIterator[Board]:
    board = AzureDevOps(clock)
    async with board.serve(), host_of(clock) as host:
        yield AzureBoard(board, tracker_of(azure_devops, AzureBoard.location, azure_account(board, "coder"), host))


@asynccontextmanager
async def on_jira_cloud(clock: VirtualClock) -> AsyncIterator[Board]:
    async with _on_jira(clock, cloud=True) as board:
        yield board


@asynccontextmanager
async def on_jira_server(clock: VirtualClock) -> AsyncIterator[Board]:
    async with _on_jira(clock, cloud=False) as board:
        yield board


@asynccontextmanager
async def _on_jira(clock: VirtualClock, *, cloud: bool) -> AsyncIterator[Board]:
    served = Jira(clock, cloud=cloud)
    async with served.serve(), host_of(clock) as host:
        yield JiraBoard(served, tracker_of(jira, JiraBoard.location, jira_account(served), host))


Platform = Callable[[VirtualClock], AbstractAsyncContextManager[Board]]

everywhere = pytest.mark.parametrize("platform", [on_github, on_gitlab, on_azure_devops, on_jira_cloud, on_jira_server])


@asynccontextmanager
async def polled(clock: VirtualClock, path: Path, board: Board) -> AsyncIterator[Tracked]:
    given = settings(replace(project(), location=board.location))
    it = Tracked(clock, path, given, {board.location: board.tracker})
    await it.start()
    await it.cycle(5)
    yield it
    await it.stop()


async def count(it: Tracked) -> dict[str, int]:
    """How many runs each ticket had, by its number."""
    numbers: dict[str, int] = {}
    events = {event.key: event for event in (await it.store.events(feed=it.feed, limit=5000)).items}
    for run in await it.runs():
        number = events[run.event_keys[0]].data["number"]
        numbers[number] = numbers.get(number, 0) + 1
    return numbers


@everywhere
@virtual
async def test_a_ticket_lives_through_two_runs(clock: VirtualClock, tmp_path: Path, platform: Platform) -> None:
    async with platform(clock) as board, polled(clock, tmp_path, board) as it:
        number = board.open("fix")
        board.open("question")
        await it.cycle()
        assert await count(it) == {number: 1}
        await it.begin_runs()
        await it.cycle()
        await it.end_runs()
        for _ in range(20):
            await it.cycle()
        assert board.labels(number) == {"fix", "harken:done"}
        assert await count(it) == {number: 1}
        board.unlabel(number, "harken:done")
        await it.cycle()
        await it.cycle()
        assert await count(it) == {number: 2}


@everywhere
@virtual
async def test_labels_off_and_on_closed_and_reopened_are_no_wish_for_a_second_run(
    clock: VirtualClock, tmp_path: Path, platform: Platform
) -> None:
    async with platform(clock) as board, polled(clock, tmp_path, board) as it:
        number = board.open()
        for label in ("scan", "fix", "urgent"):
            board.label(number, label)
        await it.cycle()
        board.unlabel(number, "fix")
        board.label(number, "fix")
        await it.cycle()
        await it.begin_runs()
        await it.cycle()
        await it.end_runs()
        await it.cycle()
        board.close(number)
        await it.cycle()
        board.reopen(number)
        for _ in range(20):
            await it.cycle()
        assert await count(it) == {number: 1}


@everywhere
@virtual
async def test_a_closed_ticket_ends_its_run_and_runs_again_when_it_is_reopened(
    clock: VirtualClock, tmp_path: Path, platform: Platform
) -> None:
    async with platform(clock) as board, polled(clock, tmp_path, board) as it:
        number = board.open("fix")
        await it.cycle()
        await it.begin_runs()
        board.close(number)
        await it.cycle()
        assert (await it.states())[-1] == "closed"
        await it.end_runs(Cancelled())
        await it.cycle()
        board.reopen(number)
        await it.cycle()
        await it.cycle()
        assert await count(it) == {number: 2}


@everywhere
@virtual
async def test_what_a_lagging_search_shows_later_is_found_and_what_it_still_shows_claims_nothing(
    clock: VirtualClock, tmp_path: Path, platform: Platform
) -> None:
    async with platform(clock) as board, polled(clock, tmp_path, board) as it:
        board.hide(300)
        number = board.open("fix")
        for _ in range(8):
            await it.cycle()
        assert await count(it) == {number: 1}
        await it.begin_runs()
        await it.cycle()
        await it.end_runs()
        for _ in range(30):
            await it.cycle()
        assert await count(it) == {number: 1}
        board.hide(0)
        board.unlabel(number, "harken:done")
        await it.cycle()
        await it.cycle()
        assert await count(it) == {number: 2}


@everywhere
@virtual
async def test_hundreds_of_tickets_all_run_once_over_a_restart(
    clock: VirtualClock, tmp_path: Path, platform: Platform
) -> None:
    async with platform(clock) as board, polled(clock, tmp_path, board) as it:
        numbers = [board.open("fix") for _ in range(220)]
        await clock.sleep(58)
        await it.crash()
        await it.start()
        for _ in range(5):
            await it.cycle()
        assert await count(it) == dict.fromkeys(numbers, 1)


@everywhere
@virtual
async def test_a_ticket_of_a_lost_store_is_made_pending(
    clock: VirtualClock, tmp_path: Path, platform: Platform
) -> None:
    async with platform(clock) as board:
        number = board.open("fix", "harken:in-progress", "mine")
        await clock.sleep(3600)
        async with polled(clock, tmp_path, board) as it:
            for _ in range(4):
                await it.cycle()
            assert board.labels(number) == {"fix", "harken:pending", "mine"}
            assert await count(it) == {number: 1}
