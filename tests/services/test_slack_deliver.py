"""Slack as a destination: plain text into a channel, once."""

from __future__ import annotations

import pytest

from harken.errors import NeedsAttention
from harken.services.slack import plugin
from harken.source import Host, Message
from harken.testing.fakes.slack import FakeSlack
from tests.services.slack_world import account


async def send(host: Host, slack: FakeSlack, to: str = "#eng", text: str = "hi", key: str = "run-1/step"):
    assert plugin.destination is not None
    destination = plugin.destination(None, account(slack), host)
    return await destination.deliver(Message(to=to, text=text, title="Disk", idempotency_key=key))


def posted(slack: FakeSlack) -> list[str]:
    return [one.fields["text"] for one in slack.channels["C1"].messages.values()]


@pytest.mark.parametrize("to", ["#eng", "eng", " C1 "])
async def test_a_channel_goes_by_its_name_or_id(host: Host, slack: FakeSlack, to: str):
    assert (await send(host, slack, to))["channel"] == "C1"
    assert posted(slack) == ["Disk\n\nhi"]


async def test_a_person_goes_by_their_id(host: Host, slack: FakeSlack):
    # posting to a member's id opens the conversation with them
    slack.dm("U1", id="U1")
    await send(host, slack, "U1")
    assert [one.fields["text"] for one in slack.channels["U1"].messages.values()] == ["Disk\n\nhi"]


async def test_it_opens_a_thread_of_its_own(host: Host, slack: FakeSlack):
    await send(host, slack)
    assert [one.thread for one in slack.channels["C1"].messages.values()] == [""]


async def test_a_strangers_words_are_no_marks(host: Host, slack: FakeSlack):
    await send(host, slack, text="<!channel> <@U1> <https://evil.example|your bank> a & b")
    assert "<" not in posted(slack)[0]
    assert posted(slack)[0].endswith("a &amp; b")


async def test_a_repeat_is_told_as_such(host: Host, slack: FakeSlack):
    assert [(await send(host, slack))["repeated"] for _ in range(2)] == [False, True]


async def test_no_channel_needs_attention(host: Host, slack: FakeSlack):
    with pytest.raises(NeedsAttention, match="names no channel"):
        await send(host, slack, "")
