"""What Azure DevOps refuses, what people write wrongly, and what they read then."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, RetryLater
from harken.services.azure_devops import Account, Query, plugin
from harken.services.azure_devops.check import check, whoami
from harken.services.azure_devops.text import html_of, plain_text
from harken.source import Host
from harken.testing.fakes.azure_devops import AzureDevOps
from harken.testing.fakes.server import Answer
from tests.services.azure_devops import SHOP, account, source
from tests.services.reading import page, read, subjects


async def test_a_wrong_token_names_the_command_and_not_the_token(board: AzureDevOps, host: Host):
    with pytest.raises(NeedsAttention, match="harken integrations azure_devops configure") as refused:
        await page(source(board, host, "wr0ng-secret"))
    assert "401" in str(refused.value)
    assert "wr0ng-secret" not in str(refused.value)


@pytest.mark.parametrize("status", [203, 302])
async def test_the_page_for_signing_in_means_a_wrong_token(board: AzureDevOps, host: Host, status: int):
    headers = {"Location": "https://spsprod.example/_signin?secret=1"} if status == 302 else {}
    board.answers = [Answer(status=status, headers=headers, body=b"<html>Sign in</html>")]
    with pytest.raises(NeedsAttention, match=r"wants somebody to sign in.*configure") as refused:
        await page(source(board, host))
    assert "secret" not in str(refused.value)


async def test_a_token_without_the_scope_names_it(board: AzureDevOps, host: Host):
    with pytest.raises(NeedsAttention, match=r"403 to the query for work items of Shop.*Work Items \(Read\)"):
        await page(source(board, host, "other"))


async def test_a_project_that_is_not_there_is_said(board: AzureDevOps, host: Host):
    with pytest.raises(
        NeedsAttention, match=r"404 to the query for work items of Gone.*Check organization and projects"
    ):
        await page(source(board, host, projects="Gone"))


async def test_a_limit_is_waited_for_as_long_as_it_says(board: AzureDevOps, host: Host):
    board.limit(47)
    with pytest.raises(RetryLater) as limited:
        await page(source(board, host))
    assert (limited.value.reason, limited.value.after) == ("rate_limited", 47.0)


@pytest.mark.parametrize("body", [b"<html>", b'{"message": "odd"}', b"null", b'{"workItems": null}'])
async def test_an_answer_without_a_list_is_tried_again(board: AzureDevOps, host: Host, body: bytes):
    board.answers = [Answer(body=body)]
    with pytest.raises(RetryLater):
        await page(source(board, host))


async def test_a_history_that_may_not_be_read_is_said_and_nothing_is_lost(board: AzureDevOps, host: Host):
    board.tag(board.create(age=86_400), "bug")
    board.after[2] = lambda: board.answers.append(Answer(status=403, body=b"{}"))
    reader = source(board, host, tags="bug")
    with pytest.raises(NeedsAttention, match="403"):
        await page(reader)
    assert subjects(await read(reader)) == ["1"]


@pytest.mark.parametrize(
    "text", ["x' OR [System.Id] > 0 OR '' = '", "'", "''", "a'b", "\\'", "@project", "[System.Id]"]
)
async def test_no_value_can_leave_its_quotes(board: AzureDevOps, host: Host, text: str):
    board.create()
    board.create(text)
    assert subjects(await read(source(board, host, tags=text))) == ["2"]
    assert subjects(await read(source(board, host, states=text, types=text, assigned_to=f"x{text}"))) == []


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"projects": []},
        {"projects": "Shop/../x"},
        {"projects": ".."},
        {"projects": "Shop?a=b"},
        {"projects": "Shop#1"},
        {"projects": "a\nb"},
        {"projects": SHOP, "tags": "a;b"},
        {"projects": SHOP, "tags": "a, b"},
        {"projects": SHOP, "tags": [" "]},
        {"projects": SHOP, "states": ["a\nb"]},
        {"projects": SHOP, "types": ["a\u2028b"]},
        {"projects": SHOP, "area_path": "x" * 300},
        {"projects": SHOP, "assigned_to": "me"},
        {"projects": SHOP, "assigned_to": "@Me"},
        {"projects": SHOP, "states": [True]},
        {"projects": SHOP, "state": "New"},
    ],
)
def test_what_would_be_taken_for_something_else_is_refused(query: Any):
    with pytest.raises(ValidationError):
        Query.model_validate(query)


def test_plain_values_stand_for_lists_of_one():
    query = Query.model_validate({"projects": "My Shop (2)", "tags": 404, "states": "In Progress"})
    assert (query.projects, query.tags, query.states) == (("My Shop (2)",), ("404",), ("In Progress",))


@pytest.mark.parametrize(
    "given",
    [
        {"organization": "acme", "token": ""},
        {"organization": "acme", "token": "two words"},
        {"organization": "acme/x", "token": "t"},
        {"organization": "", "token": "t"},
        {"token": "t"},
        {"organization": "acme", "token": "t", "base_url": "dev.azure.com"},
        {"organization": "acme", "token": "t", "base_url": "https://acme.visualstudio.com"},
        {"organization": "acme", "token": "t", "api_version": "7.1&x=1"},
    ],
)
def test_an_account_that_cannot_work_is_refused_without_its_token(given: dict[str, str]):
    with pytest.raises(ValidationError) as refused:
        Account.model_validate(given)
    assert "two words" not in str(refused.value)


async def test_a_server_of_ones_own_has_its_path_collection_and_version(board: AzureDevOps, host: Host):
    board.answers = [Answer(body=b'{"workItems": []}')]
    there = {"organization": "Default Collection", "token": "t", "base_url": f"{board.url}/tfs/", "api_version": "6.0"}
    assert plugin.source is not None
    reader = plugin.source(Query(projects=("My Shop",)), Account.model_validate(there), host)
    await page(reader)
    assert board.seen[-1].path == "/tfs/Default Collection/My Shop/_apis/wit/wiql"
    assert board.seen[-1].query["api-version"] == "6.0"


async def test_whoami_shows_what_queries_need(board: AzureDevOps, host: Host):
    mine = await whoami(account(board), host)
    assert mine == {"id": "7f1c", "name": "Mia Engel", "email": "mia@acme.example", "organization": "acme"}


async def test_whoami_does_not_take_anonymous_for_a_user(board: AzureDevOps, host: Host):
    nobody = (
        b'{"authenticatedUser": {"id": "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "providerDisplayName": "Anonymous"}}'
    )
    board.answers = [Answer(body=nobody)]
    with pytest.raises(NeedsAttention, match="does not know this token"):
        await whoami(account(board), host)
    with pytest.raises(NeedsAttention, match="401"):
        await whoami(account(board, "gone"), host)


async def test_check_asks_for_every_name(board: AzureDevOps, host: Host):
    board.create("urgent")
    query = Query(projects=(SHOP,), types=("bug",), states=("new",), tags=("Urgent",), area_path="Shop\\Checkout")
    checked = await check(query, account(board), host)
    assert (list(checked.unknown), checked.found) == ([], {SHOP: "project with 2 types of work items"})


async def test_check_has_a_sentence_for_each_name_that_is_not_there(board: AzureDevOps, host: Host):
    query = Query(projects=(SHOP, "Gone"), types=("Bug", "Epic"), states=("Done",), tags=("x",), area_path="Shop\\Nope")
    checked = await check(query, account(board), host)
    assert [sentence.partition(",")[0].partition(":")[0].partition(".")[0] for sentence in checked.unknown] == [
        "there is no type 'Epic' in Shop",
        "there is no state 'Done' in Shop",
        "there is no tag 'x' in Shop",
        "there is no project Gone",
        "there is no area 'Shop\\\\Nope'",
    ]


def test_the_token_comes_from_its_variable():
    assert plugin.environment["AZURE_DEVOPS_TOKEN"] == "token"


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("plain & simple <", "plain & simple <"),
        ("<div>One</div><div>two&nbsp;&lt;b&gt;<br>three</div>", "One\ntwo <b>\nthree"),
        ("<ul><li>a</li><li>b</li></ul><script>alert(1)</script>", "a\nb"),
        ("<div>never closed <b", "never closed <b"),
    ],
)
def test_descriptions_are_plain_text(markup: str, text: str):
    assert plain_text(markup) == text


def test_what_is_written_is_shown_as_it_is():
    assert html_of("<b>1 & 2</b>\nnext") == "&lt;b&gt;1 &amp; 2&lt;/b&gt;<br>next"
