"""Who I am, and whether what a query names is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from harken.errors import NeedsAttention
from harken.services.jira import Query, plugin
from harken.source import Checked, Host
from harken.testing import HandClock
from harken.testing.fakes.jira import Jira
from tests.services.jira import account, serving, source
from tests.services.reading import read

BOTH = pytest.mark.parametrize("jira", ["cloud", "server"], indirect=True)


@pytest.fixture
async def jira(request: Any, clock: HandClock) -> AsyncIterator[Jira]:
    async with serving(clock, cloud=getattr(request, "param", "cloud") == "cloud") as served:
        served.user("5b10a2844c20165700ede21g" if served.cloud else "bob", email="bob@example.com", name="Bob Berg")
        served.user("hid", email="hidden@example.com", name="Hidden Heidi", hidden=True)
        served.user("max1", email="max@example.com", name="Max Moritz")
        served.user("max2", email="moritz@example.com", name="Max Moritz")
        yield served


async def checked(jira: Jira, host: Host, **query: Any) -> Checked:
    assert plugin.check is not None
    return await plugin.check(Query.model_validate(query), account(jira), host)


@BOTH
async def test_whoami_shows_what_queries_take(jira: Jira, host: Host):
    assert plugin.whoami is not None
    assert await plugin.whoami(account(jira), host) == {
        "id": "me",
        "name": "Mia Me",
        "email": "me@example.com",
        "username": None if jira.cloud else "me",
        "time_zone": "Europe/Berlin",
        "deployment": "cloud" if jira.cloud else "server",
        "site": jira.url,
    }


@BOTH
async def test_everything_that_is_there_is_told_by_its_name(jira: Jira, host: Host):
    found = await checked(
        jira, host, assignee="bob@example.com", project="TEAM", statuses="done", issue_types=["bug"], labels=["x"]
    )
    assert found.unknown == []
    bob = "5b10a2844c20165700ede21g" if jira.cloud else "bob"
    assert found.found == {
        "bob@example.com": f"Bob Berg ({bob}, bob@example.com)",
        "TEAM": "project The Team",
        "done": "status Done",
        "bug": "issue type Bug",
        "x": "a label; whether it is in use cannot be asked",
    }


@BOTH
async def test_everything_that_is_not_there_has_its_sentence(jira: Jira, host: Host):
    found = await checked(
        jira, host, assignee="nobody", project="TAEM", statuses=["Don", "To Do"], issue_types=["Storyy"]
    )
    assert found.found == {"To Do": "status To Do"}
    assert [told.partition("127.0.0.1 ")[2] for told in found.unknown] == [
        "has no user 'nobody'. Write the id that whoami shows",
        "shows no project 'TAEM'. Check its key, and that the account may see it",
        "has no status 'Don'; did you mean Done?. Correct it",
        "has no issue type 'Storyy'. Correct it",
    ]


@pytest.mark.parametrize(
    ("written", "id"),
    [
        ("me", "me"),
        ("ME@example.com", "me"),
        ("currentUser()", "me"),
        ("Bob Berg", "5b10a2844c20165700ede21g"),
        ("5b10a2844c20165700ede21g", "5b10a2844c20165700ede21g"),
        ("hidden@example.com", "hid"),
    ],
)
async def test_a_user_is_found_by_id_name_or_address(jira: Jira, host: Host, written: str, id: str):
    assert f"({id}" in (await checked(jira, host, assignee=written)).found[written]


async def test_a_name_that_several_users_have_is_not_guessed(jira: Jira, host: Host):
    (told,) = (await checked(jira, host, mentioned="Max Moritz")).unknown
    assert "may be several users: Max Moritz (max1" in told
    with pytest.raises(NeedsAttention, match="several users"):
        await read(source(jira, host, assignee="Max Moritz"))


async def test_the_beginning_of_a_name_is_no_match_but_a_hint(jira: Jira, host: Host):
    (told,) = (await checked(jira, host, assignee="Bob")).unknown
    assert "no user 'Bob'; there is Bob Berg (5b10a2844c20165700ede21g" in told


async def test_an_account_id_needs_no_permission_to_look_up_users(jira: Jira, host: Host):
    jira.hidden = {"/user", "/user/search"}
    found = await checked(jira, host, assignee=["5b10a2844c20165700ede21g", "bob@example.com", "me@example.com"])
    assert set(found.found) == {"5b10a2844c20165700ede21g", "me@example.com"}
    assert "Browse users and groups" in found.unknown[0]


async def test_raw_jql_is_read_by_jira_itself(jira: Jira, host: Host):
    good = await checked(jira, host, jql="priority = High", allow_jql=True)
    bad = await checked(jira, host, jql="colour = red", allow_jql=True)
    assert good.found == {"priority = High": "JQL that Jira understands"}
    assert "Field 'colour' does not exist" in bad.unknown[0]


async def test_a_wrong_token_is_an_error_and_not_an_unknown_name(jira: Jira, host: Host):
    jira.token = "another"
    with pytest.raises(NeedsAttention, match="does not accept"):
        await checked(jira, host, project="TEAM")


def test_every_setting_has_a_description_for_forms_and_prompts():
    assert plugin.query is not None
    assert plugin.account is not None
    models = [plugin.query, plugin.account, *(act.params for act in plugin.actions.values())]
    fields = [(name, field.description) for model in models for name, field in model.model_fields.items()]
    assert [name for name, description in fields if not description] == []
