"""A run asks, is answered and writes on the tickets of every platform; what it wrote is found again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pytest
from msgspec.structs import replace

from harken.source import Host
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.azure_devops import AzureDevOps
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.gitlab import GitLab
from harken.testing.fakes.jira import Jira
from harken.ticket import TicketTracker
from harken.tickets import ProjectScope
from harken.tickets.unique_comments import find_note
from tests.services.test_azure_devops_tracker import WorkItemBoard
from tests.services.test_github_tracker import HubBoard
from tests.services.test_gitlab_tracker import LabBoard
from tests.services.test_jira_tracker import JiraBoard
from tests.tickets.run_control_world import settings, tickets_world


class Board(Protocol):
    """Tickets of one project, and what somebody else than us does to them."""

    @property
    def tracker(self) -> TicketTracker: ...

    def open(self, *labels: str) -> str: ...

    def label(self, number: str, label: str) -> None: ...

    def unlabel(self, number: str, label: str) -> None: ...

    def comment(self, number: str, text: str) -> str: ...


@asynccontextmanager
async def on_github(clock: VirtualClock, host: Host) -> AsyncIterator[Board]:
    hub = GitHub(clock)
    hub.repos["acme/shop"].roles["zoe"] = "write"
    async with hub.serve():
        yield HubBoard(hub, host)


@asynccontextmanager
async def on_gitlab(clock: VirtualClock, host: Host) -> AsyncIterator[Board]:
    lab = GitLab(clock)
    async with lab.serve():
        yield LabBoard(lab, host)


@asynccontextmanager
async def on_azure_devops(clock: VirtualClock, host: Host) -> AsyncIterator[Board]:
    fake = AzureDevOps(clock)
    async with fake.serve():
        yield WorkItemBoard(fake, host)


@asynccontextmanager
async def on_jira_cloud(clock: VirtualClock, host: Host) -> AsyncIterator[Board]:
    jira = Jira(clock)
    jira.user("bob", email="bob@example.com")
    async with jira.serve():
        yield JiraBoard(jira, host)


@asynccontextmanager
async def on_jira_server(clock: VirtualClock, host: Host) -> AsyncIterator[Board]:
    jira = Jira(clock, cloud=False)
    jira.user("bob", email="bob@example.com")
    async with jira.serve():
        yield JiraBoard(jira, host)


Platform = Callable[[VirtualClock, Host], AbstractAsyncContextManager[Board]]
PLATFORMS = {
    "github": on_github,
    "gitlab": on_gitlab,
    "azure_devops": on_azure_devops,
    "jira": on_jira_cloud,
    "jira server": on_jira_server,
}
ASK = {"id": "ask", "action": "ticket.ask", "question": "Which shop?"}
SAY = {"id": "say", "action": "ticket.comment", "text": "Then it is {{.steps.ask.response}}"}


def on(name: str) -> Any:
    tracker = settings(kind=name.partition(" ")[0])
    return replace(tracker, projects=(replace(tracker.projects[0], scope=ProjectScope(name="shop")),))


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_run_asks_is_answered_and_comments_once(name: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, ASK, SAY, tracker=on(name)) as world:
            host = Host(http=world.http, clock=clock, random=Random(1), allow_private=True)
            async with PLATFORMS[name](clock, host) as board:
                world.wrapped = tracker = board.tracker
                number = board.open()
                board.label(number, "fix")
                ticket = await tracker.get(number)
                assert ticket is not None
                run_id = await world.tell_ticket(ticket)
                await world.until(run_id, "waiting", seconds=300)
                await clock.sleep(30)
                board.comment(number, "the one in Bonn")
                run = await world.until(run_id, seconds=300)
                assert run.status == "done", run.error
                comments, own = await tracker.comments(ticket), await tracker.own_account()
                asked, said = (find_note(comments, f"{run_id}:{step}", own) for step in ("ask", "say"))
                assert asked is not None
                assert said is not None
                assert "Then it is the one in Bonn" in said.text
                assert len(comments) == 3

    test()


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_label_that_is_taken_off_ends_the_run_before_it_writes(name: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        work = {"id": "work", "action": "work.do"}
        async with tickets_world(clock, tmp_path, work, {**SAY, "text": "x"}, tracker=on(name)) as world:
            host = Host(http=world.http, clock=clock, random=Random(1), allow_private=True)
            async with PLATFORMS[name](clock, host) as board:
                world.wrapped = tracker = board.tracker
                world.seconds = 50.0
                number = board.open()
                board.label(number, "fix")
                ticket = await tracker.get(number)
                assert ticket is not None
                run_id = await world.tell_ticket(ticket)
                await clock.sleep(5)
                board.unlabel(number, "fix")
                run = await world.until(run_id, seconds=30)
                assert (run.status, len(world.did), await tracker.comments(ticket)) == ("cancelled", 1, [])

    test()
