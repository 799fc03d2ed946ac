"""Replies that Datadog once gave, out of the source distribution of its own client library."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from multidict import CIMultiDict
from yarl import URL

from harken.outgoing_rate_limit import is_rate_limited, requested_wait
from harken.services.datadog.event import event_data, group_statuses, number_of
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes.datadog import FakeDatadog
from harken.testing.fakes.server import Answer
from tests.downloads.corpora import corpus
from tests.services.datadog import LONG_AGO, Watch, served

pytestmark = [pytest.mark.worker_group("datadog-corpus"), pytest.mark.timeout(300)]

WORDS = {"Alert": "triggered", "Warn": "warn", "No Data": "no_data", "OK": "ok"}
ALL = ["triggered", "warn", "no_data", "ok"]


@pytest.fixture(scope="module")
def exchanges() -> list[dict[str, Any]]:
    """Every recorded exchange about monitors, and every one that tells a limit."""
    files = corpus("datadog-api-client").rglob("*.yaml")
    wanted = [text for text in map(Path.read_text, files) if "/api/v1/monitor" in text or "x-ratelimit" in text]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for text in wanted for one in yaml.load(text, Loader=loader)["interactions"]]


@pytest.fixture(scope="module")
def monitors(exchanges: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every monitor in a reply, whether it was listed, asked for, created or edited."""
    found = [body(one) for one in exchanges if about(one) and one["response"]["status"]["code"] == 200]
    single = [reply for reply in found if isinstance(reply, dict) and "overall_state" in reply]
    return [*single, *(one for reply in found if isinstance(reply, list) for one in reply)]


@pytest.fixture
async def fake(clock: HandClock) -> AsyncIterator[FakeDatadog]:
    async with served(clock) as fake:
        yield fake


def about(exchange: dict[str, Any]) -> bool:
    parts = URL(exchange["request"]["uri"]).parts
    return parts[:4] == ("/", "api", "v1", "monitor") and (len(parts) == 4 or parts[4].isdigit())


def body(exchange: dict[str, Any]) -> Any:
    text = exchange["response"]["body"]["string"].strip()
    return msgspec.json.decode(text) if text else None


def test_there_are_enough_recordings_to_mean_something(monitors: list[dict[str, Any]]):
    assert len(monitors) >= 30
    assert {monitor["type"] for monitor in monitors} >= {"query alert", "log alert", "synthetics alert"}


def test_ids_names_and_states_agree_with_what_was_recorded(monitors: list[dict[str, Any]]):
    for monitor in monitors:
        (current,) = group_statuses(monitor)
        data = event_data(monitor, current, previous="", web="https://app.datadoghq.com", now=START)
        assert (data["id"], data["name"], data["query"]) == (monitor["id"], monitor["name"], monitor["query"])
        assert (data["tags"], data["type"], data["modified"]) == (monitor["tags"], monitor["type"], monitor["modified"])
        assert data["status"] == WORDS[monitor["overall_state"]]
        assert bool(current.changed) == bool(monitor["overall_state_modified"])


async def test_every_recorded_monitor_is_read_and_those_with_a_date_are_shown(
    monitors: list[dict[str, Any]], fake: FakeDatadog, clock: HandClock, host: Host
):
    fake.listed = monitors
    shown = await Watch(fake, clock, host, statuses=ALL).events()
    dated = {str(one["id"]) for one in monitors if one["overall_state_modified"]}
    assert {event.subject for event in shown} == dated
    assert dated


async def test_the_recorded_pages_are_in_the_order_of_their_ids(exchanges: list[dict[str, Any]]):
    pages = [body(one) for one in exchanges if about(one) and "page=" in one["request"]["uri"]]
    numbers = [number_of(monitor) for page in pages for monitor in page]
    assert len(numbers) >= 3
    assert numbers == sorted(set(numbers), key=lambda number: number or 0)


def test_recorded_groups_have_their_status_and_date(exchanges: list[dict[str, Any]]):
    found = [body(one) for one in exchanges if URL(one["request"]["uri"]).path.endswith("/groups/search")]
    groups = [group for reply in found for group in reply.get("groups", ())]
    assert len(groups) >= 20
    for group in groups:
        (current,) = group_statuses({"id": group["monitor_id"], "state": {"groups": {group["group"]: group}}})
        assert current.status == WORDS[group["status"]]
        assert current.changed == group["last_triggered_ts"]


async def test_recorded_refusals_are_errors_and_not_empty_lists(
    exchanges: list[dict[str, Any]], fake: FakeDatadog, clock: HandClock, host: Host
):
    refused = [one for one in exchanges if about(one) and one["response"]["status"]["code"] in (400, 403)]
    assert refused
    for one in refused:
        text = one["response"]["body"]["string"].encode()
        fake.answers.append(Answer(status=one["response"]["status"]["code"], body=text))
        with pytest.raises(Exception, match=r"answered 40[03]"):
            await Watch(fake, clock, host).source.poll(None, LONG_AGO)


def test_recorded_limits_are_seconds_from_now(exchanges: list[dict[str, Any]]):
    now, limits = START.timestamp(), 0
    for one in exchanges:
        headers = CIMultiDict({name: values[0] for name, values in one["response"]["headers"].items()})
        limited = one["response"]["status"]["code"] == 429
        waits = requested_wait(429, headers, now) if limited else None
        assert is_rate_limited(one["response"]["status"]["code"], headers) is limited
        assert waits == (float(headers["X-RateLimit-Reset"]) if limited else None)
        limits += limited
    assert limits
