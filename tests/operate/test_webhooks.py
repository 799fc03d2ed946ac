"""The addresses of webhooks, and commands that send a sample to them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
import structlog

from harken.errors import NotFound, Refused
from harken.event import Event
from harken.feed import Feed
from harken.services import registry
from harken.services.webhook import Incoming, IncomingQuery
from harken.source import Request
from tests.operate.operator_world import PUSHED, Office

QUERY = IncomingQuery.model_validate({"secret": "correct-horse", "id_field": "id"})


@pytest.fixture
def signed(office: Office) -> Office:
    office.operator.loaded = replace(office.loaded, queries={PUSHED.name: QUERY})
    return office


async def test_an_address_is_listed_with_who_listens_what_came_and_what_was_refused(office: Office) -> None:
    [row] = (await office.ask("webhooks.list"))["items"]
    assert row["address"].endswith(f"/webhooks/{PUSHED.path}")
    assert (row["triggers"], row["scheme"], row["last_received_at"], row["refused"]) == (["deploys"], "hmac", None, 0)
    await office.shows(Event(subject="d-1", type="webhook.received", data={}), feed=PUSHED.name)
    with structlog.testing.capture_logs():
        for _ in range(30):
            office.engine.refusals.note(PUSHED.path, "203.0.113.7", "signature", "the signature is wrong")
    [row] = (await office.ask("webhooks.list"))["items"]
    assert (row["refused"], row["last_received_at"] is not None) == (30, True)


async def test_the_command_is_signed_at_each_call_and_shows_no_secret(signed: Office) -> None:
    commands = []
    for _ in range(2):
        signed.clock.advance(10)
        words = shlex.split((await signed.ask("webhooks.curl", id=PUSHED.path))["command"])
        headers = dict(word.lower().split(": ", 1) for before, word in pairwise(words) if before == "-H")
        body = words[words.index("--data-binary") + 1].encode()
        [event] = await Incoming(QUERY).receive(Request(headers=headers, body=body, received_at=signed.clock.now()))
        commands.append(event.key)
        assert "correct-horse" not in str(words)
    assert commands[0] != commands[1]


async def test_an_event_is_sent_again_with_a_new_signature(signed: Office) -> None:
    await signed.shows(Event(subject="d-7", type="webhook.received", key="d-7", data={"id": "d-7"}), feed=PUSHED.name)
    [event] = (await signed.ask("events.list", feed=PUSHED.name))["items"]
    words = shlex.split((await signed.ask("webhooks.curl", id=PUSHED.name, event=event["id"]))["command"])
    headers = dict(word.lower().split(": ", 1) for before, word in pairwise(words) if before == "-H")
    body = words[words.index("--data-binary") + 1].encode()
    [sent] = await Incoming(QUERY).receive(Request(headers=headers, body=body, received_at=signed.clock.now()))
    assert (sent.key, sent.data) == ("d-7", {"id": "d-7"})
    assert "correct-horse" not in str(words)
    with pytest.raises(NotFound, match="did not come by"):
        await signed.ask("webhooks.curl", id=PUSHED.name, event=event["id"] + 1)


async def test_an_event_of_another_service_is_left_to_its_sender(signed: Office) -> None:
    await signed.shows(Event(subject="d-7", type="webhook.received", data={}), feed=PUSHED.name)
    [event] = (await signed.ask("events.list", feed=PUSHED.name))["items"]
    feeds = tuple(replace_kind(feed) for feed in signed.loaded.feeds)
    signed.operator.loaded = replace(signed.loaded, feeds=feeds)
    with pytest.raises(Refused, match="only the sender"):
        await signed.ask("webhooks.curl", id=PUSHED.name, event=event["id"])


def replace_kind(feed: Feed) -> Feed:
    return msgspec.structs.replace(feed, kind="github") if feed.name == PUSHED.name else feed


async def test_a_webhook_that_is_not_there_is_not_found(signed: Office) -> None:
    with pytest.raises(NotFound, match="no webhook nonsense"):
        await signed.ask("webhooks.curl", id="nonsense")


async def test_the_id_alone_is_enough_unless_two_have_it(signed: Office) -> None:
    other = Feed(name="webhook/github/x", kind="github", integration="github", way="push", path="github/x")
    same = Feed(name="webhook/gitlab/x", kind="gitlab", integration="gitlab", way="push", path="gitlab/x")
    github = registry()["github"].webhook_query
    assert github is not None
    query = github.model_validate({"secret": "s"})
    signed.operator.loaded = replace(signed.loaded, feeds=(*signed.loaded.feeds, other), queries={other.name: query})
    assert "x-hub-signature-256" in (await signed.ask("webhooks.curl", id="x"))["command"].lower()
    signed.operator.loaded = replace(signed.loaded, feeds=(*signed.loaded.feeds, other, same))
    with pytest.raises(Refused, match="github/x, gitlab/x"):
        await signed.ask("webhooks.curl", id="x")


async def test_a_token_is_named_and_not_shown(signed: Office) -> None:
    query = IncomingQuery.model_validate({"scheme": "basic", "secret": "correct-horse"})
    signed.operator.loaded = replace(signed.loaded, queries={PUSHED.name: query})
    assert '-u "harken:$SECRET"' in (await signed.ask("webhooks.curl", id=PUSHED.path))["command"]


async def test_a_webhook_without_a_sample_says_so(office: Office) -> None:
    with pytest.raises(Refused, match="no sample"):
        await office.ask("webhooks.curl", id=PUSHED.path)
