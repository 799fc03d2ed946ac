"""Messages that Slack once sent, out of the source distribution of a tool that collects them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from harken.errors import NeedsAttention
from harken.services.slack.api import micros
from harken.services.slack.directory import name_of
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.server import Answer
from harken.testing.fakes.slack import FakeSlack, Message
from tests.downloads.corpora import corpus
from tests.services.reading import events, read
from tests.services.slack_world import source, workspace

pytestmark = [pytest.mark.worker_group("collector-corpora"), pytest.mark.timeout(300)]

LONG_AGO = datetime(2010, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def messages() -> list[dict[str, Any]]:
    items = msgspec.json.decode((corpus("grimoire-elk") / "tests/data/slack.json").read_bytes())
    added = {"channel_info", "user_data"}
    return [{name: value for name, value in item["data"].items() if name not in added} for item in items]


@pytest.fixture
async def slack(clock: HandClock, messages: list[dict[str, Any]]) -> AsyncIterator[FakeSlack]:
    """A channel in which they were said."""
    async with workspace(clock) as fake:
        for one in messages:
            fields = {name: value for name, value in one.items() if name not in ("ts", "type")}
            fake.channels["C1"].messages[one["ts"]] = Message(micros(one["ts"]), 0.0, fields, "")
        yield fake


async def test_all_that_people_wrote_is_told_as_it_was_written(
    slack: FakeSlack, host: Host, messages: list[dict[str, Any]]
):
    told = events(await read(source(host, slack), None, LONG_AGO))
    written = {one["ts"]: one["text"] for one in messages if "user" in one and "subtype" not in one}
    found = {event.data["ts"]: event.data["raw_text"] for event in told}
    assert len(written) >= 6
    assert {ts: found.get(ts) for ts in written} == written
    assert {event.occurred_at.timestamp() for event in told if event.occurred_at} == {float(ts) for ts in found}


async def test_joins_are_noise_and_bots_are_left_out_unless_wanted(
    slack: FakeSlack, host: Host, messages: list[dict[str, Any]]
):
    people = {event.data["ts"] for event in events(await read(source(host, slack), None, LONG_AGO))}
    told = {event.data["ts"] for event in events(await read(source(host, slack, exclude_bots=False), None, LONG_AGO))}
    conversation_types = {one["ts"]: one.get("subtype", "") for one in messages}
    assert {conversation_types[ts] for ts in told - people} == {"bot_message"}
    assert {conversation_types[ts] for ts in conversation_types.keys() - told} == {"channel_join"}


async def test_a_mention_with_a_name_in_it_is_one_of_that_user(slack: FakeSlack, host: Host):
    (event,) = events(await read(source(host, slack, mentions="U0002"), None, LONG_AGO))
    assert event.data["text"] == "@U0003 commented on @U0002 file>: Thanks."


async def test_without_a_text_the_recorded_blocks_speak(slack: FakeSlack, host: Host, messages: list[dict[str, Any]]):
    with_blocks = {one["ts"] for one in messages if "blocks" in one}
    for ts in with_blocks:
        slack.channels["C1"].messages[ts].fields["text"] = ""
    told = {event.data["ts"]: event.data["text"] for event in events(await read(source(host, slack), None, LONG_AGO))}
    assert {told[ts].partition("\n")[0] for ts in with_blocks} == {
        "Helpful question stored",
        "This message contains 2 files",
    }
    assert all("See the answer" not in text for text in told.values())


def test_recorded_people_have_a_name():
    files = sorted((corpus("perceval") / "tests/data/slack").glob("slack_user_U000[123].json"))
    users = [msgspec.json.decode(file.read_bytes())["user"] for file in files]
    assert [name_of(user) for user in users] == ["Alvaro del Castillo", "Jose Manrique", "dizquierdo"]


async def test_a_recorded_refusal_names_the_channel(slack: FakeSlack, host: Host):
    watched = source(host, slack, channels="eng")
    cursor = (await read(watched, None, LONG_AGO))[-1].cursor
    slack.answers = [Answer(body=(corpus("perceval") / "tests/data/slack/slack_error.json").read_bytes())]
    with pytest.raises(NeedsAttention, match="not in #eng"):
        await read(watched, cursor, LONG_AGO)
