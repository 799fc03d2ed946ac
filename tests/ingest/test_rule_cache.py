"""What a process knows of a feed's rules without asking, and when that is out of date."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from harken.feed import FeedState, TriggerState
from harken.ingest.commit import RuleCache
from harken.store import Definitions, Listeners, Opened
from harken.testing import START
from tests.ingest.process import FEED, trigger

STATE = TriggerState(uid="u", name="t", epoch=0, start_line=START, created_at=START)


class ListenersStore:
    def __init__(self, revision: int) -> None:
        self.revision = revision
        self.asked = 0

    async def listeners(self, feed: str) -> Listeners:
        self.asked += 1
        return Listeners(revision=self.revision, feed=FEED, triggers=[(trigger(), STATE)])


def opened(revision: int, paused: str = "") -> Opened:
    feed = FeedState(name="inbox", revision=revision, created_at=START)
    return Opened(feeds={"inbox": feed}, triggers={"t": msgspec.structs.replace(STATE, paused=paused)})


def cache_at(revision: int) -> tuple[RuleCache, ListenersStore]:
    store: Any = ListenersStore(revision)
    return RuleCache(store), store


DEFINITIONS = Definitions(generation="g", feeds=(FEED,), triggers=(trigger(),), workflows={})


async def test_what_was_just_opened_is_not_asked_for() -> None:
    rule_cache, store = cache_at(3)
    rule_cache.adopt(DEFINITIONS, opened(3, paused="by hand"))
    rules = await rule_cache.rules("inbox")
    assert (rules.revision, [rule.name for rule in rules.rules], rules.resting, store.asked) == (3, ["t"], True, 0)


async def test_what_was_learnt_meanwhile_is_newer_than_what_was_opened() -> None:
    rule_cache, store = cache_at(4)
    await rule_cache.learn("inbox")
    rule_cache.adopt(DEFINITIONS, opened(3, paused="by hand"))
    rules = await rule_cache.rules("inbox")
    assert (rules.revision, rules.resting, store.asked) == (4, False, 1)


async def test_start_lines_in_the_future_are_told_until_they_were_moved() -> None:
    rule_cache, _ = cache_at(4)
    assert rule_cache.start_lines_after(START) == {}
    ahead = START + timedelta(days=3)
    states = {"t": msgspec.structs.replace(STATE, start_line=ahead)}
    rule_cache.adopt(DEFINITIONS, msgspec.structs.replace(opened(3), triggers=states))
    assert rule_cache.start_lines_after(START) == {"t": ahead}
    assert rule_cache.start_lines_after(START) == {"t": ahead}
    assert rule_cache.start_lines_after(ahead) == {}
    # the store has moved it
    await rule_cache.learn("inbox")
    assert rule_cache.start_lines_after(START) == {}
    assert rule_cache.start_lines_after(START - timedelta(seconds=1)) == {"t": START}


async def test_an_answer_from_before_the_opening_is_not_believed() -> None:
    rule_cache, _ = cache_at(2)
    rule_cache.adopt(DEFINITIONS, opened(3))
    assert (await rule_cache.learn("inbox")).revision == 3


async def test_rules_of_an_older_revision_or_a_feed_that_is_gone_are_forgotten() -> None:
    rule_cache, _ = cache_at(2)
    await rule_cache.learn("inbox")
    rule_cache.adopt(DEFINITIONS, opened(3))
    assert rule_cache.get("inbox") is None
    rule_cache.adopt(Definitions(generation="h", feeds=(), triggers=(), workflows={}), Opened(feeds={}, triggers={}))
    assert rule_cache.get("inbox") is None
