"""A mention responder as people write it, with the whole engine, over hours of virtual time and a restart."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pydantic import BaseModel

from harken.operate.load_and_check_configuration import load_directory
from harken.services.slack import Account, Query
from harken.services.slack.actions import PostParams
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.slack import ME, TOKEN, FakeSlack
from tests.services.slack_world import workspace
from tests.services.whole import running, write

ROOT = Path(__file__).parents[2]
MAIN = """
store: harken.db
models: {default: echo}
integrations:
  slack: {kind: slack, token: "${SLACK_BOT_TOKEN}", base_url: "%s", allow_private_networks: true}
"""
MENTIONS = """
name: slack-mentions
trigger:
  type: poll
  poll:
    integration: slack
    query: {mentions: "@jsmith", channels: [eng, ops], include_threads: true, exclude_bots: true}
    interval: 30s
steps:
  - id: draft
    action: llm
    prompt: "{{.trigger.event.user.name}} in #{{.trigger.event.channel.name}}: {{.trigger.event.text}}"
  - id: answer
    action: slack.post
    channel: "{{.trigger.event.channel.id}}"
    thread_ts: "{{.trigger.event.thread_ts}}"
    text: "{{.steps.draft.response}}"
"""
ENVIRON = {"SLACK_BOT_TOKEN": TOKEN}


@pytest.mark.parametrize("model", [Account, Query, PostParams])
def test_every_field_is_in_the_reference(model: type[BaseModel]) -> None:
    page = (ROOT / "docs" / "reference" / "services" / "slack.md").read_text("utf-8")
    assert [name for name in model.model_fields if f"`{name}`" not in page] == []


def test_the_examples_load_without_a_complaint() -> None:
    loaded = load_directory(ROOT / "examples" / "slack", ENVIRON)
    assert [str(finding) for finding in loaded.findings] == []
    assert sorted(trigger.name for trigger in loaded.triggers) == ["mentions", "outages"]


def answers(slack: FakeSlack) -> list[str]:
    """The threads that the bot answered in."""
    posted = [one for channel in slack.channels.values() for one in channel.messages.values()]
    return sorted(one.thread for one in posted if one.fields["user"] == ME)


@virtual
async def test_every_mention_is_answered_once_in_its_thread(clock: VirtualClock, tmp_path: Path) -> None:
    random = Random(5)
    async with workspace(clock) as slack:
        slack.channel("ops", id="C2")
        old = slack.say("C1", "before the trigger", age=86_400 * 3)
        slack.say("C2", "<@U1> also before", age=600)
        write(tmp_path, MAIN % slack.url, mentions=MENTIONS)
        asked: list[str] = []
        for round in range(2):
            async with running(tmp_path, clock, ENVIRON):
                await clock.sleep(95)
                for number in range(12):
                    channel = random.choice(["C1", "C2"])
                    ts = slack.say(channel, f"<@U1> question {round}.{number}", user="U2", late=random.choice([0, 40]))
                    asked.append(ts)
                    slack.say(channel, "<@U2> not for Jane", user="U2")
                    slack.edit(channel, ts, f"<@U1> question {round}.{number}, in other words")
                    await clock.sleep(random.uniform(1, 90))
                slack.say("C1", "<@U1> in an old thread", user="U2", thread=old)
                asked.append(old)
                await clock.sleep(500)
            await clock.sleep(1800)
        assert answers(slack) == sorted(asked)
        answered = [one.fields["text"] for one in slack.channels["C1"].messages.values() if one.thread == old]
        assert "Bob in #eng: @Jay in an old thread" in answered[1]


@virtual
async def test_a_burst_while_it_was_down_and_a_rate_limit_after_that(clock: VirtualClock, tmp_path: Path) -> None:
    async with workspace(clock) as slack:
        slack.channel("ops", id="C2")
        write(tmp_path, MAIN % slack.url, mentions=MENTIONS)
        async with running(tmp_path, clock, ENVIRON):
            await clock.sleep(100)
        asked = []
        for _ in range(60):
            asked.append(slack.say("C2", "<@U1>", user="U2"))
            await clock.sleep(20)
        slack.limit("conversations.history", calls=2, retry_after=45)
        slack.limit("chat.postMessage", calls=3, retry_after=30, quietly=True)
        async with running(tmp_path, clock, ENVIRON) as app:
            await clock.sleep(600)
            feeds = (await app.operator.call("feeds.list"))["items"]
        assert answers(slack) == asked
        assert [feed["error"] for feed in feeds if feed["name"].startswith("slack")] == [""]


@virtual
async def test_the_first_mentions_of_a_workspace_whose_clock_is_behind_are_answered_and_older_ones_are_not(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with workspace(clock) as slack:
        slack.skew = -300.0
        slack.channel("ops", id="C2")
        slack.say("C1", "<@U1> before", user="U2", age=30)
        write(tmp_path, MAIN % slack.url, mentions=MENTIONS)
        async with running(tmp_path, clock, ENVIRON):
            asked = [slack.say("C2", "<@U1>", user="U2")]
            for _ in range(8):
                await clock.sleep(45)
                asked.append(slack.say("C1", "<@U1>", user="U2"))
            await clock.sleep(300)
        assert answers(slack) == sorted(asked)
