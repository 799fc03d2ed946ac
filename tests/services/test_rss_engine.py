"""The whole engine on virtual time: what max_per_tick and `first` do with the entries of a feed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harken.app import App
from harken.testing import VirtualClock, virtual
from harken.testing.fakes import Listing
from tests.services.whole import running

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


def write(directory: Path, listing: Listing, first: str) -> None:
    (directory / "workflows").mkdir()
    (directory / "workflows" / "news.yaml").write_text(WORKFLOW.format(url=listing.url, first=first), "utf-8")


def fill(listing: Listing, *numbers: int) -> set[str]:
    """Entries so many minutes old, in the order of their age."""
    return {listing.add(f"n{number:02}", age=60 * (100 - number)).id for number in range(*numbers)}


async def runs(app: App) -> set[str]:
    items: list[Any] = (await app.operator.call("runs.list", limit=500))["items"]
    assert {run["status"] for run in items} <= {"done"}
    keys = [key for run in items for key in run["event_keys"]]
    assert len(keys) == len(set(keys))
    return set(keys)


@virtual
async def test_a_first_read_is_quiet_and_a_burst_is_delivered_whole(clock: VirtualClock, tmp_path: Path):
    listing = Listing(clock)
    async with listing.serve():
        fill(listing, 10)
        write(tmp_path, listing, "baseline")
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            assert await runs(app) == set()
            new = {listing.add(f"new{number}").id for number in range(23)}
            await clock.sleep(3600)
            assert await runs(app) == new


@virtual
async def test_first_deliver_tells_of_the_newest_that_one_tick_may(clock: VirtualClock, tmp_path: Path):
    listing = Listing(clock)
    async with listing.serve():
        fill(listing, 12)
        write(tmp_path, listing, "deliver")
        async with running(tmp_path, clock) as app:
            await clock.sleep(600)
            assert await runs(app) == {f"n{number:02}" for number in range(7, 12)}


@virtual
async def test_an_entry_that_is_dated_back_is_new_and_an_archive_that_appears_is_not(
    clock: VirtualClock, tmp_path: Path
):
    listing = Listing(clock)
    async with listing.serve():
        fill(listing, 10)
        write(tmp_path, listing, "baseline")
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            listing.add("this morning", age=5 * 3600)
            listing.add("last year", age=365 * 86_400)
            await clock.sleep(3600)
            assert await runs(app) == {"this morning"}
