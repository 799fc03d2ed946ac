"""What GitHub refuses, what people write wrongly, and what they read then."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, Refused, RetryLater
from harken.http import Client
from harken.services.github import Account, Query, plugin
from harken.services.github.api import Api
from harken.services.github.check import check, whoami
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.server import Answer
from tests.services.hub import SHOP, account, source
from tests.services.reading import events, page, read


async def test_a_wrong_token_names_the_command_and_not_the_token(hub: GitHub, host: Host):
    with pytest.raises(NeedsAttention, match="harken integrations github configure") as refused:
        await page(source(hub, host, "wr0ng-secret"))
    assert "401" in str(refused.value)
    assert "wr0ng-secret" not in str(refused.value)


async def test_a_repository_that_the_token_may_not_see_names_the_scopes(hub: GitHub, host: Host):
    hub.repos[SHOP].hidden = True
    with pytest.raises(NeedsAttention, match=r"404 to the issues of acme/shop.*Issues \(read.*classic one `repo`"):
        await page(source(hub, host))


async def test_disabled_issues_and_blocked_repositories_are_said_plainly(hub: GitHub, host: Host):
    hub.repos[SHOP].disabled = True
    with pytest.raises(NeedsAttention, match="Issues are disabled"):
        await page(source(hub, host))
    hub.answers = [Answer(status=451, body=b"{}")]
    with pytest.raises(NeedsAttention, match="legal reasons"):
        await page(source(hub, host))


async def test_an_assignee_who_does_not_exist_is_said(hub: GitHub, host: Host):
    with pytest.raises(NeedsAttention, match="assignee"):
        await page(source(hub, host, assignee="nobody-here"))


async def test_single_sign_on_is_named_as_the_reason(hub: GitHub, host: Host):
    hub.answers = [Answer(status=403, headers={"X-GitHub-SSO": "required; url=https://x?token=s3cret"}, body=b"{}")]
    with pytest.raises(NeedsAttention, match="single sign-on") as refused:
        await page(source(hub, host))
    assert "s3cret" not in str(refused.value)


async def test_a_used_up_quota_is_waited_for_until_it_is_reset(hub: GitHub, host: Host):
    hub.limit(700)
    with pytest.raises(RetryLater) as limited:
        await page(source(hub, host))
    assert (limited.value.reason, limited.value.after) == ("rate_limited", 700.0)


@pytest.mark.parametrize("status", [403, 429])
async def test_a_secondary_limit_is_waited_for_as_long_as_it_says(hub: GitHub, host: Host, status: int):
    hub.answers = [Answer(status=status, headers={"Retry-After": "47"}, body=b"{}")]
    with pytest.raises(RetryLater) as limited:
        await page(source(hub, host))
    assert (limited.value.reason, limited.value.after) == ("rate_limited", 47.0)


async def test_a_secondary_limit_that_names_no_time_is_waited_for_a_minute(hub: GitHub, host: Host):
    body = b'{"message": "You have exceeded a secondary rate limit. Please wait a few minutes."}'
    hub.answers = [Answer(status=403, headers={"X-RateLimit-Remaining": "4000"}, body=body)]
    with pytest.raises(RetryLater) as limited:
        await page(source(hub, host))
    assert (limited.value.reason, limited.value.after) == ("rate_limited", 60.0)


@pytest.mark.parametrize("body", [b"<html>", b'{"message": "odd"}', b"null"])
async def test_an_answer_without_a_list_is_tried_again(hub: GitHub, host: Host, body: bytes):
    hub.answers = [Answer(body=body)]
    with pytest.raises(RetryLater):
        await page(source(hub, host))


async def test_a_304_that_nobody_asked_for_is_no_empty_list(hub: GitHub, host: Host):
    hub.answers = [Answer(status=304)]
    with pytest.raises(RetryLater, match="304"):
        await page(source(hub, host))


async def test_a_next_page_elsewhere_is_refused_because_the_token_would_go_along(hub: GitHub, host: Host):
    hub.answers = [Answer(headers={"Link": '<https://evil.example/issues?page=2>; rel="next"'}, body=b"[]")]
    with pytest.raises(Refused, match="another origin"):
        await page(source(hub, host))


async def test_a_history_that_may_not_be_read_is_said_and_nothing_is_lost(hub: GitHub, host: Host):
    old = hub.open(age=86_400)
    hub.label(old, "bug")
    hub.after[1] = lambda: hub.answers.append(Answer(status=404, body=b"{}"))
    reader = source(hub, host, labels="bug")
    with pytest.raises(NeedsAttention, match="404"):
        await page(reader)
    assert len(events(await read(reader))) == 1


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"repos": []},
        {"repos": "shop"},
        {"repos": "acme/shop/../../user"},
        {"repos": "acme/.."},
        {"repos": "../user"},
        {"repos": "acme/shop?state=all"},
        {"repos": "acme/shop#1"},
        {"repos": "acme/sh op"},
        {"repos": "acme/shop\n"},
        {"repos": "https://github.com/acme/shop"},
        {"repos": SHOP, "labels": "bug,ui"},
        {"repos": SHOP, "labels": [" "]},
        {"repos": SHOP, "labels": ["a\nb"]},
        {"repos": SHOP, "assignee": "me"},
        {"repos": SHOP, "assignee": "@me"},
        {"repos": SHOP, "assignee": "*"},
        {"repos": SHOP, "author": "mia engel"},
        {"repos": SHOP, "author": "mia@example.com"},
        {"repos": SHOP, "state": "merged"},
        {"repos": SHOP, "kind": "pull"},
        {"repos": SHOP, "milestone": ""},
        {"repos": SHOP, "label": "bug"},
    ],
)
def test_what_github_would_take_for_something_else_is_refused(query: Any):
    with pytest.raises(ValidationError):
        Query.model_validate(query)


def test_plain_values_stand_for_lists_of_one():
    query = Query.model_validate({"repos": "a/b.js", "labels": 404, "author": "@dependabot[bot]", "assignee": "a_corp"})
    assert (query.repos, query.labels, query.author) == (("a/b.js",), ("404",), ("dependabot[bot]",))


async def test_a_label_with_any_character_stays_one_value(hub: GitHub, host: Host):
    hub.open("area/ui ü?&state=all")
    assert len(events(await read(source(hub, host, labels="area/ui ü?&state=all")))) == 1
    assert hub.seen[-1].query["state"] == "open"


@pytest.mark.parametrize(
    "account",
    [
        {"token": ""},
        {"token": "two words"},
        {"token": "a\nb"},
        {"token": "t", "base_url": "https://github.com"},
        {"token": "t", "base_url": "api.github.com"},
        {"token": "t", "base_url": "https://host/api/v3?x=1"},
    ],
)
def test_an_account_that_cannot_work_is_refused_without_its_token(account: dict[str, str]):
    with pytest.raises(ValidationError) as refused:
        Account.model_validate(account)
    assert "two words" not in str(refused.value)


def test_the_address_of_an_enterprise_server_keeps_its_path(clock: HandClock):
    there = Account.model_validate({"token": "t", "base_url": "https://git.acme.example/api/v3/"})
    api = Api(there, Host(http=Client(clock), clock=clock, random=Random(1)))
    assert api.repo_url(SHOP, "issues") == "https://git.acme.example/api/v3/repos/acme/shop/issues"


async def test_whoami_shows_the_login_and_the_scopes(hub: GitHub, host: Host):
    mine = await whoami(account(hub), host)
    assert (mine["login"], mine["token"], mine["scopes"]) == ("mia", "classic", "repo, read:org")
    assert (await whoami(account(hub, "fine"), host))["token"] == "fine-grained"


async def test_whoami_of_an_app_says_that_it_is_nobody(hub: GitHub, host: Host):
    hub.answers = [
        Answer(status=403, headers={"X-RateLimit-Remaining": "4000"}, body=b'{"message": "not accessible"}'),
        Answer(body=b"{}"),
    ]
    assert "belongs to no user" in (await whoami(account(hub), host))["token"]
    with pytest.raises(NeedsAttention, match="401"):
        await whoami(account(hub, "gone"), host)


async def test_check_asks_for_every_name(hub: GitHub, host: Host):
    query = Query(repos=(SHOP,), labels=("BUG",), assignee="mia", author=("leo",), milestone="1.0")
    checked = await check(query, account(hub), host)
    assert checked.unknown == []
    assert checked.found == {SHOP: "private repository acme/shop", "mia": "user Mia Engel", "leo": "user Leo Park"}


async def test_check_has_a_sentence_for_each_name_that_is_not_there(hub: GitHub, host: Host):
    query = Query(repos=(SHOP, "acme/gone"), labels=("area/x ü?",), assignee="zoe", milestone="9.9")
    checked = await check(query, account(hub), host)
    assert [sentence.partition(",")[0].partition(":")[0] for sentence in checked.unknown] == [
        "there is no label 'area/x ü?' in acme/shop",
        "there is no milestone '9.9' in acme/shop",
        "there is no repository acme/gone",
        "there is no user zoe",
    ]
    assert (await check(Query(repos=(SHOP,), assignee="none"), account(hub), host)).unknown == []


def test_the_token_comes_from_the_variable_that_people_have_set_already():
    assert plugin.environment == {"GITHUB_TOKEN": "token"}
