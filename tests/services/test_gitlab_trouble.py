"""What GitLab refuses, what people write wrongly, and what steps write, however often they are tried."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, Refused, RetryLater
from harken.services.gitlab import Account, Query, plugin
from harken.services.gitlab.check import check, whoami
from harken.source import Call, Host
from harken.testing.fakes.gitlab import GitLab
from harken.testing.fakes.server import Answer
from tests.services.gitlab import SHOP, account, source
from tests.services.reading import events, page, read

UGLY = "area::ui ü/?"


async def act(
    lab: GitLab, host: Host, name: str, *, key: str = "run/step", token: str = "glpat-full", **params: Any
) -> dict[str, Any]:
    chosen = plugin.actions[name]
    given = chosen.params.model_validate({"project": SHOP, "issue": 1, **params})
    done: dict[str, Any] = await chosen.run(
        Call(params=given, account=account(lab, token), host=host, idempotency_key=key)
    )
    return done


async def test_a_wrong_token_names_the_command_and_not_the_token(lab: GitLab, host: Host):
    with pytest.raises(NeedsAttention, match="harken integrations gitlab configure") as refused:
        await page(source(lab, host, "wr0ng-secret"))
    assert "wr0ng-secret" not in str(refused.value)


async def test_a_project_that_the_token_may_not_see_names_the_scopes(lab: GitLab, host: Host):
    with pytest.raises(NeedsAttention, match=r"404 to the issues of acme/gone.*read_api"):
        await page(source(lab, host, projects="acme/gone"))


async def test_a_limit_is_waited_for_as_long_as_it_says(lab: GitLab, host: Host):
    lab.limit(90)
    with pytest.raises(RetryLater) as limited:
        await page(source(lab, host))
    assert (limited.value.reason, limited.value.after) == ("rate_limited", 90.0)
    lab.answers = [Answer(status=429, headers={"Retry-After": "47"})]
    with pytest.raises(RetryLater) as limited:
        await page(source(lab, host))
    assert limited.value.after == 47.0


@pytest.mark.parametrize("answer", [Answer(body=b"<html>"), Answer(body=b"{}"), Answer(status=304)])
async def test_an_answer_without_a_list_is_tried_again(lab: GitLab, host: Host, answer: Answer):
    lab.answers = [answer]
    with pytest.raises(RetryLater):
        await page(source(lab, host))


async def test_a_next_page_elsewhere_is_refused_because_the_token_would_go_along(lab: GitLab, host: Host):
    lab.answers = [Answer(headers={"Link": '<https://evil.example/?page=2>; rel="next"'}, body=b"[]")]
    with pytest.raises(Refused, match="another origin"):
        await page(source(lab, host))


async def test_a_history_that_may_not_be_read_is_said_and_nothing_is_lost(lab: GitLab, host: Host):
    lab.label(lab.open(age=86_400), "bug")
    lab.after[1] = lambda: lab.answers.append(Answer(status=404, body=b"{}"))
    reader = source(lab, host, labels="bug")
    with pytest.raises(NeedsAttention, match="404"):
        await page(reader)
    assert len(events(await read(reader))) == 1


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"projects": []},
        {"projects": "shop"},
        {"projects": "acme/../user"},
        {"projects": "../acme/shop"},
        {"projects": "acme/shop?x=1"},
        {"projects": "acme%2Fshop"},
        {"projects": "acme/shop/"},
        {"projects": "https://gitlab.com/acme/shop"},
        {"projects": SHOP, "labels": "bug,ui"},
        {"projects": SHOP, "labels": "Any"},
        {"projects": SHOP, "labels": ["a\nb"]},
        {"projects": SHOP, "assignee": "@me"},
        {"projects": SHOP, "author": "mia engel"},
        {"projects": SHOP, "state": "merged"},
        {"projects": SHOP, "label": "bug"},
    ],
)
def test_what_gitlab_would_take_for_something_else_is_refused(query: Any):
    with pytest.raises(ValidationError):
        Query.model_validate(query)


def test_a_number_stands_for_a_project_too():
    assert Query.model_validate({"projects": 278964, "labels": 404}).projects == ("278964",)


async def test_a_label_with_any_character_stays_one_value(lab: GitLab, host: Host):
    lab.open("a&state=all ü")
    assert len(events(await read(source(lab, host, labels="a&state=all ü")))) == 1
    assert lab.seen[-1].query["state"] == "opened"


@pytest.mark.parametrize(
    "wrong",
    [{"token": "two words"}, {"token": "t", "base_url": "gitlab.com"}, {"token": "t", "base_url": "https://h?x"}],
)
def test_an_account_that_cannot_work_is_refused_without_its_token(wrong: dict[str, str]):
    with pytest.raises(ValidationError) as refused:
        Account.model_validate(wrong)
    assert "two words" not in str(refused.value)


async def test_whoami_shows_the_name_and_the_scopes(lab: GitLab, host: Host):
    mine = await whoami(account(lab), host)
    assert (mine["username"], mine["scopes"], mine["expires"]) == ("mia", "api", "2026-12-31")
    with pytest.raises(NeedsAttention, match="401"):
        await whoami(account(lab, "gone"), host)


async def test_check_asks_for_every_name(lab: GitLab, host: Host):
    query = Query(projects=(SHOP,), labels=(UGLY,), assignee="mia", author=("leo",), milestone="1.0")
    checked = await check(query, account(lab), host)
    assert checked.unknown == []
    assert checked.found == {SHOP: "project acme/web/shop", "mia": "user Mia Engel", "leo": "user Leo Park"}


async def test_check_has_a_sentence_for_each_name_that_is_not_there(lab: GitLab, host: Host):
    query = Query(projects=(SHOP, "acme/gone"), labels=("Bug",), assignee="zoe", milestone="9.9")
    checked = await check(query, account(lab), host)
    assert [sentence.partition(",")[0].partition(":")[0] for sentence in checked.unknown] == [
        "there is no label 'Bug' in acme/web/shop",
        "there is no milestone '9.9' in acme/web/shop",
        "there is no project acme/gone",
        "there is no user zoe",
    ]


async def test_a_note_that_is_tried_again_is_written_once_also_among_hundreds(lab: GitLab, host: Host):
    issue = lab.open()
    first = await act(lab, host, "note", text="Looks like **DNS** 🔥")
    for _ in range(120):
        lab.comment(issue)
    again = await act(lab, host, "note", text="worded differently by a model")
    other = await act(lab, host, "note", text="one", key="another step")
    assert [done["changed"] for done in (first, again, other)] == [True, False, True]
    assert first["note"] == again["note"]
    body = issue.happened["notes"][0]["body"]
    assert body.startswith("Looks like **DNS** 🔥\n\n<!-- harken ")
    assert "run/step" not in body


async def test_a_note_follows_a_project_that_was_moved(lab: GitLab, host: Host):
    lab.projects["acme/store"] = {}
    issue = lab.open(project="acme/store")
    lab.moved[SHOP] = "acme/store"
    assert (await act(lab, host, "note", text="one"))["changed"] is True
    assert (await act(lab, host, "label", label="x"))["labels"] == ["x"]
    assert len(issue.happened["notes"]) == 1


async def test_labels_are_added_and_taken_away_one_by_one(lab: GitLab, host: Host):
    lab.open("bug", UGLY)
    first = await act(lab, host, "label", label="triaged")
    again = await act(lab, host, "label", label="triaged")
    gone = await act(lab, host, "unlabel", label=UGLY)
    still = await act(lab, host, "unlabel", label=UGLY)
    assert (first["labels"], gone["labels"]) == (["bug", UGLY, "triaged"], ["bug", "triaged"])
    assert [done["changed"] for done in (first, again, gone, still)] == [True, False, True, False]
    assert next(seen.body for seen in lab.seen if seen.method == "PUT") == b'{"add_labels":"triaged"}'


async def test_a_token_that_may_only_read_is_said(lab: GitLab, host: Host):
    lab.open()
    with pytest.raises(NeedsAttention, match="actions take api"):
        await act(lab, host, "note", text="one", token="glpat-read")
    with pytest.raises(NeedsAttention, match="404"):
        await act(lab, host, "label", label="bug", issue=99)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("note", {"text": " "}),
        ("note", {"text": "a", "project": "acme/../x"}),
        ("note", {"text": "a", "issue": "1/../2"}),
        ("label", {"label": "a,b"}),
        ("label", {"label": "x", "issue": 0}),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, params: dict[str, Any]):
    with pytest.raises(ValidationError):
        plugin.actions[name].params.model_validate({"project": SHOP, "issue": 1, **params})
