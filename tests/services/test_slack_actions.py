"""Answering in Slack, once; who the bot is; and whether what a query names is there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, RetryLater
from harken.services.slack import Query, plugin
from harken.services.slack.actions import PostParams, post
from harken.source import Call, Checked, Host
from harken.testing import HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.slack import TOKEN, FakeSlack
from tests.services.slack_world import account, read_events, source


async def say(host: Host, slack: FakeSlack, key: str = "run-1/answer", **params: Any) -> Any:
    made = PostParams.model_validate({"channel": "C1", "text": "on it", **params})
    return await post(Call(params=made, account=account(slack), host=host, idempotency_key=key))


def posted(slack: FakeSlack, channel: str = "C1") -> list[dict[str, Any]]:
    return [{**one.fields, "thread": one.thread} for one in slack.channels[channel].messages.values()]


async def run_check(host: Host, slack: FakeSlack, **query: Any) -> Checked:
    assert plugin.check is not None
    return await plugin.check(Query.model_validate(query), account(slack), host)


class TestPosting:
    @pytest.mark.parametrize("written", ["C1", "#eng", "eng"])
    async def test_a_message_is_posted_and_its_place_returned(self, host: Host, slack: FakeSlack, written: str):
        done = await say(host, slack, channel=written)
        (ts,) = slack.channels["C1"].messages
        link = f"https://acme.slack.com/archives/C1/p{ts.replace('.', '')}"
        assert done == {"channel": "C1", "ts": ts, "thread_ts": ts, "permalink": link, "repeated": False}
        assert posted(slack)[0]["text"] == "on it"

    async def test_the_name_of_a_channel_is_looked_up_once_in_ten_minutes(
        self, clock: HandClock, host: Host, slack: FakeSlack
    ):
        whose = account(slack)
        for number, later in enumerate((0.0, 60.0, 700.0)):
            clock.advance(later)
            made = PostParams(channel="#eng", text="on it")
            await post(Call(params=made, account=whose, host=host, idempotency_key=f"run-{number}"))
        assert sum(one.path.endswith("conversations.list") for one in slack.seen) == 2
        assert len(posted(slack)) == 3

    async def test_an_answer_goes_into_the_thread_of_an_event(self, host: Host, slack: FakeSlack):
        slack.say("C1", "<@U1> help")
        (event,) = await read_events(source(host, slack))
        await say(host, slack, thread_ts=event.data["thread_ts"])
        assert posted(slack)[1]["thread"] == event.data["ts"]

    async def test_an_empty_thread_is_none(self, host: Host, slack: FakeSlack):
        await say(host, slack, thread_ts="")
        assert posted(slack)[0]["thread"] == ""

    async def test_a_reply_may_be_shown_in_the_channel(self, host: Host, slack: FakeSlack):
        parent = slack.say("C1")
        await say(host, slack, thread_ts=parent, reply_broadcast=True)
        assert posted(slack)[1]["subtype"] == "thread_broadcast"

    @pytest.mark.parametrize("in_thread", [False, True])
    async def test_a_second_try_of_the_same_step_posts_nothing(self, host: Host, slack: FakeSlack, in_thread: bool):
        thread = {"thread_ts": slack.say("C1")} if in_thread else {}
        before = len(slack.channels["C1"].messages)
        first = await say(host, slack, **thread)
        again = await say(host, slack, **thread)
        assert (again["ts"], again["repeated"]) == (first["ts"], True)
        assert len(slack.channels["C1"].messages) == before + 1

    async def test_an_answer_that_was_lost_is_not_posted_again(self, clock: HandClock, host: Host, slack: FakeSlack):
        slack.cap = 50
        for _ in range(200):
            slack.say("C1")
        await say(host, slack)
        for _ in range(120):
            slack.say("C1")
        clock.advance(3600)
        assert (await say(host, slack))["repeated"]

    async def test_other_steps_and_runs_post_their_own(self, host: Host, slack: FakeSlack):
        await say(host, slack, key="run-1/answer")
        await say(host, slack, key="run-2/answer")
        assert len(posted(slack)) == 2

    @pytest.mark.parametrize("scope", ["channels:history", "users:read"])
    async def test_a_bot_that_may_not_read_can_still_post(self, host: Host, slack: FakeSlack, scope: str):
        slack.scopes.discard(scope)
        assert not (await say(host, slack))["repeated"]

    async def test_the_mark_tells_nothing_about_the_run(self, host: Host, slack: FakeSlack):
        await say(host, slack, key="secret-name/answer")
        assert "secret-name" not in str(posted(slack))

    async def test_a_stranger_cannot_call_everybody_through_us(self, host: Host, slack: FakeSlack):
        loud = "<!channel> <!here|here> <!subteam^S1|@team> <!subteam^S2> <@U1> <https://x.example|x>"
        blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "<!everyone>"}}]
        await say(host, slack, text=loud, blocks=blocks)
        (message,) = posted(slack)
        assert message["text"] == "@channel @here @team @S2 <@U1> <https://x.example|x>"
        assert message["blocks"][0]["text"]["text"] == "@everyone"

    @pytest.mark.parametrize("loud", ["<!here|<!here>>", "<!subteam^S1|<!channel>>", "<!group>", "<!here|a<!here>b>"])
    async def test_marks_within_marks_call_nobody_either(self, host: Host, slack: FakeSlack, loud: str):
        await say(host, slack, text=loud)
        assert "<!" not in posted(slack)[0]["text"]

    async def test_elements_that_call_everybody_become_text(self, host: Host, slack: FakeSlack):
        loud = [{"type": "broadcast", "range": "channel"}, {"type": "usergroup", "usergroup_id": "S1"}]
        await say(host, slack, blocks=[{"type": "rich_text", "elements": loud}])
        quiet = [{"type": "text", "text": "@channel"}, {"type": "text", "text": "@S1"}]
        assert posted(slack)[0]["blocks"] == [{"type": "rich_text", "elements": quiet}]

    async def test_calling_everybody_can_be_meant(self, host: Host, slack: FakeSlack):
        await say(host, slack, text="<!channel> fire", notify_all=True)
        assert posted(slack)[0]["text"] == "<!channel> fire"

    async def test_a_message_that_somebody_deleted_is_not_posted_again(self, host: Host, slack: FakeSlack):
        gone = msgspec.json.encode({"ok": False, "error": "duplicate_message_not_found"})
        slack.after = {2: lambda: slack.answers.append(Answer(body=gone))}
        done = await say(host, slack)
        assert (done["ts"], done["repeated"], posted(slack)) == ("", True, [])

    async def test_an_unknown_channel_needs_attention(self, host: Host, slack: FakeSlack):
        with pytest.raises(NeedsAttention, match=r"no channel #nope that the bot can see.*/invite @harken"):
            await say(host, slack, channel="#nope")

    async def test_a_channel_without_the_bot_needs_an_invitation(self, host: Host, slack: FakeSlack):
        slack.channels["C1"].member = False
        with pytest.raises(NeedsAttention, match=r"not_in_channel to chat\.postMessage.*not in #eng.*/invite @harken"):
            await say(host, slack, channel="#eng")

    async def test_a_scope_that_is_missing_is_named(self, host: Host, slack: FakeSlack):
        slack.scopes.discard("chat:write")
        with pytest.raises(NeedsAttention, match="chat:write"):
            await say(host, slack)

    async def test_too_many_posts_are_tried_later(self, host: Host, slack: FakeSlack):
        slack.limit("chat.postMessage", retry_after=3)
        with pytest.raises(RetryLater) as raised:
            await say(host, slack)
        assert (raised.value.reason, raised.value.after) == ("rate_limited", 3)
        assert not (await say(host, slack))["repeated"]

    @pytest.mark.parametrize(
        "params", [{"text": " "}, {"thread_ts": "now"}, {"thread_ts": 1700000000.0001}, {"channel": ""}, {"to": "C1"}]
    )
    def test_what_cannot_be_posted_is_refused(self, params: dict[str, Any]):
        with pytest.raises(ValidationError):
            PostParams.model_validate({"channel": "C1", "text": "x", **params})


class TestWhoami:
    async def test_it_tells_who_the_bot_is_and_what_it_may(self, host: Host, slack: FakeSlack):
        slack.scopes = {"users:read", "channels:read"}
        assert plugin.whoami is not None
        assert await plugin.whoami(account(slack), host) == {
            "id": "U0BOT",
            "name": "harken",
            "bot_id": "B0BOT",
            "team": "Acme",
            "team_id": "T1",
            "url": "https://acme.slack.com",
            "time_zone": "Europe/Berlin",
            "scopes": "channels:read,users:read",
        }

    async def test_it_works_with_few_scopes(self, host: Host, slack: FakeSlack):
        slack.scopes = {"chat:write"}
        assert plugin.whoami is not None
        assert (await plugin.whoami(account(slack), host))["scopes"] == "chat:write"

    async def test_a_revoked_token_needs_attention(self, host: Host, slack: FakeSlack):
        slack.revoked = "token_revoked"
        assert plugin.whoami is not None
        with pytest.raises(NeedsAttention, match="token_revoked") as raised:
            await plugin.whoami(account(slack), host)
        assert TOKEN not in str(raised.value)


class TestCheck:
    async def test_every_name_is_looked_up(self, host: Host, slack: FakeSlack):
        slack.cap = 1
        slack.dm("U2", id="D1")
        found = await run_check(
            host, slack, channels=["#eng", "C1", "D1"], mentions=["@jsmith", "U2"], include_dms=True
        )
        assert dict(found.found) == {
            "#eng": "#eng (C1)",
            "C1": "#eng (C1)",
            "D1": "D1 (D1)",
            "@jsmith": "Jay (U1)",
            "U2": "Bob (U2)",
        }
        assert list(found.unknown) == []

    async def test_what_is_wrong_is_said_in_a_sentence_each(self, host: Host, slack: FakeSlack):
        slack.channel("ops", id="C2", member=False)
        slack.user("jay", id="U3")
        wrong = await run_check(host, slack, channels=["#nope", "ops"], mentions=["@jay", "@ghost", "U999"])
        problems = "\n".join(wrong.unknown)
        assert len(wrong.unknown) == 5
        assert "no channel #nope" in problems
        assert "the bot is not in #ops (C2). Invite it there: /invite @harken" in problems
        assert "@jay is the name of 2 people (U1, U3)" in problems
        assert "nobody is called @ghost" in problems
        assert "no user U999" in problems

    async def test_an_empty_query_names_nothing_that_could_be_wrong(self, host: Host, slack: FakeSlack):
        found = await run_check(host, slack)
        assert (dict(found.found), list(found.unknown)) == ({}, [])

    @pytest.mark.parametrize("query", [{}, {"channels": "eng"}])
    @pytest.mark.parametrize("scope", ["channels:history", "users:read"])
    async def test_a_scope_that_reading_will_need_is_named_before_it_fails(
        self, host: Host, slack: FakeSlack, query: dict[str, Any], scope: str
    ):
        slack.scopes.discard(scope)
        (wrong,) = (await run_check(host, slack, **query)).unknown
        assert f"lacks the scope {scope}. Add it" in wrong

    async def test_scopes_of_channels_that_are_not_read_are_not_asked_for(self, host: Host, slack: FakeSlack):
        slack.channel("private", kind="private_channel")
        slack.scopes -= {"groups:history", "im:history", "mpim:history"}
        assert (await run_check(host, slack, channels="eng")).unknown == []
        assert "groups:history" in str((await run_check(host, slack, channels="private")).unknown)
