"""What the steps of a pipeline do on the ticket: once, and only while the ticket still wants it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harken.run.compiled_workflows import check_workflow
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.server import Answer
from tests.tickets.run_control_world import World, record_of, settings, tickets_world

DO = {"id": "work", "action": "work.do"}
COMMENT = {"id": "say", "action": "ticket.comment", "text": "Looking at {{.event.title}}"}
PULL = {"id": "pull", "action": "ticket.pull_request", "head": "harken/1"}
REVIEW = {"id": "move", "action": "ticket.transition", "status": "closed"}


@virtual
async def test_a_pipeline_comments_opens_a_pull_request_and_closes(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, COMMENT, PULL, REVIEW, {**COMMENT, "id": "bye"}) as world:
        issue = world.ticket(title="Till is broken")
        run = await world.result(issue)
        assert run.status == "done", run.error
        assert [text.splitlines()[-1] for text in world.comments(issue)] == ["Looking at Till is broken"] * 2
        (pull,) = world.pulls()
        assert (pull.head, pull.base, pull.title) == ("harken/1", "main", "Till is broken")
        assert record_of(run, "pull").output["url"] == pull.to_json()["html_url"]
        assert (issue.state, record_of(run, "move").output) == ("closed", {"status": "closed", "closed": True})


@pytest.mark.parametrize("step", [COMMENT, PULL, REVIEW], ids=lambda step: step["action"])
@pytest.mark.parametrize("how", ["unlabel", "close"])
def test_no_step_writes_on_a_ticket_that_was_withdrawn(step: Mapping[str, Any], how: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, DO, step, working=False) as world:
            issue = world.ticket()
            run_id = await world.tell(issue)
            world.seconds = 20.0
            world.work()
            await clock.sleep(10)
            assert len(world.did) == 1
            world.hub.close(issue) if how == "close" else world.hub.unlabel(issue, "fix")
            writes = [seen for seen in world.hub.seen if seen.method != "GET"]
            run = await world.until(run_id)
            assert (run.status, world.pulls(), world.comments(issue)) == ("cancelled", [], [])
            assert [seen for seen in world.hub.seen if seen.method != "GET"] == writes

    test()


@virtual
async def test_a_ticket_withdrawn_in_the_second_in_which_the_work_ends_is_not_done(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with tickets_world(clock, tmp_path, DO, working=False) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        world.seconds = 20.0
        world.work()
        await clock.sleep(19.999)
        world.hub.unlabel(issue, "fix")
        run = await world.until(run_id)
        assert (run.status, len(world.did)) == ("cancelled", 1)
        assert record_of(run, "postflight").code == "withdrawn"


@virtual
async def test_an_error_that_a_step_ignores_does_not_hide_that_the_ticket_was_withdrawn(
    clock: VirtualClock, tmp_path: Path
) -> None:
    step = {**COMMENT, "on_error": "ignore"}
    async with tickets_world(clock, tmp_path, DO, step, {**DO, "id": "more"}, working=False) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        world.seconds = 5.0
        world.work()
        await clock.sleep(3)
        world.hub.unlabel(issue, "fix")
        assert (await world.until(run_id)).status == "cancelled"
        assert len(world.did) == 1


@virtual
async def test_a_webhook_that_knows_more_than_a_read_that_lags_stops_the_write(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with tickets_world(clock, tmp_path, DO, PULL, working=False) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        world.seconds = 10.0
        world.work()
        await clock.sleep(5)
        world.hub.lag(issue, 120)
        world.hub.unlabel(issue, "fix")
        await world.tell(issue)
        await clock.sleep(60)
        assert ((await world.run(run_id)).status, world.pulls()) == ("ready", [])
        world.attend()
        assert (await world.until(run_id)).status == "cancelled"
        assert world.pulls() == []


@virtual
async def test_a_limit_of_the_platform_is_waited_for_without_using_up_tries(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with tickets_world(clock, tmp_path, DO, COMMENT) as world:
        issue = world.ticket()
        world.seconds = 5.0
        run_id = await world.tell(issue)
        await clock.sleep(2)
        world.hub.limit(3600)
        run = await world.until(run_id, seconds=7200)
        assert (run.status, run.attempt, len(world.did), len(world.comments(issue))) == ("done", 1, 1, 1)


def _crashes() -> list[Any]:
    return [
        pytest.param(COMMENT, "POST", "/comments", id="comment"),
        pytest.param(PULL, "POST", "/pulls", id="pull request"),
        pytest.param(REVIEW, "PATCH", "/issues/1", id="transition"),
        pytest.param({**REVIEW, "status": "completed"}, "PATCH", "/issues/1", id="completed"),
    ]


@pytest.mark.parametrize(("step", "method", "path"), _crashes())
def test_a_crash_right_after_the_write_does_not_write_twice(
    step: Mapping[str, Any], method: str, path: str, tmp_path: Path
) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, DO, step, {**DO, "id": "end"}) as world:
            issue = world.ticket()
            run_id = await world.tell(issue)
            await _written(world, method, path)
            await world.crash()
            world.work()
            world.attend()
            await clock.sleep(61)
            await world.store.requeue_expired()
            world.worker.nudge()
            run = await world.until(run_id)
            assert run.status == "done", run.error
            assert len(world.did) == 2
            assert len(world.comments(issue)) == (step is COMMENT)
            assert len(world.pulls()) == (step is PULL)
            assert issue.state == ("closed" if step["action"] == "ticket.transition" else "open")

    test()


async def _written(world: World, method: str, path: str) -> None:
    """Until the platform has taken the write, and before its answer is worked on."""
    done = world.clock.time() + 60
    while not any(seen.method == method and seen.path.endswith(path) for seen in world.hub.seen):
        assert world.clock.time() < done
        await world.clock.sleep(0)


@virtual
async def test_a_comment_with_a_line_of_ours_in_it_is_not_taken_for_another(
    clock: VirtualClock, tmp_path: Path
) -> None:
    text = "harken-receipt v1 run=x harken-note 0123456789abcdef"
    async with tickets_world(clock, tmp_path, {**COMMENT, "text": text}) as world:
        issue = world.ticket()
        assert (await world.result(issue)).status == "done"
        (comment,) = world.comments(issue)
        assert "harken-receipt" not in comment
        assert comment.count("harken-note") == 1


@virtual
async def test_a_status_that_is_there_already_is_not_written(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, {**REVIEW, "status": "Open"}) as world:
        assert (await world.result(world.ticket())).status == "done"
        assert [seen.method for seen in world.hub.seen if seen.method != "GET"] == ["POST"], "who we are"


@virtual
async def test_a_pull_request_that_is_refused_needs_a_person(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, {**PULL, "head": "missing"}) as world:
        run = await world.result(world.ticket())
        assert run.status == "dead"
        assert "Check that both branches exist" in run.error


@virtual
async def test_a_trouble_of_the_platform_at_the_end_is_waited_for(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        world.seconds = 5.0
        run_id = await world.tell(world.ticket())
        await clock.sleep(2)
        world.hub.answers.extend(Answer(status=502) for _ in range(4))
        run = await world.until(run_id)
        assert (run.status, run.attempt, len(world.did)) == ("done", 1, 1)


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ({"action": "ticket.comment"}, "is missing"),
        ({"action": "ticket.comment", "text": "x", "txt": "y"}, "unknown key 'txt'"),
        ({"action": "ticket.transition", "state": "x"}, "unknown key 'state'"),
        ({"action": "ticket.pull_request", "base": "main"}, "is missing"),
        ({"action": "ticket.ask", "question": "x", "on_timeout": "approve"}, "Input should be 'fail' or 'go_on'"),
        ({"action": "ticket.close"}, "there is no action 'ticket.close'"),
    ],
)
def test_wrong_parameters_are_found_before_the_pipeline_runs(step: Mapping[str, Any], problem: str) -> None:
    found = [one.message for one in check_workflow({"steps": [step]}, actions={})]
    assert any(problem in message for message in found), found


@virtual
async def test_a_run_that_no_ticket_started_cannot_write_on_one(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, COMMENT, tracker=settings()) as world:
        run = await world.until(await world.start_without_ticket())
        assert run.status == "dead"
        assert "ticket.comment works only in runs that a ticket started" in run.error


HOSTILE = {
    "a mention": "@everyone @acme/owners please, (@leo)",
    "a mention of Azure DevOps": "@<3f2504e0-4f89-11d3-9a0c-0305e82c3301>",
    "a mention of Jira": "[~accountid:5b10ac8d82e05b22cc7d4ef5] and [~leo]",
    "templates": "{{.run.id}} {{template}} ${X} $(touch x) event.title == 'x'",
    "our own lines": "harken-receipt v1 run=x\nharken-note 1",
    "a megabyte": "x" * 1_000_000,
    "controls": "\x00\x1b[2J\u202e",
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_what_a_stranger_wrote_mentions_nobody_and_is_not_expanded_again(name: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        say = {**COMMENT, "text": "@mia, this is about {{.event.title}}: {{index .event.labels 0}} {{.event.text}}"}
        pull = {**PULL, "text": "For {{.event.author}}: {{.event.title}}"}
        async with tickets_world(clock, tmp_path, say, pull) as world:
            text = HOSTILE[name]
            issue = world.ticket(title=text, text=text)
            run = await world.result(issue)
            assert run.status == "done", run.error
            (comment,), (request,) = world.comments(issue), world.pulls()
            body = request.to_json()["body"]
            assert comment.count("@mia") == 1
            assert not re.search(r"@(?:everyone|acme|leo|<)|\[~", comment + body)
            assert len(comment) < 40_000
            assert comment.count("harken-note") == 1
            assert "harken-receipt" not in comment
            assert run.id not in body

    test()
