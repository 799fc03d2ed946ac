"""A process that dies at any verb of the store, between any two steps of a run of a ticket: nothing is doubled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harken.testing import VirtualClock, virtual
from harken.testing.crashing import CrashingStore
from harken.testing.fakes.github import Issue
from tests.tickets.run_control_world import World, tickets_world

PIPELINE = (
    {"id": "say", "action": "ticket.comment", "text": "on it"},
    {"id": "ask", "action": "ticket.ask", "question": "Which one?"},
    {"id": "pull", "action": "ticket.pull_request", "head": "harken/1"},
    {"id": "move", "action": "ticket.transition", "status": "closed"},
    {"id": "bye", "action": "ticket.comment", "text": "done"},
)


async def _go_on(world: World) -> None:
    """Another process goes on with what is in the store."""
    await world.crash()
    await world.clock.sleep(61)
    await world.store.requeue_expired()
    world.work()
    world.attend()


async def _answer_when_asked(world: World, issue: Issue) -> None:
    while not any("Which one?" in text for text in world.comments(issue)):
        await world.clock.sleep(0.5)
    world.hub.comment(issue, "the left one", by="mia")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("verbs", range(0, 60, 2))
def test_a_crash_at_any_verb_of_the_store_doubles_nothing(verbs: int, after: bool, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, *PIPELINE, working=False) as world:
            store = CrashingStore(world.store)
            world.use(store)
            issue = world.ticket()
            run_id = await world.tell(issue)
            answering = asyncio.create_task(_answer_when_asked(world, issue))
            store.crash(verbs, after=after)
            world.work()
            world.attend()
            await asyncio.wait_for(store.crashed.wait(), 120)
            await _go_on(world)
            run = await world.until(run_id, seconds=600)
            await answering
            assert run.status == "done", run.error
            said = [text.splitlines()[3] for text in world.comments(issue)]
            assert said == ["on it", "Which one?", "done"]
            assert (len(world.pulls()), issue.state) == (1, "closed")

    test()
