"""Moving a trigger to another time: shown first, then done exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from harken.config.settings import Retention, Settings
from harken.errors import Malformed, Refused
from harken.event import Event, Outcome
from harken.feed import Feed
from harken.ingest.partly_committed_page import stored_position, stored_seek
from harken.operate.engine_protocol import Shown
from harken.operate.output_rows import plain
from harken.operate.principal import Principal
from harken.operate.seek import UNSEEKABLE
from harken.services import registry
from harken.services.kafka import KafkaStream
from harken.services.nats import NatsStream
from harken.services.redis import RedisStream
from harken.source import Located
from tests.operate.operator_world import POLLED, TRIGGERS, Office, trigger


def shown(office: Office, key: str, outcome: Outcome = "fired", age: float = 60.0) -> Shown:
    at = office.clock.now() - timedelta(seconds=age)
    return Shown(key=key, subject=key, type="json.item", outcome=outcome, occurred_at=at)


async def test_a_preview_says_what_is_read_again_what_is_known_and_what_would_fire(office: Office) -> None:
    await office.shows(
        office.incident("EARLY", age=600), office.incident("QUIET", urgency="low", age=600), office.incident("NOW")
    )
    office.engine.shown_since = (
        shown(office, "NOW", "duplicate"),
        shown(office, "EARLY", "duplicate", age=600),
        shown(office, "MISSED"),
        shown(office, "OLD", age=7200),
    )
    before = (await office.ask("triggers.show", name="oncall"))["start_line"]
    answer = await office.ask("triggers.seek", name="oncall", to="30m")
    assert (answer["read_again"], answer["would_fire"], answer["known"], answer["direction"]) == (4, 2, 1, "back")
    assert {row["key"]: row["outcome"] for row in answer["items"]} == {
        "EARLY": "fired",
        "MISSED": "fired",
        "NOW": "duplicate",
        "QUIET": "filtered",
    }
    assert (answer["done"], answer["from"]) == (False, before)
    assert (await office.ask("triggers.show", name="oncall"))["start_line"] == before


async def test_with_its_token_exactly_that_is_done(office: Office) -> None:
    await office.shows(office.incident("A"))
    looked = await office.ask("triggers.seek", name="oncall", to="30m")
    office.clock.advance(45)
    done = await office.ask("triggers.seek", name="oncall", to="30m", token=looked["token"])
    assert (done["done"], done["to"]) == (True, looked["to"])
    state = next(one for one in await office.store.triggers() if one.name == "oncall")
    assert (state.backfilling, state.start_line.isoformat()[:19]) == (True, looked["to"][:19])
    assert (await office.store.state(POLLED.name)).next_due == office.clock.now()
    assert office.engine.nudges > 0
    with pytest.raises(Refused, match="something has changed"):
        await office.ask("triggers.seek", name="oncall", to="30m", token=looked["token"])


async def test_forward_nothing_is_read_again(office: Office) -> None:
    await office.shows(office.incident("A"))
    office.clock.advance(600)
    looked = await office.ask("triggers.seek", name="oncall", to="1m")
    assert (looked["direction"], looked["read_again"]) == ("forward", 0)
    await office.ask("triggers.seek", name="oncall", to=looked["to"], token=looked["token"])
    state = next(one for one in await office.store.triggers() if one.name == "oncall")
    assert (state.backfilling, state.start_line) == (False, office.clock.now() - timedelta(seconds=60))


async def test_where_there_is_no_past_to_read_it_is_refused_with_the_reason(office: Office) -> None:
    await office.shows(office.incident("A"))
    with pytest.raises(Refused, match="was sent to it"):
        await office.ask("triggers.seek", name="deploys", to="1h")
    with pytest.raises(Refused, match="into the future"):
        await office.ask("triggers.seek", name="oncall", to="2100-01-01T00:00:00Z")
    with pytest.raises(Malformed, match="not the token"):
        await office.ask("triggers.seek", name="oncall", to="1h", token="nonsense")
    office.engine.shown_since = (Shown(key="X", subject="X", type="json.item", outcome="fired"),)
    with pytest.raises(Refused, match="have no time") as undated:
        await office.ask("triggers.seek", name="oncall", to="1h")
    assert undated.value.fix == "To begin anew, with what comes from now on: harken triggers reset oncall --cursor"
    short = Settings(retention=Retention.model_validate({"runs": "1h"}))
    office.operator.loaded = replace(office.loaded, settings=short)
    with pytest.raises(Refused, match="not known what has fired"):
        await office.ask("triggers.seek", name="oncall", to="2h")


LOG = Feed(name="orders", kind="kafka", integration="broker", way="stream", identity="change", first="all")


async def follow(office: Office, *names: str, read: Sequence[Event] = (), **changes: Any) -> None:
    """The office follows a stream for these triggers; it has read these messages, and its position is known."""
    feed = msgspec.structs.replace(LOG, **changes)
    triggers = tuple(trigger(name, feed=feed.name) for name in names)
    office.loaded = replace(office.loaded, feeds=(*office.loaded.feeds, feed), triggers=(*TRIGGERS, *triggers))
    office.operator.loaded = office.loaded
    await office.store.open(office.loaded.definitions(starting=False))
    await office.shows(*read, feed=feed.name, cursor={"offsets": {"0": 40}})


async def test_a_stream_is_moved_by_who_follows_it_which_finds_the_time_in_its_cursor(office: Office) -> None:
    await follow(office, "ship", "bill", read=[office.incident("A", age=60)])
    office.engine.places["orders"] = Located(cursor={"offsets": {"0": 7}}, messages=50, again=33, oldest=True)
    looked = await office.ask("triggers.seek", name="ship", to="30m")
    counts = (looked["messages"], looked["read_again"], looked["skipped"], looked["known"], looked["direction"])
    assert counts == (50, 33, 0, 1, "back")
    assert looked["notes"] == [
        "The stream has one position: bill moves with it",
        "The broker has nothing older than this place",
    ]
    assert (await office.store.state("orders")).cursor == {"offsets": {"0": 40}}
    done = await office.ask("triggers.seek", name="ship", to=looked["to"], token=looked["token"])
    stored = (await office.store.state("orders")).cursor
    assert (done["done"], plain(stored_seek(stored)), stored_position(stored)[0]) == (
        True,
        looked["to"],
        {"offsets": {"0": 40}},
    )
    assert office.engine.nudges > 0


async def test_forward_a_stream_passes_over_what_waits(office: Office) -> None:
    await follow(office, "ship")
    office.engine.places["orders"] = Located(cursor={"offsets": {"0": 90}}, messages=10, skipped=50)
    looked = await office.ask("triggers.seek", name="ship", to="1m")
    assert (looked["direction"], looked["skipped"], looked["would_fire"]) == ("forward", 50, 0)
    assert "50 messages before that would never be" in looked["sentence"]
    await office.ask("triggers.seek", name="ship", to=looked["to"], token=looked["token"])
    state = next(one for one in await office.store.triggers() if one.name == "ship")
    assert (state.backfilling, stored_seek((await office.store.state("orders")).cursor) is not None) == (False, True)


@pytest.mark.parametrize(
    ("kind", "reason", "fix"),
    [
        ("sqs", "deletes what was acknowledged", "events replay"),
        ("rabbitmq", "deletes what was acknowledged", "events replay"),
        ("mqtt", "keeps nothing", "events replay"),
        ("pubsub", "position of a subscription is the broker's", "gcloud pubsub subscriptions seek"),
        ("sse", "has ids and no times", "events replay"),
        ("websocket", "has no history", "events replay"),
        ("another", "has no such positions", "events replay"),
    ],
)
async def test_where_the_broker_has_the_position_it_is_refused_with_what_helps(
    office: Office, kind: str, reason: str, fix: str
) -> None:
    await follow(office, "ship", kind=kind)
    with pytest.raises(Refused, match=reason) as refused:
        await office.ask("triggers.seek", name="ship", to="30m")
    assert fix in refused.value.fix


async def test_the_stream_of_others_is_not_moved_by_a_token_for_one_trigger(office: Office) -> None:
    await follow(office, "ship", "bill")
    office.engine.places["orders"] = Located(cursor={}, messages=1, again=1)
    mine = Principal(name="ci", role="operator", triggers=("ship",))
    with pytest.raises(Refused, match="triggers of others"):
        await office.operator.acting_as(mine).call("triggers.seek", name="ship", to="30m")


def test_every_stream_is_either_read_from_a_time_or_says_why_not() -> None:
    streams = {kind for kind, found in registry().items() if found.stream is not None}
    seekable = {"kafka": KafkaStream, "nats": NatsStream, "redis": RedisStream}
    assert all(hasattr(made, "locate") for made in seekable.values())
    assert streams == seekable.keys() | UNSEEKABLE.keys()
