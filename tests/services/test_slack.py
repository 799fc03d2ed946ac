"""What an event of Slack looks like, and which messages become one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from harken.errors import NeedsAttention
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes.slack import ME, MY_BOT, TOKEN, FakeSlack
from tests.services.reading import page, read
from tests.services.slack_world import SINCE, cursor_after_read, read_events, source


class TestAnEvent:
    async def test_a_message_becomes_an_event(self, host: Host, slack: FakeSlack):
        ts = slack.say("C1", "ship &amp; <@U2> &lt;now&gt; in <#C1|eng>", user="U1")
        (event,) = await read_events(source(host, slack))
        assert (event.subject, event.type, event.state) == (f"C1:{ts}", "slack.message", None)
        assert event.occurred_at == START
        assert event.data == {
            "id": f"C1:{ts}",
            "text": "ship & @Bob <now> in #eng",
            "raw_text": "ship &amp; <@U2> &lt;now&gt; in <#C1|eng>",
            "ts": ts,
            "permalink": f"https://acme.slack.com/archives/C1/p{ts.replace('.', '')}",
            "channel": {"id": "C1", "name": "eng"},
            "user": {"id": "U1", "name": "Jay"},
            "thread_ts": ts,
            "is_thread_reply": False,
            "mentions": [{"id": "U2", "name": "Bob"}],
            "is_bot": False,
            "is_dm": False,
        }

    async def test_a_reply_names_its_thread(self, host: Host, slack: FakeSlack):
        parent = slack.say("C1")
        ts = slack.say("C1", "yes", thread=parent)
        first, reply = await read_events(source(host, slack))
        assert (first.data["is_thread_reply"], reply.data["is_thread_reply"]) == (False, True)
        assert reply.data["thread_ts"] == first.data["thread_ts"] == parent
        assert reply.data["permalink"].endswith(f"/p{ts.replace('.', '')}?thread_ts={parent}&cid=C1")

    async def test_the_time_is_exact_to_the_microsecond(self, host: Host, slack: FakeSlack):
        slack.channels["C1"].messages.clear()
        slack.say("C1")
        ts = slack.say("C1")
        assert ts.endswith(".000001")
        assert (await read_events(source(host, slack)))[-1].occurred_at == START + timedelta(microseconds=1)

    async def test_somebody_unknown_is_called_by_the_id(self, host: Host, slack: FakeSlack):
        slack.say("C1", "hello <@U404>", user="U404")
        (event,) = await read_events(source(host, slack))
        assert (event.data["user"]["name"], event.data["text"]) == ("U404", "hello @U404")

    async def test_attachments_stand_in_for_a_text(self, host: Host, slack: FakeSlack):
        slack.say("C1", "", user="", bot_id="B7", username="alerts", attachments=[{"fallback": "disk full"}, 7])
        (event,) = await read_events(source(host, slack, exclude_bots=False, keywords="DISK"))
        assert event.data["text"] == "disk full"
        assert event.data["user"] == {"id": "B7", "name": "alerts"}
        assert event.data["is_bot"]

    async def test_names_are_asked_for_once(self, host: Host, slack: FakeSlack):
        reading = source(host, slack)
        slack.say("C1")
        cursor = await cursor_after_read(reading)
        slack.say("C1")
        await read(reading, cursor, SINCE)
        assert slack.calls("users.info") == 1

    async def test_more_strangers_than_one_page_has_time_for_are_all_named(self, host: Host, slack: FakeSlack):
        for number in range(100, 170):
            slack.say("C1", user=slack.user(f"guest{number}", id=f"U{number}"))
        found = await read_events(source(host, slack))
        assert [event.data["user"]["name"] for event in found] == [f"guest{number}" for number in range(100, 170)]

    async def test_the_token_is_in_no_event_and_no_cursor(self, host: Host, slack: FakeSlack):
        slack.say("C1")
        batches = await read(source(host, slack), None, SINCE)
        assert TOKEN not in str(batches)


class TestWhatIsWanted:
    async def test_a_mention_is_of_exactly_that_person(self, host: Host, slack: FakeSlack):
        slack.user("long", id="U12")
        wanted = [slack.say("C1", "<@U1> look"), slack.say("C1", "hey <@U1|jsmith>")]
        for text in (
            "<@U12> look",
            "@jsmith",
            "<!here> all",
            "<!subteam^S1|@U1>",
            "&lt;@U1&gt;",
            "U1",
            "<#U1>",
            "<@U1",
        ):
            slack.say("C1", text)
        assert [event.data["ts"] for event in await read_events(source(host, slack, mentions="@jsmith"))] == wanted

    @pytest.mark.parametrize("written", ["@jsmith", "jsmith", "@Jay", "@jane smith", "U1", "<@U1>", "@JSMITH"])
    async def test_a_person_is_found_by_handle_display_name_real_name_or_id(
        self, host: Host, slack: FakeSlack, written: str
    ):
        slack.say("C1", "<@U1> look")
        slack.say("C1", "<@U2> look")
        assert len(await read_events(source(host, slack, mentions=[written]))) == 1

    async def test_several_mentions_mean_any(self, host: Host, slack: FakeSlack):
        for text in ("<@U1>", "<@U2>", "<@U3>"):
            slack.say("C1", text)
        assert len(await read_events(source(host, slack, mentions=["@jsmith", "U2"]))) == 2

    async def test_people_on_later_pages_are_found_and_asked_for_once(self, host: Host, slack: FakeSlack):
        slack.cap = 1
        slack.say("C1", "<@U2>")
        reading = source(host, slack, mentions="@bob")
        cursor = await cursor_after_read(reading)
        asked = slack.calls("users.list")
        await read(reading, cursor, SINCE)
        assert asked == slack.calls("users.list") == 3

    async def test_a_name_of_two_people_needs_attention(self, host: Host, slack: FakeSlack):
        slack.user("other", id="U3", display_name="jay")
        with pytest.raises(NeedsAttention, match=r"@Jay is the name of 2 people \(U1, U3\)"):
            await read_events(source(host, slack, mentions="@Jay"))

    async def test_a_name_of_nobody_needs_attention(self, host: Host, slack: FakeSlack):
        slack.users["U2"]["deleted"] = True
        with pytest.raises(NeedsAttention, match="nobody is called @bob"):
            await read_events(source(host, slack, mentions="@bob"))

    async def test_keywords_are_any_of_them_in_upper_or_lower_case(self, host: Host, slack: FakeSlack):
        for text in ("DEPLOY done", "rollback &amp; go", "nothing"):
            slack.say("C1", text)
        found = await read_events(source(host, slack, keywords=["deploy", "back & GO"]))
        assert [event.data["text"] for event in found] == ["DEPLOY done", "rollback & go"]

    async def test_different_fields_must_all_fit(self, host: Host, slack: FakeSlack):
        for text in ("<@U1> deploy", "<@U1>", "deploy"):
            slack.say("C1", text)
        assert len(await read_events(source(host, slack, keywords="deploy", mentions="U1"))) == 1

    async def test_joins_topics_and_deletions_are_noise(self, host: Host, slack: FakeSlack):
        for subtype in ("channel_join", "channel_topic", "group_name", "bot_add", "tombstone", "pinned_item"):
            slack.say("C1", "<@U1> did something", subtype=subtype)
        slack.say("C1", hidden=True)
        assert await read_events(source(host, slack)) == []

    @pytest.mark.parametrize("subtype", ["me_message", "file_share", "something_new"])
    async def test_what_somebody_wrote_is_a_message_whatever_its_subtype(
        self, host: Host, slack: FakeSlack, subtype: str
    ):
        slack.say("C1", subtype=subtype)
        assert len(await read_events(source(host, slack))) == 1

    async def test_bots_are_left_out_unless_they_are_wanted(self, host: Host, slack: FakeSlack):
        slack.say("C1", bot_id="B7")
        slack.say("C1", subtype="bot_message", username="ci")
        assert await read_events(source(host, slack)) == []
        assert len(await read_events(source(host, slack, exclude_bots=False))) == 2

    async def test_its_own_posts_never_fire(self, host: Host, slack: FakeSlack):
        slack.say("C1", user=ME, bot_id=MY_BOT)
        slack.say("C1", user=ME)
        slack.say("C1", user="", bot_id=MY_BOT, subtype="bot_message")
        assert await read_events(source(host, slack, exclude_bots=False)) == []


ROOM = {"name": "eng", "start": "1767603600.000000"}
ODD: list[Any] = [
    {"rooms": {"C1": {"name": "eng", "start": ""}}},
    {"rooms": {"C1": ROOM}, "reading": {"since": "", "began": "1767603600.000000", "room": "C1"}},
    {"rooms": {"C1": {**ROOM, "at": "later"}}},
    {"listing": {"began": "x", "seen": "y", "page": ""}},
    {"naming": {"seen": "never", "page": ""}},
]


class TestChannels:
    async def test_without_names_every_channel_of_the_bot_is_read(self, host: Host, slack: FakeSlack):
        slack.channel("ops", id="C2", kind="private_channel")
        slack.channel("elsewhere", id="C3", member=False)
        for channel in ("C1", "C2", "C3"):
            slack.say(channel)
        assert [event.data["channel"]["name"] for event in await read_events(source(host, slack))] == ["eng", "ops"]

    @pytest.mark.parametrize("written", ["ops", "#ops", "C2", "#OPS"])
    async def test_a_channel_is_named_in_any_way(self, host: Host, slack: FakeSlack, written: str):
        slack.channel("ops", id="C2")
        slack.say("C1")
        slack.say("C2")
        assert [event.data["channel"]["id"] for event in await read_events(source(host, slack, channels=written))] == [
            "C2"
        ]

    async def test_channels_on_later_pages_are_found(self, host: Host, slack: FakeSlack):
        slack.cap = 2
        for number in range(2, 8):
            slack.channel(f"c{number}")
        slack.say("C7")
        assert len(await read_events(source(host, slack, channels=["c7", "eng"]))) == 1

    async def test_direct_messages_are_read_when_asked_for(self, host: Host, slack: FakeSlack):
        slack.dm("U2", id="D1")
        slack.channel("mpdm-a--b-1", id="G1", kind="mpim")
        for channel in ("C1", "D1", "G1"):
            slack.say(channel, user="U2")
        assert len(await read_events(source(host, slack))) == 1
        found = await read_events(source(host, slack, include_dms=True, channels=["eng"]))
        assert [event.data["channel"]["name"] for event in found] == ["eng", "@Bob", "mpdm-a--b-1"]
        assert [event.data["is_dm"] for event in found] == [False, True, True]

    async def test_a_channel_that_is_not_there_needs_attention(self, host: Host, slack: FakeSlack):
        with pytest.raises(NeedsAttention, match=r"no channel #nope that the bot can see.*/invite @harken"):
            await read_events(source(host, slack, channels=["eng", "#nope"]))

    async def test_a_channel_without_the_bot_needs_an_invitation_and_then_works(self, host: Host, slack: FakeSlack):
        slack.channel("ops", id="C2", member=False)
        slack.say("C2")
        reading = source(host, slack, channels=["ops"])
        listed = await page(reading, None, SINCE)
        with pytest.raises(NeedsAttention, match=r"not_in_channel.*not in #ops.*/invite @harken"):
            await reading.poll(listed.cursor, SINCE)
        slack.channels["C2"].member = True
        assert len(await read_events(reading, listed.cursor)) == 1

    async def test_a_listing_that_was_given_up_begins_anew(self, clock: HandClock, host: Host, slack: FakeSlack):
        slack.cap = 1
        eng = slack.channels.pop("C1")
        slack.channel("ops", id="C0", kind="private_channel", member=False)
        slack.channels["C1"] = eng
        slack.channel("misc", id="C2")
        reading = source(host, slack, channels="ops")
        begun = await page(reading, None, SINCE)
        with pytest.raises(NeedsAttention, match="no channel ops"):
            await reading.poll(begun.cursor, SINCE)
        slack.channels["C0"].member = True
        slack.say("C0")
        clock.advance(180)
        assert len(await read_events(reading, begun.cursor)) == 1

    async def test_a_bot_without_any_channel_needs_attention(self, host: Host, slack: FakeSlack):
        slack.channels["C1"].member = False
        with pytest.raises(NeedsAttention, match=r"the bot has no channel.*/invite"):
            await read_events(source(host, slack))

    async def test_a_channel_that_the_bot_left_does_not_stop_the_others(self, host: Host, slack: FakeSlack):
        slack.channel("ops", id="C2")
        reading = source(host, slack)
        cursor = await cursor_after_read(reading)
        slack.channels["C1"].member = False
        slack.say("C2")
        assert len(await read_events(reading, cursor)) == 1

    async def test_channels_are_listed_once_and_again_later(self, clock: HandClock, host: Host, slack: FakeSlack):
        reading = source(host, slack)
        cursor = await cursor_after_read(reading)
        cursor = (await read(reading, cursor, SINCE))[-1].cursor
        assert slack.calls("conversations.list") == 1
        clock.advance(700)
        await read(reading, cursor, SINCE)
        assert slack.calls("conversations.list") == 2

    @pytest.mark.parametrize("skew", [0.0, -3000.0])
    async def test_a_channel_that_the_bot_joins_is_read_from_the_last_listing_on(
        self, clock: HandClock, host: Host, slack: FakeSlack, skew: float
    ):
        slack.skew = skew
        slack.channel("ops", id="C2", member=False)
        reading = source(host, slack)
        clock.advance(3600)
        cursor = await cursor_after_read(reading)
        slack.say("C2", "before", age=1800)
        clock.advance(60)
        slack.say("C2", "after")
        slack.channels["C2"].member = True
        clock.advance(700)
        assert [event.data["text"] for event in await read_events(reading, cursor)] == ["after"]

    async def test_a_changed_query_keeps_the_positions(self, clock: HandClock, host: Host, slack: FakeSlack):
        slack.channel("ops", id="C2")
        slack.say("C1", "old")
        clock.advance(600)
        cursor = await cursor_after_read(source(host, slack, channels="eng"))
        clock.advance(3600)
        slack.say("C1", "new")
        slack.say("C2", "added")
        found = await read_events(source(host, slack, channels=["eng", "ops"]), cursor)
        assert [event.data["text"] for event in found] == ["new", "added"]

    @pytest.mark.parametrize(
        "cursor", [7, "x", [], {"rooms": 1}, {"rooms": {"C1": {"name": "eng", "start": "soon"}}}, {"reading": {}}, *ODD]
    )
    async def test_a_cursor_of_another_kind_starts_over(self, host: Host, slack: FakeSlack, cursor: Any):
        slack.say("C1")
        assert len(await read_events(source(host, slack), cursor)) == 1
