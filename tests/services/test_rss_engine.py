"""The whole engine on virtual time: what max_per_tick and `first` do with the entries of a feed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from harken.app import App
from harken.testing import VirtualClock, virtual
from harken.testing.fakes import Listing
from tests.services.whole import occurrences, running, write

WORKFLOW = """\
name: news
trigger:
  type: poll
  poll:
    integration: rss
    interval: 60s
    first: {first}
    query: {{feed_url: "{url}/feed.xml", max_per_tick: 5, allow_private_networks: true}}
steps:
  - {{id: say, action: transform, set: {{title: "{{{{.trigger.event.title}}}}"}}}}
"""


@asynccontextmanager
async def watching(
    clock: VirtualClock, directory: Path, first: str, *, entries: int
) -> AsyncIterator[tuple[App, Listing]]:
    """An engine that has just begun with a feed, whose entries are minutes old, in the order of their age."""
    listing = Listing(clock)
    async with listing.serve() as url:
        for number in range(entries):
            listing.add(f"n{number:02}", age=60 * (100 - number))
        write(directory, "", news=WORKFLOW.format(url=url, first=first))
        async with running(directory, clock) as app:
            yield app, listing


@virtual
async def test_a_first_read_is_quiet_and_a_burst_is_delivered_whole(clock: VirtualClock, tmp_path: Path):
    async with watching(clock, tmp_path, "baseline", entries=10) as (app, listing):
        await clock.sleep(300)
        assert await occurrences(app) == []
        new = {listing.add(f"new{number}").id for number in range(23)}
        await clock.sleep(3600)
        assert set(await occurrences(app)) == new


@virtual
async def test_first_deliver_tells_of_the_newest_that_one_tick_may(clock: VirtualClock, tmp_path: Path):
    async with watching(clock, tmp_path, "deliver", entries=12) as (app, _):
        await clock.sleep(600)
        assert set(await occurrences(app)) == {f"n{number:02}" for number in range(7, 12)}


@virtual
async def test_an_entry_that_is_dated_back_is_new_and_an_archive_that_appears_is_not(
    clock: VirtualClock, tmp_path: Path
):
    async with watching(clock, tmp_path, "baseline", entries=10) as (app, listing):
        await clock.sleep(300)
        listing.add("this morning", age=5 * 3600)
        listing.add("last year", age=365 * 86_400)
        await clock.sleep(3600)
        assert await occurrences(app) == ["this morning"]
