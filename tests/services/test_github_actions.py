"""Steps that write to GitHub: once each, however often they are tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention
from harken.services.github import plugin
from harken.source import Call, Host
from harken.testing import HandClock
from harken.testing.fakes.github import GitHub
from tests.services.github import SHOP, account

UGLY = "area/ui ü?"


@pytest.fixture
async def hub(clock: HandClock) -> AsyncIterator[GitHub]:
    fake = GitHub(clock)
    fake.open("bug", UGLY)
    async with fake.serve():
        yield fake


async def act(
    hub: GitHub, host: Host, name: str, *, key: str = "run/step", token: str = "classic", **params: Any
) -> dict[str, Any]:
    chosen = plugin.actions[name]
    given = chosen.params.model_validate({"repo": SHOP, "issue": 1, **params})
    done: dict[str, Any] = await chosen.run(
        Call(params=given, account=account(hub, token), host=host, idempotency_key=key)
    )
    return done


def bodies(hub: GitHub, repo: str = SHOP) -> list[str]:
    return [comment["body"] for comment in hub.repos[repo].issues[1].comments]


async def test_a_comment_that_is_tried_again_is_written_once(hub: GitHub, host: Host):
    first = await act(hub, host, "comment", text="Looks like **DNS** 🔥")
    again = await act(hub, host, "comment", text="worded differently by a model")
    assert (first["changed"], again["changed"]) == (True, False)
    assert first["comment"] == again["comment"]
    (body,) = bodies(hub)
    assert body.startswith("Looks like **DNS** 🔥\n\n<!-- harken ")
    assert body.endswith(" -->")
    assert "run/step" not in body


async def test_a_comment_of_another_step_is_another_comment(hub: GitHub, host: Host):
    await act(hub, host, "comment", text="one", key="a")
    await act(hub, host, "comment", text="one", key="b")
    assert len(bodies(hub)) == 2


async def test_our_comment_is_found_among_hundreds(hub: GitHub, host: Host):
    issue = hub.repos[SHOP].issues[1]
    for _ in range(120):
        hub.comment(issue)
    await act(hub, host, "comment", text="one")
    for _ in range(120):
        hub.comment(issue)
    assert (await act(hub, host, "comment", text="one"))["changed"] is False


async def test_a_comment_follows_a_repository_that_was_renamed(hub: GitHub, host: Host):
    hub.add_repo("acme/store")
    hub.open(repo="acme/store")
    hub.repos[SHOP].moved_to = "acme/store"
    assert (await act(hub, host, "comment", text="one"))["changed"] is True
    assert len(bodies(hub, "acme/store")) == 1


async def test_a_label_is_added_to_the_others_by_its_own_endpoint(hub: GitHub, host: Host):
    first = await act(hub, host, "label", label="triaged")
    again = await act(hub, host, "label", label="Triaged")
    assert (first["labels"], first["changed"], again["changed"]) == (["bug", UGLY, "triaged"], True, False)
    assert {seen.method for seen in hub.seen} == {"GET", "POST"}


async def test_a_label_is_taken_away_whatever_characters_it_has(hub: GitHub, host: Host):
    first = await act(hub, host, "unlabel", label=UGLY.upper())
    again = await act(hub, host, "unlabel", label=UGLY)
    assert (first["labels"], first["changed"], again["changed"]) == (["bug"], True, False)


async def test_a_label_that_somebody_else_takes_away_meanwhile_is_no_error(hub: GitHub, host: Host):
    hub.after[1] = lambda: hub.unlabel(hub.repos[SHOP].issues[1], "bug")
    assert await act(hub, host, "unlabel", label="bug") == {
        "repo": SHOP,
        "issue": 1,
        "labels": [UGLY],
        "changed": False,
    }


async def test_a_token_that_may_only_read_is_said(hub: GitHub, host: Host):
    hub.read_only.add("fine")
    with pytest.raises(NeedsAttention, match="read and write for actions"):
        await act(hub, host, "comment", text="one", token="fine")
    with pytest.raises(NeedsAttention, match="404"):
        await act(hub, host, "label", label="bug", issue=99)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("comment", {"text": " "}),
        ("comment", {"text": "a", "repo": "acme/shop/../x"}),
        ("comment", {"text": "a", "issue": "1/../2"}),
        ("label", {"label": " "}),
        ("label", {"label": "x", "issue": 0}),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, params: dict[str, Any]):
    with pytest.raises(ValidationError):
        plugin.actions[name].params.model_validate({"repo": SHOP, "issue": 1, **params})


def test_a_number_may_be_written_as_text_and_a_long_comment_is_cut():
    made = plugin.actions["comment"].params.model_validate({"repo": SHOP, "issue": "7", "text": "a" * 70_000})
    assert made.model_dump()["issue"] == 7
    assert len(made.model_dump()["text"]) == 65_000
