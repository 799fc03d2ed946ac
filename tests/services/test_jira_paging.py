"""Pages that drift, tokens that expire, cursors of another query."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from harken.errors import RetryLater
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.jira import Jira
from tests.services.jira import serving, source
from tests.services.reading import events, page, read

LOTS = 31


@pytest.fixture
async def cloud(clock: HandClock) -> AsyncIterator[Jira]:
    async with serving(clock, cloud=True, cap=10) as jira:
        yield jira


@pytest.fixture
async def server(clock: HandClock) -> AsyncIterator[Jira]:
    async with serving(clock, cloud=False, cap=10) as jira:
        yield jira


def create_lots(jira: Jira, clock: HandClock) -> list[str]:
    keys = []
    for _ in range(LOTS):
        clock.advance(1)
        keys.append(jira.create(assignee="me"))
    return keys


async def keys_of(source: Any, cursor: Any = None, since: Any = START) -> set[str]:
    return {event.data["key"] for event in events(await read(source, cursor, since))}


async def test_a_few_edits_while_reading_move_nothing_out_of_sight(server: Jira, clock: HandClock, host: Host):
    wanted = create_lots(server, clock)
    watched = source(server, host, project="TEAM")
    first = await page(watched)
    for key in wanted[:3]:
        server.edit(key, "moves to the end")
    pages = [first, *await read(watched, first.cursor)]
    assert {event.data["key"] for event in events(pages)} == set(wanted)
    assert len(pages) <= 7, "the overlap was enough"


async def test_many_edits_while_reading_send_the_read_back_to_its_beginning(server: Jira, clock: HandClock, host: Host):
    wanted = create_lots(server, clock)
    watched = source(server, host, project="TEAM")
    first = await page(watched)
    for key in wanted[:9]:
        server.edit(key, "moves to the end")
    second = await page(watched, first.cursor)
    assert second.more
    assert second.cursor["restarts"] == 1
    pages = [first, second, *await read(watched, second.cursor)]
    assert {event.data["key"] for event in events(pages)} == set(wanted)
    assert pages[-1].complete


async def test_a_read_that_drifts_again_and_again_ends_and_says_that_it_has_gaps(
    server: Jira, clock: HandClock, host: Host
):
    keys = create_lots(server, clock)

    def stir() -> None:
        keys.reverse()
        for key in keys:
            clock.advance(0.001)
            server.edit(key, "again")

    server.after = dict.fromkeys(range(2, 40), stir)
    pages = await read(source(server, host, project="TEAM"))
    assert not pages[-1].complete


async def test_an_expired_page_token_starts_the_read_over(cloud: Jira, clock: HandClock, host: Host):
    wanted = create_lots(cloud, clock)
    watched = source(cloud, host, project="TEAM")
    first = await page(watched)
    cloud.forget_tokens()
    clock.advance(8 * 86_400)
    assert await keys_of(watched, first.cursor) == set(wanted)


async def test_a_token_that_is_given_twice_is_not_followed_for_ever(cloud: Jira, clock: HandClock, host: Host):
    body = b'{"issues": [{"id": "1", "key": "A-1", "fields": {}}], "nextPageToken": "same"}'
    watched = source(cloud, host, project="TEAM")
    await page(watched)
    cloud.answers = [Answer(body=body), Answer(body=body)]
    with pytest.raises(RetryLater, match="same page"):
        await read(watched)


async def test_a_read_that_is_resumed_keeps_its_beginning_though_since_has_moved(
    cloud: Jira, clock: HandClock, host: Host
):
    wanted = create_lots(cloud, clock)
    watched = source(cloud, host, project="TEAM")
    first = await page(watched)
    rest = await read(watched, first.cursor, since=START + timedelta(hours=1))
    assert {event.data["key"] for event in events([first, *rest])} == set(wanted)


async def test_a_place_in_another_query_is_left_and_its_time_is_kept(cloud: Jira, clock: HandClock, host: Host):
    wanted = create_lots(cloud, clock)
    first = await page(source(cloud, host, project="TEAM"))
    other = source(cloud, host, assignee="me")
    assert await keys_of(other, first.cursor, START + timedelta(hours=1)) == set(wanted)
    clock.advance(7200)
    done = (await read(other))[-1].cursor
    new = cloud.create(assignee="me")
    assert await keys_of(source(cloud, host, project="TEAM"), done) == {new}


@pytest.mark.parametrize("cursor", ["nonsense", 7, {"since": "yesterday"}, [], {"start": "x"}])
async def test_a_broken_cursor_starts_over(cloud: Jira, clock: HandClock, host: Host, cursor: Any):
    wanted = create_lots(cloud, clock)
    assert await keys_of(source(cloud, host, project="TEAM"), cursor) == set(wanted)


async def test_an_empty_query_asks_for_what_changed_and_nothing_else(cloud: Jira, clock: HandClock, host: Host):
    key = cloud.create()
    assert await keys_of(source(cloud, host)) == {key}
    assert b"updated >= " in cloud.seen[-1].body


async def test_the_time_in_the_jql_is_absolute_and_a_minute_early(cloud: Jira, host: Host):
    await page(source(cloud, host, project="TEAM"), since=START + timedelta(seconds=59))
    wanted = int((START - timedelta(minutes=1)).timestamp() * 1000)
    assert f"updated >= {wanted} ORDER BY updated ASC, key ASC".encode() in cloud.seen[-1].body


async def test_a_backfill_goes_back_behind_what_was_read_last(cloud: Jira, clock: HandClock, host: Host):
    early = cloud.create(assignee="me")
    clock.advance(7_200)
    late = START + timedelta(hours=2)
    watched = source(cloud, host, project="TEAM")
    cursor = (await read(watched, None, late))[-1].cursor
    assert await keys_of(watched, cursor, late) == set()
    assert await keys_of(watched, cursor, START) == {early}
