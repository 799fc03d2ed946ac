"""What went wrong with tickets elsewhere, each as a small case of its own. Others stand beside what they are about."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.errors import HarkenError, NeedsAttention
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.server import Answer
from harken.tickets import Routes
from harken.tickets.observation_against_last_write import observe
from tests.services.github import SHOP
from tests.tickets.test_observation_against_last_write import memory, ticket
from tests.tickets.test_tracker_feed_source import cycles, ran, run_to_its_end
from tests.tickets.tracked import github, project, settings


@virtual
async def test_pitfall_25_a_ticket_that_stays_in_its_trigger_status_after_its_run_is_not_run_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    given = settings(
        project(routes=Routes(default="fix-bug")), trigger_statuses=frozenset({"open"}), done_status="open"
    )
    async with github(clock, tmp_path, given) as it:
        await it.start()
        await it.cycle()
        issue = it.hub.open()
        await it.cycle()
        await run_to_its_end(it)
        for _ in range(5):
            it.hub.comment(issue)
            await cycles(it, 3)
        assert (await ran(it), issue.state) == ({"1": 1}, "open")


@pytest.mark.parametrize("labels", [(), ("fix",), ("harken:done",)])
def test_pitfall_25_nor_while_nobody_has_seen_our_label_on_it(labels: tuple[str, ...]) -> None:
    given = settings(project(routes=Routes(default="fix-bug")), trigger_statuses=frozenset({"open"}))
    seen = observe(ticket(*labels), given, SHOP, memory=memory(confirmed=False), known="claimed:in-progress")
    assert seen.placed is not None
    assert seen.placed.standing.state == "claimed:done"


@virtual
async def test_pitfall_33_a_token_that_is_refused_stops_the_tracker_with_what_to_do_at_the_first_read(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path) as it:
        it.hub.answers = [Answer(status=401, body=b'{"message": "Bad credentials"}')] * 20
        await it.start()
        await it.cycle(20)
        health = (await it.feed_state()).health
        assert (health.state, health.failures) == ("paused", 1)
        assert "401" in health.message


@virtual
async def test_pitfall_31_a_lister_that_fails_is_no_empty_list_on_any_page(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        await it.open()
        for status in (403, 404, 500):
            it.hub.answers = [Answer(status=status, body=b"[]")]
            with pytest.raises(HarkenError) as raised:
                await it.trackers[SHOP].list_labelled(["fix"], closed=False)
            assert isinstance(raised.value, NeedsAttention) is (status < 500)
