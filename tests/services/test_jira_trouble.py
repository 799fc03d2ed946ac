"""Wrong tokens, limits, answers in odd shapes: each is told in words that help, or read all the same."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.match import recognise
from harken.services.jira import Account, Issues, Query
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.jira import TOKEN, Jira
from tests.services.jira import account, serving, source
from tests.services.reading import events, read


@pytest.fixture
async def cloud(clock: HandClock) -> AsyncIterator[Jira]:
    async with serving(clock, cloud=True) as jira:
        yield jira


@pytest.fixture
async def server(clock: HandClock) -> AsyncIterator[Jira]:
    async with serving(clock, cloud=False) as jira:
        yield jira


async def refused(source: Issues) -> HarkenError:
    with pytest.raises(HarkenError) as told:
        await read(source)
    assert TOKEN not in str(told.value)
    return told.value


async def test_a_wrong_token_needs_attention_and_says_which_command(cloud: Jira, host: Host):
    cloud.token = "another"
    error = await refused(source(cloud, host, project="TEAM"))
    assert isinstance(error, NeedsAttention)
    assert error.fix == "Make a new API token for this e-mail address, then: harken integrations jira configure"


async def test_an_expired_token_that_gets_an_empty_list_needs_attention(cloud: Jira, host: Host):
    watched = source(cloud, host, project="TEAM")
    await read(watched)
    cloud.login = "anonymous"
    error = await refused(watched)
    assert isinstance(error, NeedsAttention)
    assert "login failed" in error.message


async def test_a_captcha_is_solved_in_the_browser(server: Jira, host: Host):
    server.login = "captcha"
    error = await refused(source(server, host, project="TEAM"))
    assert "captcha" in error.message
    assert f"Log in at {server.url}" in error.fix


async def test_a_limit_is_waited_for_as_long_as_jira_asks(cloud: Jira, host: Host):
    cloud.limit(700)
    error = await refused(source(cloud, host, project="TEAM"))
    assert isinstance(error, RetryLater)
    assert (error.reason, error.after) == ("rate_limited", 700)


@pytest.mark.parametrize("query", [{"project": "NOPE"}, {"statuses": ["Nope"]}, {"jql": "nope = 1", "allow_jql": True}])
async def test_what_jira_says_about_a_query_is_passed_on(cloud: Jira, host: Host, query: Any):
    cloud.create()
    error = await refused(source(cloud, host, **query))
    assert isinstance(error, NeedsAttention)
    assert "nope" in error.message.lower()


async def test_what_jira_says_is_short_and_never_our_token(cloud: Jira, host: Host):
    long = msgspec.json.encode({"errorMessages": [f"bad {TOKEN} " + "x" * 5000], "errors": {"jql": "no"}})
    watched = source(cloud, host, project="TEAM")
    await read(watched)
    cloud.answers = [Answer(status=400, body=long)]
    error = await refused(watched)
    assert "bad ***" in error.message
    assert len(error.message) < 400


async def test_a_missing_permission_is_named(cloud: Jira, host: Host):
    cloud.hidden = {"/search/jql"}
    error = await refused(source(cloud, host, project="TEAM"))
    assert "Browse projects" in error.fix


async def test_a_history_that_cannot_be_read_to_its_end_is_an_error_and_not_silence(cloud: Jira, host: Host):
    for key in (cloud.create(), cloud.create()):
        for number in range(50):
            cloud.edit(key, f"edit {number}")
    cloud.hidden = {"/changelog"}
    error = await refused(source(cloud, host, project="TEAM"))
    assert isinstance(error, NeedsAttention)
    assert "/changelog" in error.message


async def test_a_server_taken_for_cloud_and_the_other_way_round_are_told(cloud: Jira, server: Jira, host: Host):
    query = Query(project=("TEAM",))
    gone = await refused(Issues(query, account(cloud, deployment="server"), host))
    missing = await refused(Issues(query, account(server, deployment="cloud"), host))
    assert "set deployment to cloud or auto" in gone.fix
    assert "set deployment to auto" in missing.fix


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"issues": null}', b'{"issues": {}}', b"null"])
async def test_an_answer_without_issues_is_not_an_empty_one(cloud: Jira, host: Host, body: bytes):
    watched = source(cloud, host, project="TEAM")
    await read(watched)
    cloud.answers = [Answer(body=body)]
    assert isinstance(await refused(watched), RetryLater)


ODD: list[Any] = [
    {"id": "1"},
    {"id": 2, "key": None, "fields": None, "changelog": None},
    {"id": "3", "key": "T-3", "fields": [], "changelog": {"histories": "x"}},
    {
        "id": "4",
        "key": 4,
        "fields": {
            "summary": 5,
            "labels": {"a": 1},
            "components": [None, 3, {}],
            "assignee": "me",
            "reporter": [],
            "project": None,
            "status": "open",
            "description": {"type": 1, "content": [None, 5, {"content": {}}]},
            "created": "not a time",
            "updated": 10**30,
            "parent": 1,
        },
        "changelog": {"histories": [{"created": None}, 5]},
    },
    {
        "id": "5",
        "key": "T-5",
        "fields": {"labels": [None, 1, "x"], "updated": "2026-01-05T10:00:00.000+0100"},
        "changelog": {"histories": [{"created": "2026-01-05T10:00:01.000+0100", "items": [None, {"field": 3}]}]},
    },
]


@pytest.mark.parametrize("identity", ["once", "transition", "change"])
async def test_issues_in_odd_shapes_are_shown_and_hide_no_other(cloud: Jira, host: Host, identity: Any):
    watched = source(cloud, host, identity=identity, project="TEAM", labels="x")
    await read(watched)
    cloud.answers = [Answer(body=msgspec.json.encode({"issues": ODD, "future": 1}))]
    shown = {event.subject.partition(":")[0] for event in events(await read(watched))}
    assert shown >= {"1", "2", "3", "4", "5"}


async def test_where_jira_shows_no_histories_another_status_is_a_transition(cloud: Jira, host: Host):
    watched = source(cloud, host, identity="transition", project="TEAM")
    await read(watched)
    at = "2026-01-05T10:00:00.000+0100"
    for status in ("To Do", "Done"):
        fields = {"status": {"name": status}, "updated": at}
        cloud.answers.append(
            Answer(body=msgspec.json.encode({"issues": [{"id": "1", "key": "T-1", "fields": fields}]}))
        )
    shown = events(await read(watched)) + events(await read(watched))
    assert [sighting.event.key for sighting in recognise(shown, {}, "transition")] == ["T-1#1", "T-1#1#2"]


async def test_an_account_id_is_read_where_the_token_may_ask_about_nobody(cloud: Jira, host: Host):
    cloud.user("557058:d40693ec-2876-4c4d-8fc7-e3b3f923e155")
    key = cloud.create(assignee="557058:d40693ec-2876-4c4d-8fc7-e3b3f923e155")
    cloud.hidden = {"/myself", "/user", "/user/search"}
    watched = source(cloud, host, assignee="557058:d40693ec-2876-4c4d-8fc7-e3b3f923e155")
    assert [event.data["key"] for event in events(await read(watched))] == [key]


async def test_an_issue_without_an_id_is_an_error_and_not_silence(cloud: Jira, host: Host):
    watched = source(cloud, host, project="TEAM")
    await read(watched)
    cloud.answers = [Answer(body=b'{"issues": [{"key": "T-1"}]}')]
    assert "no id" in (await refused(watched)).message


async def test_how_each_kind_of_account_signs_in(server: Jira, clock: HandClock, host: Host):
    pairs = {"token": TOKEN}, {"username": "me", "password": TOKEN}, {"username": "me", "token": TOKEN}
    for signed in pairs:
        await read(Issues(Query(), Account.model_validate({"base_url": server.url, **signed}), host))
    basic = "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()
    sent = [seen.headers["authorization"] for seen in server.seen if seen.path.endswith("/search")]
    assert sent == [f"Bearer {TOKEN}", basic, basic]


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({}, "no credential"),
        ({"email": "me@example.com"}, "add token"),
        ({"username": "me"}, "password"),
        ({"email": "a@b.c", "username": "me", "token": "x"}, "not both"),
        ({"token": "two words"}, "one word"),
        ({"token": "x", "base_url": "company.atlassian.net"}, "https://host"),
        ({"token": "x", "base_url": "https://me:pw@host"}, "plain address"),
        ({"token": "x", "pat": "y"}, "pat"),
    ],
)
def test_an_account_that_cannot_sign_in_is_refused_with_the_reason(fields: Any, wrong: str):
    with pytest.raises(ValidationError, match=wrong):
        Account.model_validate({"base_url": "https://jira.example", **fields})


def test_an_account_shows_its_secrets_nowhere():
    made = Account.model_validate({"base_url": "https://jira.example/jira/", "token": " abc123 ", "email": "a@b.c"})
    assert made.base_url == "https://jira.example/jira"
    assert "abc123" not in repr(made)


async def test_cloud_is_known_by_its_address_and_asks_nothing(host: Host):
    from harken.services.jira.api import Api

    cloud = Account.model_validate({"base_url": "https://acme.atlassian.net", "email": "a@b.c", "token": "x"})
    lookalike = Account.model_validate(
        {"base_url": "https://acme.atlassian.net.example", "token": "x", "deployment": "server"}
    )
    assert await Api(cloud, host).is_cloud()
    assert not await Api(lookalike, host).is_cloud()
