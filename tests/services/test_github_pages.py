"""What is asked of GitHub again and again costs no quota while nothing has changed, and hides nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from harken.errors import RetryLater
from harken.services.github import cached_pages
from harken.services.github.tracker import GitHubTracker
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.server import Answer
from tests.services.github import SHOP, account
from tests.services.ticket_tracker_contract import all_changed, all_labelled, numbers

OVERLAP = timedelta(minutes=10)


@pytest.fixture
def tickets(hub: GitHub, host: Host) -> GitHubTracker:
    return GitHubTracker(SHOP, account(hub, "classic"), host)


async def poll(tickets: GitHubTracker, clock: HandClock) -> set[str]:
    """A minute passes, then changes are read as a tracker's poll reads them."""
    clock.advance(60)
    return numbers(await all_changed(tickets, clock.now() - OVERLAP))


async def cost_of_polls(hub: GitHub, tickets: GitHubTracker, clock: HandClock, count: int = 30) -> int:
    before = hub.remaining
    for _ in range(count):
        await poll(tickets, clock)
        await all_labelled(tickets, "bug", "crash")
    return before - hub.remaining


async def test_polls_of_a_quiet_repository_cost_nothing(hub: GitHub, tickets: GitHubTracker, clock: HandClock) -> None:
    hub.open("bug", age=86_400)
    assert await cost_of_polls(hub, tickets, clock, 1) == 3
    assert await cost_of_polls(hub, tickets, clock, 600) == 0
    assert hub.seen[-1].status == 304


async def test_a_change_is_seen_at_once_and_costs_a_few_requests(
    hub: GitHub, tickets: GitHubTracker, clock: HandClock
) -> None:
    old = hub.open("bug", age=86_400)
    await cost_of_polls(hub, tickets, clock)
    hub.comment(old)
    new = hub.open("crash")
    before = hub.remaining
    assert await poll(tickets, clock) == {str(old.number), str(new.number)}
    assert numbers(await all_labelled(tickets, "bug", "crash")) == {str(old.number), str(new.number)}
    assert await cost_of_polls(hub, tickets, clock) <= 2
    assert before - hub.remaining <= 5


async def test_what_changed_is_listed_for_as_long_as_it_is_asked_for(
    hub: GitHub, tickets: GitHubTracker, clock: HandClock
) -> None:
    await cost_of_polls(hub, tickets, clock)
    new = {str(hub.open("bug").number)}
    shown = [await poll(tickets, clock) for _ in range(30)]
    assert shown[:9] == [new] * 9
    assert shown[11:] == [set()] * 19


async def test_every_change_of_a_busy_repository_is_listed(
    hub: GitHub, tickets: GitHubTracker, clock: HandClock
) -> None:
    """Of several pages, with changes on each of them, and quiet times between."""
    issues = [hub.open("bug", age=86_400) for _ in range(300)]
    for turn in range(60):
        changed = issues[turn :: 7 + turn] if turn % 20 < 10 else []
        for issue in changed:
            hub.comment(issue)
        assert await poll(tickets, clock) >= {str(issue.number) for issue in changed}
        assert numbers(await all_labelled(tickets, "bug")) == {str(issue.number) for issue in issues}


async def test_a_list_of_changes_does_not_grow_for_ever(hub: GitHub, tickets: GitHubTracker, clock: HandClock) -> None:
    for _ in range(120):
        hub.open("bug")
        shown = await poll(tickets, clock)
    assert len(shown) <= 2 * OVERLAP / timedelta(minutes=1) + 1


async def test_little_is_kept(
    hub: GitHub, tickets: GitHubTracker, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_pages, "MOST_BYTES", 3_000)
    hub.open("bug", text="x" * 5_000, age=86_400)
    hub.open("crash", text="short", age=86_400)
    assert await cost_of_polls(hub, tickets, clock, 10) == 12
    for number in range(100):
        await all_labelled(tickets, f"label {number}")
    assert len(tickets._kept._pages) == cached_pages.MOST_PAGES


async def test_an_unchanged_page_that_nobody_has_read_is_no_empty_list(hub: GitHub, tickets: GitHubTracker) -> None:
    hub.answers = [Answer(status=304)]
    with pytest.raises(RetryLater, match="304"):
        await tickets.list_labelled(["bug"], closed=False)


async def test_a_server_without_etags_is_read_whole_each_time(
    hub: GitHub, tickets: GitHubTracker, clock: HandClock
) -> None:
    for _ in range(3):
        hub.answers = [Answer(body=b"[]")]
        assert await poll(tickets, clock) == set()
    assert [seen.headers.get("if-none-match") for seen in hub.seen] == [None] * 3
    assert len({seen.query["since"] for seen in hub.seen}) == 3
