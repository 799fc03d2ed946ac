"""Steps that write to Azure DevOps: once each, however often they are tried and whoever else writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, RetryLater
from harken.services.azure_devops import plugin
from harken.source import Call, Host
from harken.testing import HandClock
from harken.testing.fakes.azure_devops import AzureDevOps, WorkItem
from tests.services.azure_devops import account


@pytest.fixture
async def board(clock: HandClock) -> AsyncIterator[AzureDevOps]:
    fake = AzureDevOps(clock)
    fake.create("bug", "a b")
    async with fake.serve():
        yield fake


@pytest.fixture
def item(board: AzureDevOps) -> WorkItem:
    return board.items[1]


async def act(
    board: AzureDevOps, host: Host, name: str, *, key: str = "run/step", token: str = "writer", **params: Any
) -> dict[str, Any]:
    chosen = plugin.actions[name]
    given = chosen.params.model_validate({"work_item": 1, **params})
    done: dict[str, Any] = await chosen.run(
        Call(params=given, account=account(board, token), host=host, idempotency_key=key)
    )
    return done


def patches(board: AzureDevOps) -> list[Any]:
    return [msgspec.json.decode(seen.body) for seen in board.seen if seen.method == "PATCH"]


async def test_a_comment_that_is_tried_again_is_written_once(board: AzureDevOps, host: Host, item: WorkItem):
    first = await act(board, host, "comment", text="Looks like <DNS> 🔥\nto me")
    again = await act(board, host, "comment", text="worded differently by a model")
    assert (first["changed"], again["changed"]) == (True, False)
    (said,) = board.comments(item)
    assert said.startswith("<div>Looks like &lt;DNS&gt; 🔥<br>to me</div>")
    assert "[harken " in said
    assert "run/step" not in said


async def test_a_comment_of_another_step_is_another_comment(board: AzureDevOps, host: Host, item: WorkItem):
    await act(board, host, "comment", text="one", key="a")
    await act(board, host, "comment", text="one", key="b")
    assert len(board.comments(item)) == 2


async def test_our_comment_is_found_among_hundreds_of_changes(board: AzureDevOps, host: Host, item: WorkItem):
    for _ in range(220):
        board.comment(item)
    await act(board, host, "comment", text="one")
    for _ in range(220):
        board.comment(item)
    assert (await act(board, host, "comment", text="one"))["changed"] is False


async def test_a_tag_is_added_to_the_others_and_once(board: AzureDevOps, host: Host, item: WorkItem):
    first = await act(board, host, "add_tag", tag="triaged")
    again = await act(board, host, "add_tag", tag="Triaged")
    assert (first["tags"], first["changed"], again["changed"]) == (["bug", "a b", "triaged"], True, False)
    assert patches(board) == [
        [
            {"op": "test", "path": "/rev", "value": 1},
            {"op": "replace", "path": "/fields/System.Tags", "value": "bug; a b; triaged"},
        ]
    ]


async def test_the_first_tag_and_the_last_one(board: AzureDevOps, host: Host, item: WorkItem):
    board.change(item, {"System.Tags": None})
    assert (await act(board, host, "add_tag", tag="x"))["tags"] == ["x"]
    assert (await act(board, host, "remove_tag", tag="x"))["tags"] == []
    assert "System.Tags" not in item.fields


async def test_a_tag_is_taken_away_and_others_stay(board: AzureDevOps, host: Host, item: WorkItem):
    first = await act(board, host, "remove_tag", tag="A B")
    again = await act(board, host, "remove_tag", tag="a b")
    assert (first["tags"], first["changed"], again["changed"]) == (["bug"], True, False)


async def test_a_tag_that_somebody_else_adds_meanwhile_is_not_lost(board: AzureDevOps, host: Host, item: WorkItem):
    board.after[1] = lambda: board.tag(item, "theirs")
    done = await act(board, host, "add_tag", tag="ours")
    assert done["tags"] == ["bug", "a b", "theirs", "ours"]
    assert [seen.status for seen in board.seen] == [200, 412, 200, 200]


async def test_a_work_item_that_others_change_all_the_time_is_tried_later(
    board: AzureDevOps, host: Host, item: WorkItem
):
    board.after = {number: lambda: board.comment(item) for number in range(1, 20, 2)}
    with pytest.raises(RetryLater, match="changed by others all the time"):
        await act(board, host, "add_tag", tag="ours")


async def test_a_state_is_set_with_its_comment_in_one_change_and_once(board: AzureDevOps, host: Host, item: WorkItem):
    first = await act(board, host, "set_state", state="Resolved", comment="done & well")
    again = await act(board, host, "set_state", state="resolved", comment="done & well")
    assert (first["state"], first["changed"], again["changed"]) == ("Resolved", True, False)
    assert (board.comments(item), item.rev) == (["done &amp; well"], 2)


async def test_a_state_that_the_type_does_not_have_is_said_with_those_that_it_has(board: AzureDevOps, host: Host):
    with pytest.raises(NeedsAttention, match=r"cannot go from 'New' to 'Done'.*New, Active, Resolved, Closed"):
        await act(board, host, "set_state", state="Done")


async def test_a_token_that_may_only_read_and_a_number_that_is_not_there_are_said(board: AzureDevOps, host: Host):
    with pytest.raises(NeedsAttention, match=r"Read & write"):
        await act(board, host, "comment", text="one", token="reader")
    with pytest.raises(NeedsAttention, match="no work item 99"):
        await act(board, host, "comment", text="one", work_item=99)
    with pytest.raises(NeedsAttention, match="404 to work item 99"):
        await act(board, host, "add_tag", tag="x", work_item=99)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("comment", {"text": " "}),
        ("comment", {"text": "a", "work_item": "1/../2"}),
        ("comment", {"text": "a", "work_item": 0}),
        ("add_tag", {"tag": "a; b"}),
        ("add_tag", {"tag": " "}),
        ("set_state", {"state": ""}),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, params: dict[str, Any]):
    with pytest.raises(ValidationError):
        plugin.actions[name].params.model_validate({"work_item": 1, **params})


def test_a_number_may_be_written_as_text_and_a_long_comment_is_cut():
    made = plugin.actions["comment"].params.model_validate({"work_item": "7", "text": "a" * 40_000})
    assert made.model_dump()["work_item"] == 7
    assert len(made.model_dump()["text"]) == 30_000
