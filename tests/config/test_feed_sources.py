from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from harken.clock import SystemClock
from harken.config.feed_sources import credential_of, source_for
from harken.errors import Misconfigured, NotFound
from harken.source import Host
from tests.config.makers import PLUGINS, poll, read, workflow

HOST = Host(http=cast(Any, None), clock=SystemClock(), random=Random(1))


def built(directory: Path, trigger: str, main: str = "", **more: Any) -> Any:
    loaded = read(directory, {"harken.yaml": main, "workflows/w.yaml": workflow("w", trigger)}, **more)
    feed = next(feed for feed in loaded.feeds if feed.name == loaded.triggers[0].feed)
    return source_for(feed, loaded, PLUGINS, HOST)


def test_a_source_gets_its_query_with_secrets_and_no_account_where_none_is_needed(tmp_path: Path) -> None:
    source = built(tmp_path, poll("https://x.example/?k=${A_KEY}"), environ={"A_KEY": "hunter2"})
    assert (source.query.url, source.account, source.host.allow_private) == (
        "https://x.example/?k=hunter2",
        None,
        False,
    )


def test_a_source_gets_its_account_and_what_that_allows(tmp_path: Path) -> None:
    main = "{kind: pagerduty, token: tok-en, base_url: 'http://10.0.0.1', allow_private_networks: true}"
    source = built(tmp_path, "poll: {integration: pd, query: {user_id: x}}", f"integrations: {{pd: {main}}}")
    assert source.account.token.get_secret_value() == "tok-en"
    assert (source.account.base_url, source.host.allow_private) == ("http://10.0.0.1", True)


def test_a_query_may_allow_private_networks_for_itself(tmp_path: Path) -> None:
    trigger = "poll: {integration: json, query: {url: 'http://10.0.0.1', allow_private_networks: true}}"
    assert built(tmp_path, trigger).host.allow_private


def test_a_webhook_gets_its_secret(tmp_path: Path) -> None:
    assert built(tmp_path, "webhook: {secret: s3cret}").query.secret.get_secret_value() == "s3cret"


def test_a_feed_that_is_not_of_this_configuration_is_built_from_its_query(tmp_path: Path) -> None:
    loaded = read(tmp_path, {"workflows/w.yaml": workflow("w", poll())})
    feed = next(feed for feed in loaded.feeds if feed.kind == "json")
    source: Any = source_for(feed, replace(loaded, queries={}), PLUGINS, HOST)
    assert source.query.url == "https://api.example/items"
    with pytest.raises(Misconfigured, match="does not fit json at url"):
        source_for(type(feed)(name="x", kind="json", integration="json"), loaded, PLUGINS, HOST)


def test_nothing_is_read_for_internal_feeds(tmp_path: Path) -> None:
    loaded = read(tmp_path, {})
    with pytest.raises(NotFound):
        source_for(loaded.feeds[0], loaded, PLUGINS, HOST)


def test_a_quota_belongs_to_the_credential_or_else_to_the_host(tmp_path: Path) -> None:
    files = {
        "harken.yaml": """
            integrations:
              one: {kind: pagerduty, token: '${T_TOKEN}'}
              two: {kind: pagerduty, token: '${T_TOKEN}'}
            """,
        "workflows/a.yaml": workflow("a", poll("https://x.example/1")),
        "workflows/b.yaml": workflow("b", poll("https://x.example/2")),
        "workflows/c.yaml": workflow("c", "poll: {integration: one, query: {user_id: x}}"),
        "workflows/d.yaml": workflow("d", "poll: {integration: two, query: {user_id: x}}"),
    }
    loaded = read(tmp_path, files, environ={"T_TOKEN": "tok-en"})
    feeds = {feed.name: feed for feed in loaded.feeds}
    a, b, c, d = (credential_of(feeds[trigger.feed], loaded) for trigger in loaded.triggers)
    assert a == b == "json:x.example"
    assert c == d != a
