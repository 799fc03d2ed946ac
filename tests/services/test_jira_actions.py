"""Comments and transitions: once each, however often a step is tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, RetryLater
from harken.services.jira import plugin
from harken.source import Call, Host
from harken.testing import HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.jira import Jira
from tests.services.jira import account, serving


@pytest.fixture(params=["cloud", "server"])
async def jira(request: Any, clock: HandClock) -> AsyncIterator[Jira]:
    async with serving(clock, cloud=request.param == "cloud") as served:
        served.user("bob")
        yield served


async def act(jira: Jira, host: Host, name: str, run: str = "run-1/step", **params: Any) -> Any:
    verb = plugin.actions[name]
    call = Call(params=verb.params.model_validate(params), account=account(jira), host=host, idempotency_key=run)
    return await verb.run(call)


def bodies(jira: Jira, key: str) -> list[Any]:
    return [comment["text"] for comment in jira.issue(key).comments]


async def test_a_comment_is_posted_in_the_form_that_this_jira_takes(jira: Jira, host: Host):
    key = jira.create()
    done = await act(jira, host, "comment", issue=key, text="Hello\n\nworld")
    (body,) = bodies(jira, key)
    assert isinstance(body, dict) is jira.cloud
    assert done == {
        "id": done["id"],
        "issue": key,
        "posted": True,
        "url": f"{jira.url}/browse/{key}?focusedCommentId={done['id']}",
    }


async def test_a_step_that_is_tried_again_finds_its_own_comment(jira: Jira, host: Host):
    key = jira.create()
    first = await act(jira, host, "comment", issue=key, text="Hello  there\n\nworld")
    again = await act(jira, host, "comment", issue=key, text="Hello  there\n\nworld")
    assert len(bodies(jira, key)) == 1
    assert again == {**first, "posted": False}


async def test_another_run_may_say_the_same_and_so_may_another_person(jira: Jira, host: Host):
    key = jira.create()
    jira.comment(key, "Hello", "bob")
    await act(jira, host, "comment", "run-1/step", issue=key, text="Hello")
    await act(jira, host, "comment", "run-2/step", issue=key, text="Hello")
    assert len(bodies(jira, key)) == 3


async def test_where_no_mark_is_kept_the_same_words_of_the_last_hour_are_taken_for_ours(
    jira: Jira, host: Host, clock: HandClock
):
    key = jira.create()
    await act(jira, host, "comment", issue=key, text="Hello")
    jira.issue(key).properties.clear()
    assert not (await act(jira, host, "comment", issue=key, text="Hello"))["posted"]
    clock.advance(3700)
    assert (await act(jira, host, "comment", issue=key, text="Hello"))["posted"]


async def test_a_transition_goes_by_the_name_of_the_status_or_of_itself(jira: Jira, host: Host):
    key = jira.create()
    started = await act(jira, host, "transition", issue=key, to="start")
    done = await act(jira, host, "transition", issue=jira.issue(key).id, to="DONE")
    assert started == {"issue": key, "status": "In Progress", "previous": "To Do", "changed": True}
    assert (done["status"], jira.issue(key).fields["status"]) == ("Done", "Done")


async def test_an_issue_that_is_there_already_stays_as_it_is(jira: Jira, host: Host):
    key = jira.create(status="Done")
    changes = len(jira.issue(key).histories)
    assert await act(jira, host, "transition", issue=key, to="done") == {
        "issue": key,
        "status": "Done",
        "changed": False,
    }
    assert len(jira.issue(key).histories) == changes


async def test_done_is_not_not_done(jira: Jira, host: Host):
    jira.workflow = {"41": ("Reject", "Not Done"), "42": ("Undone", "To Do")}
    key = jira.create(status="In Progress")
    with pytest.raises(NeedsAttention) as told:
        await act(jira, host, "transition", issue=key, to="Done")
    assert told.value.message == f"{key} cannot go to 'Done' from 'In Progress'"
    assert told.value.fix == "It can do: Reject (to Not Done), Undone (to To Do)"
    assert jira.issue(key).fields["status"] == "In Progress"


async def test_the_status_of_that_name_comes_before_the_transition_of_that_name(jira: Jira, host: Host):
    jira.workflow = {"1": ("Done", "In Review"), "2": ("Finish", "Done")}
    key = jira.create()
    assert (await act(jira, host, "transition", issue=key, to="Done"))["status"] == "Done"


async def test_an_issue_that_is_not_there_is_told(jira: Jira, host: Host):
    for name, params in (("comment", {"text": "x"}), ("transition", {"to": "Done"})):
        with pytest.raises(NeedsAttention, match="Issue does not exist"):
            await act(jira, host, name, issue="TEAM-999", **params)


async def test_a_conflict_is_tried_again(jira: Jira, host: Host):
    key = jira.create()
    await act(jira, host, "transition", issue=key, to="Start")
    jira.after[len(jira.seen) + 3] = lambda: jira.answers.append(Answer(status=409, body=b"{}"))
    with pytest.raises(RetryLater):
        await act(jira, host, "transition", issue=key, to="Done")


@pytest.mark.parametrize("issue", ["TEAM", "../myself", "TEAM-1/comment", "TEAM-1?x=y", "", "TEAM-1\n", "-1", "TÉAM-1"])
def test_an_issue_is_a_key_or_an_id_and_no_path(issue: str):
    with pytest.raises(ValidationError):
        plugin.actions["comment"].params.model_validate({"issue": issue, "text": "x"})


def test_an_empty_comment_is_refused_and_an_endless_one_is_cut():
    params = plugin.actions["comment"].params
    with pytest.raises(ValidationError):
        params.model_validate({"issue": "TEAM-1", "text": " \n"})
    assert len(params.model_validate({"issue": 7, "text": "x" * 90_000}).text) == 30_000  # type: ignore[attr-defined]
