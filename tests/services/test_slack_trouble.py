"""What Slack answers when it does not answer, and what people write that cannot be meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from harken.config.loader import load
from harken.errors import NeedsAttention, RetryLater
from harken.services import registry
from harken.services.slack import Account, Query, cursor, plugin
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.slack import TOKEN, FakeSlack
from tests.services.reading import page, read, subjects
from tests.services.slack_world import SINCE, cursor_after_read, read_events, source


class TestTrouble:
    @pytest.mark.parametrize("code", ["invalid_auth", "token_revoked", "account_inactive", "not_authed"])
    async def test_a_token_that_is_not_accepted_needs_attention(self, host: Host, slack: FakeSlack, code: str):
        slack.revoked = code
        with pytest.raises(NeedsAttention, match=rf"{code} .*harken integrations slack configure") as raised:
            await read_events(source(host, slack))
        assert TOKEN not in str(raised.value)

    @pytest.mark.parametrize("scope", ["channels:history", "channels:read", "users:read"])
    async def test_a_scope_that_is_missing_is_named(self, host: Host, slack: FakeSlack, scope: str):
        slack.say("C1")
        slack.scopes.discard(scope)
        with pytest.raises(NeedsAttention, match=f"lacks the scope {scope}"):
            await read_events(source(host, slack))

    @pytest.mark.parametrize("quietly", [False, True])
    @pytest.mark.parametrize("method", ["auth.test", "conversations.list", "conversations.history", "users.info"])
    async def test_too_many_calls_of_one_method_lose_nothing(
        self, host: Host, slack: FakeSlack, method: str, quietly: bool
    ):
        slack.say("C1")
        slack.limit(method, retry_after=17, quietly=quietly)
        reading = source(host, slack)
        batches = []
        with pytest.raises(RetryLater) as raised:
            batches.append(await page(reading, None, SINCE))
            batches.append(await page(reading, batches[-1].cursor, SINCE))
        assert (raised.value.reason, raised.value.after) == ("rate_limited", 17)
        assert len(await read_events(reading, batches[-1].cursor if batches else None)) == 1

    async def test_too_many_calls_in_the_middle_of_threads_lose_nothing(self, host: Host, slack: FakeSlack):
        parents = [slack.say("C1") for _ in range(3)]
        replies = {f"C1:{slack.say('C1', thread=parent)}" for parent in parents}
        slack.after = {4: lambda: slack.limit("conversations.replies")}
        reading, batches = source(host, slack), [await page(source(host, slack), None, SINCE)]
        with pytest.raises(RetryLater):
            while True:
                batches.append(await page(reading, batches[-1].cursor, SINCE))
        batches += await read(reading, batches[-1].cursor, SINCE)
        assert replies <= set(subjects(batches))

    async def test_an_unknown_error_is_told_by_its_code(self, host: Host, slack: FakeSlack):
        slack.revoked = "something_new"
        with pytest.raises(RetryLater, match="something_new"):
            await read_events(source(host, slack))

    async def test_an_error_that_is_no_code_is_not_repeated(self, host: Host, slack: FakeSlack):
        slack.revoked = f"bad token {TOKEN}"
        with pytest.raises(RetryLater) as raised:
            await read_events(source(host, slack))
        assert TOKEN not in str(raised.value)

    @pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"ok": "yes"}', b'{"ok": true}', b"null"])
    async def test_an_answer_of_another_kind_is_tried_later(self, host: Host, slack: FakeSlack, body: bytes):
        reading = source(host, slack)
        await cursor_after_read(reading)
        slack.answers = [Answer(body=body)]
        with pytest.raises(RetryLater):
            await read_events(reading)

    async def test_a_503_is_tried_later(self, host: Host, slack: FakeSlack):
        slack.answers = [Answer(status=503, headers={"Retry-After": "5"})]
        with pytest.raises(RetryLater) as raised:
            await read_events(source(host, slack))
        assert raised.value.after == 5

    async def test_a_page_that_names_itself_as_the_next_is_a_failure(self, host: Host, slack: FakeSlack):
        slack.cap = 1
        slack.channel("ops", id="C2")
        reading = source(host, slack)
        first = await page(reading, None, SINCE)
        again = {"ok": True, "channels": [], "response_metadata": {"next_cursor": "at:1"}}
        slack.answers = [Answer(body=msgspec.json.encode(again))]
        with pytest.raises(RetryLater, match=r"same page of conversations\.list"):
            await reading.poll(first.cursor, SINCE)

    async def test_empty_pages_are_passed(self, host: Host, slack: FakeSlack):
        slack.say("C1")
        reading = source(host, slack)
        listed = await page(reading, None, SINCE)
        empty = {"ok": True, "messages": [], "response_metadata": {"next_cursor": "next_ts:0.000000"}}
        slack.answers = [Answer(body=msgspec.json.encode(empty))]
        assert len(await read_events(reading, listed.cursor)) == 1


HOSTILE: list[Any] = [
    None,
    7,
    {},
    {"ts": None, "text": None},
    {"ts": 1767603600.0001, "text": 9, "user": 5},
    {"ts": "1767603600", "text": ["x"], "user": {"id": "U1"}, "thread_ts": 4},
    {"ts": "99999999999999.000000", "subtype": 3, "bot_id": None, "attachments": "no", "reply_count": "many"},
    {"ts": "1767603600.000002", "thread_ts": "1767603600.000002", "reply_count": 2, "latest_reply": 7},
]


class TestHostileMessages:
    @pytest.mark.parametrize("broken", HOSTILE)
    async def test_a_broken_message_is_told_and_hides_no_other(self, host: Host, slack: FakeSlack, broken: Any):
        reading = source(host, slack)
        listed = await page(reading, None, SINCE)
        good = {"ts": "1767603601.000001", "text": "good", "user": "U1", "future": {"field": [1]}}
        slack.answers = [Answer(body=msgspec.json.encode({"ok": True, "messages": [good, broken]}))]
        (told_broken, told_good) = (await page(reading, listed.cursor, SINCE)).events
        assert told_good.data["text"] == "good"
        assert told_broken.subject.startswith("C1:")
        assert msgspec.json.decode(told_broken.payload())["channel"]["id"] == "C1"

    async def test_a_broken_message_keeps_its_name(self, host: Host, slack: FakeSlack):
        names = set()
        for _ in range(2):
            reading = source(host, slack)
            listed = await page(reading, None, SINCE)
            slack.answers = [Answer(body=msgspec.json.encode({"ok": True, "messages": [{"text": "x"}]}))]
            names.add((await page(reading, listed.cursor, SINCE)).events[0].subject)
        assert len(names) == 1

    async def test_a_message_from_the_future_does_not_move_the_position_ahead(
        self, clock: HandClock, host: Host, slack: FakeSlack
    ):
        slack.say("C1", age=-3 * 3600)
        reading = source(host, slack)
        cursor = await cursor_after_read(reading)
        clock.advance(600)
        ts = slack.say("C1")
        assert f"C1:{ts}" in subjects(await read(reading, cursor, SINCE))

    async def test_without_a_date_the_position_is_that_of_the_newest_message(
        self, clock: HandClock, host: Host, slack: FakeSlack
    ):
        slack.dates = False
        reading = source(host, slack)
        ts = slack.say("C1")
        clock.advance(900)
        cursor = await cursor_after_read(reading)
        assert micros_between(cursor["rooms"]["C1"]["at"], ts) <= 900 * 1_000_000

    async def test_marks_of_marks_are_not_decoded_twice(self, host: Host, slack: FakeSlack):
        slack.say("C1", "&amp;lt;@U1&amp;gt; <https://x.example/?a=1&amp;b=2|the &lt;page&gt;> <!date^1^{date}|today>")
        (event,) = await read_events(source(host, slack))
        assert event.data["text"] == "&lt;@U1&gt; the <page> (https://x.example/?a=1&b=2) today"


def micros_between(one: str, other: str) -> int:
    return abs(int(one.replace(".", "")) - int(other.replace(".", "")))


class TestWhatIsWritten:
    @pytest.mark.parametrize(
        ("token", "why"),
        [
            ("xoxp-1", "user token"),
            ("xoxb-1\r\nX-Evil: xoxp-1", "no Slack bot token"),
            ("xoxa-2", "legacy workspace token"),
            ("xapp-1", "app-level token"),
            ("xoxe.xoxb-1", "rotating token"),
            ("Bearer xoxb-1", "no Slack bot token"),
            ("", "no Slack bot token"),
        ],
    )
    def test_only_the_token_of_a_bot_is_accepted(self, token: str, why: str):
        with pytest.raises(ValidationError, match=rf"{why}.*xoxb-") as raised:
            Account.model_validate({"token": token})
        assert "xoxp-1" not in str(raised.value)

    @pytest.mark.parametrize(
        ("main", "environ"),
        [
            ("integrations:\n  slack: {kind: slack, token: xoxp-1-person}\n", {}),
            ("", {"SLACK_BOT_TOKEN": "xoxp-1-person"}),
        ],
    )
    def test_the_configuration_refuses_it_with_the_reason(self, tmp_path: Path, main: str, environ: dict[str, str]):
        (tmp_path / "workflows").mkdir()
        (tmp_path / "harken.yaml").write_text(main)
        trigger = "name: all\ntrigger: {poll: {integration: slack, query: {channels: eng}}}\n"
        (tmp_path / "workflows" / "all.yaml").write_text(f"{trigger}steps: [{{action: transform, set: {{a: b}}}}]\n")
        findings = "\n".join(map(str, load(tmp_path, plugins=registry(), environ=environ).findings))
        assert "a user token (xoxp-) acts as a person" in findings
        assert "begins with xoxb-" in findings
        assert "xoxp-1-person" not in findings

    def test_a_token_is_not_shown(self):
        assert "secret" not in repr(Account.model_validate({"token": " xoxb-secret\n"}))

    def test_a_plain_value_is_a_list_of_one(self):
        query = Query.model_validate({"mentions": "@a", "channels": "eng", "keywords": "x"})
        assert (query.mentions, query.channels, query.keywords) == (["@a"], ["eng"], ["x"])

    @pytest.mark.parametrize(
        "query", [{"mentions": "@here"}, {"mentions": "@"}, {"channels": [""]}, {"keywords": [" "]}, {"mention": "@a"}]
    )
    def test_what_cannot_be_meant_is_refused(self, query: dict[str, Any]):
        with pytest.raises(ValidationError):
            Query.model_validate(query)

    def test_the_overlap_is_the_lookback_of_the_plugin(self):
        assert plugin.lookback_seconds == cursor.OVERLAP
