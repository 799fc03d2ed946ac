"""The scenario of `harken demo slack`: people and bots talk in channels and old threads, and some mention me."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from aiohttp import web

from harken.clock import Clock
from harken.demo.scenario import Scenario
from harken.demo.scenarios.vendor_scenario_base import Busy, Truth, VendorScenario
from harken.event import Recorded
from harken.testing.fakes.slack import TOKEN, FakeSlack

__all__ = ["Workspace", "make"]

MENTIONS, OUTAGES = "mentions", "outages"
CHANNELS = ("engineering", "oncall", "incidents")
ALERTS, ELSEWHERE = "alerts", "random"
ME, OTHERS, ALARM = "UJSMITH", ("UANNA", "UBOB"), "UALARM"
ASKED = ("do you know this one?", "can you review it?", "is that yours?", "who is on call?")
TROUBLES = ("Checkout is DOWN", "rollback of search began", "outage in the second region", "all is well again")
PAGE, THREADS = 40, 25


class Account(Busy, FakeSlack):
    """The fake Slack. Messages are permanent, so they need not wait until a read has shown them."""

    def is_read(self, request: web.Request) -> bool:
        # slack.post reads as well: it looks for its own mark before it writes
        reads = request.path in ("/conversations.history", "/conversations.replies")
        return reads and "include_all_metadata" not in request.query


class Workspace:
    """Five channels that the bot is a member of; the query names four of them."""

    account: Mapping[str, str] = {"token": TOKEN}

    def __init__(self, clock: Clock, random: Random) -> None:
        self._random = random
        self.truth = Truth(clock, MENTIONS, OUTAGES)
        self.fake = Account(clock, cap=PAGE)
        self.fake.user("jsmith", id=ME, display_name="Jo")
        self.fake.user("alarm", id=ALARM, bot=True)
        for name in OTHERS:
            self.fake.user(name[1:].lower(), id=name)
        for name in (*CHANNELS, ALERTS, ELSEWHERE):
            self.fake.channel(name, id=_id(name))
            for hours in range(10, 1, -1):
                self.fake.say(_id(name), f"<@{ME}> an outage, {hours} hours ago", user="UBOB", age=3600.0 * hours)

    def moment(self) -> None:
        for _ in range(self._random.choice((0, 1, 1, 2))):
            self._chat()
        if self._random.random() < 0.6:
            self._ask()
        if self._random.random() < 0.5:
            self._alert()

    def _chat(self) -> None:
        """Messages to others, from bots or in other channels: none of them fires."""
        channel, user = self._random.choice((*CHANNELS, ELSEWHERE)), self._random.choice(OTHERS)
        self.fake.say(_id(channel), "<@UBOB> lunch?", user=user)
        self.fake.say(_id(channel), f"<@{ME}> your build is done", user=ALARM, bot_id="BALARM", subtype="bot_message")
        self.fake.say(_id(ELSEWHERE), f"<@{ME}> an outage, but elsewhere", user=user)

    def _ask(self) -> None:
        """Somebody mentions me in a channel or in an old thread; some messages are shown late."""
        place = _id(self._random.choice(CHANNELS))
        thread = self._random.choice(["", self._random.choice(self._parents(place))])
        late = self._lateness()
        text, user = f"<@{ME}> {self._random.choice(ASKED)}", self._random.choice(OTHERS)
        ts = self.fake.say(place, text, user=user, thread=thread, late=late)
        if not late:
            self.fake.edit(place, ts, f"{text} (edited)")
        self.truth.expect(MENTIONS, f"{place}:{ts}", ts)

    def _alert(self) -> None:
        place, text = _id(ALERTS), self._random.choice(TROUBLES)
        ts = self.fake.say(place, text, user=ALARM, bot_id="BALARM", subtype="bot_message", late=self._lateness())
        if text != TROUBLES[-1]:
            self.truth.expect(OUTAGES, f"{place}:{ts}", ts)

    def _lateness(self) -> float:
        late = self._random.choice((0.0, 0.0, 2.0))
        self.truth.late += late > 0
        return late

    def _parents(self, place: str) -> list[str]:
        # as far back as one page reaches: Harken looks at older threads every five minutes only
        messages = sorted(self.fake.channels[place].messages.values(), key=lambda one: one.micros)
        return [one.ts for one in messages if not one.thread][-THREADS:]

    def occurrence(self, event: Recorded) -> str:
        return event.subject

    def written_back(self) -> Iterable[tuple[str, str]]:
        for channel in self.fake.channels.values():
            for message in channel.messages.values():
                if "metadata" in message.fields:
                    yield message.fields["metadata"]["event_payload"]["mark"], message.ts


def _id(channel: str) -> str:
    return f"C{channel.upper()}"


def make(clock: Clock, random: Random) -> Scenario:
    return VendorScenario("slack", Workspace(clock, random), clock)
