"""`trigger: stream`, and feeds that are followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from harken.config.feed_sources import source_for
from harken.config.loaded import Loaded
from harken.feed import INTERNAL, Feed
from harken.source import Plugin
from tests.config.makers import PLUGINS, Built, Forbid, lines, read, workflow


class BrokerAccount(Forbid):
    password: SecretStr


class TopicQuery(Forbid):
    topic: str
    token: SecretStr | None = None


class Followed(Built):
    silence_seconds = 30.0

    def stream(self, cursor: Any) -> Any: ...


BROKER = Plugin(
    kind="broker", account=BrokerAccount, stream_query=TopicQuery, stream=Followed, identity="change", first="all"
)
SERVICES = {**PLUGINS, "broker": BROKER}
MAIN = "integrations: {broker: {kind: broker, password: hunter2-hunter2}}\n"


def loaded_with(directory: Path, trigger: str, main: str = MAIN) -> Loaded:
    return read(directory, {"harken.yaml": main, "workflows/w.yaml": workflow("w", trigger)}, plugins=SERVICES)


def followed(loaded: Loaded) -> Feed:
    [feed] = [feed for feed in loaded.feeds if feed.name != INTERNAL]
    return feed


def test_a_stream_is_followed_from_where_its_feed_begins(tmp_path: Path) -> None:
    loaded = loaded_with(tmp_path, "stream: {integration: broker, query: {topic: orders}}")
    feed = followed(loaded)
    assert (feed.way, feed.kind, feed.first, feed.identity) == ("stream", "broker", "all", "change")
    assert (feed.label, feed.query["topic"], feed.schedule) == ("w", "orders", None)
    assert feed.memory_seconds >= 80 * 3_600
    source: Any = source_for(feed, loaded, SERVICES, _host())
    assert isinstance(source, Followed)
    assert (source.query.topic, source.account.password.get_secret_value()) == ("orders", "hunter2-hunter2")


def test_two_triggers_of_one_topic_share_its_feed(tmp_path: Path) -> None:
    stream = "stream: {integration: broker, query: {topic: orders}}"
    files = {"harken.yaml": MAIN, "workflows/a.yaml": workflow("a", stream), "workflows/b.yaml": workflow("b", stream)}
    loaded = read(tmp_path, files, plugins=SERVICES)
    assert {trigger.feed for trigger in loaded.triggers} == {followed(loaded).name}


def test_a_feed_that_can_only_be_followed_is_a_stream(tmp_path: Path) -> None:
    main = MAIN + "feeds: {orders: {integration: broker, query: {topic: orders}}}\n"
    loaded = loaded_with(tmp_path, "feed: orders", main)
    assert (followed(loaded).name, followed(loaded).way, loaded.triggers[0].feed) == ("orders", "stream", "orders")


def test_a_secret_may_stand_in_what_is_sent_to_the_broker(tmp_path: Path) -> None:
    stream = "stream: {integration: broker, query: {topic: orders, token: '${TOPIC_TOKEN}'}}"
    files = {"harken.yaml": MAIN, "workflows/w.yaml": workflow("w", stream)}
    loaded = read(tmp_path, files, plugins=SERVICES, environ={"TOPIC_TOKEN": "s3cret-of-the-topic"})
    assert not loaded.findings
    assert "s3cret" not in str(followed(loaded).query)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("stream: {integration: broker}", "trigger.stream.query.topic: is missing"),
        ("stream: {integration: broker, query: {topc: x}}", "trigger.stream.query.topc: there is no such setting"),
        ("stream: {integration: broker, query: {topic: x}, interval: 5m}", "trigger.stream.interval"),
        ("stream: {integration: json, query: {url: 'https://x'}}", "json cannot be followed as a stream. Use a poll"),
        ("poll: {integration: broker, query: {topic: x}}", "broker cannot be polled. Use a stream trigger"),
        ("stream: {integration: brokr}", "there is no integration 'brokr'. Did you mean broker?"),
        ("stream: {}", "trigger.stream.integration: is missing"),
    ],
)
def test_streams_that_do_not_fit_are_refused(tmp_path: Path, written: str, message: str) -> None:
    assert message in "\n".join(lines(loaded_with(tmp_path, written).findings))


def _host() -> Any:
    from random import Random

    from harken.source import Host
    from harken.testing import HandClock

    nothing: Any = None
    return Host(http=nothing, clock=HandClock(), random=Random(1))
