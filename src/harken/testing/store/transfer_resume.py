"""Runs, windows, budgets and feeds go on in a copy where they stopped."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harken.errors import LeaseLost
from harken.event import Event
from harken.schedule import Cron
from harken.store import GatherInto, Rest, Stale
from harken.testing.store.transfer import Copied, MovingWorld
from harken.testing.store.transfer_world import BEFORE, WORLD
from harken.testing.store.world import INBOX, LEASE_SECONDS

__all__ = ["GoingOnContract"]

HOUR, DAY = 3600.0, 86_400.0


class GoingOnContract(MovingWorld):
    """What the verbs do in a copy is what they would have done in the store that it was made of."""

    async def test_the_same_configuration_changes_nothing(self, copied: Copied) -> None:
        feeds = {state.name: state.revision for state in copied.before["feeds"]}
        assert {name: state.revision for name, state in copied.opened.feeds.items()} == feeds
        assert copied.opened.epoch == 2

    async def test_a_removed_trigger_comes_back_as_it_was(self, copied: Copied) -> None:
        assert (await copied.open(BEFORE)).triggers["former"].uid == copied.former

    async def test_what_was_running_is_claimed_again_with_its_journal(self, copied: Copied) -> None:
        journaled, running = await copied.claims(2)
        assert [journaled.id, running.id] == [copied.left.journaled, copied.left.running]
        assert [step.output for step in journaled.journal] == [{"n": 1}]
        assert (journaled.token, journaled.attempt, running.cancel_requested) == (2, 1, True)
        assert await copied.settle(journaled) == "settled"

    async def test_who_had_a_run_before_is_refused(self, copied: Copied) -> None:
        step = copied.before["runs"][0].journal
        with pytest.raises(LeaseLost):
            await copied.store.journal(copied.left.running, 1, step)

    async def test_the_next_of_a_slot_follows(self, copied: Copied) -> None:
        copied.clock.advance(3 * HOUR)
        first = await copied.claims_of(copied.left.first)
        assert await copied.status(copied.left.second) == "blocked"
        await copied.settle(first)
        assert (await copied.claims_one()).id == copied.left.second

    async def test_an_open_window_takes_more_and_closes(self, copied: Copied) -> None:
        into = GatherInto("k", copied.now(HOUR))
        verdict = await copied.decides("g3", trigger="digest", gather=into, due_at=into.due_at)
        assert (verdict.outcome, verdict.run_id) == ("gathered", copied.left.gathering)
        copied.clock.advance(HOUR)
        claim = await copied.claims_of(copied.left.gathering)
        assert [event.subject for event in claim.events] == ["g1", "g2", "g3"]

    async def test_memory_goes_on_counting(self, copied: Copied) -> None:
        assert isinstance(await copied.store.commit(copied.page(copied.entry("c", state="open", expect=1))), Stale)
        await copied.commit(copied.entry("c", state="open", expect=2, seq=3))
        assert (await copied.store.recall("inbox", ["c"]))["c"].seq == 3

    async def test_answers_reach_those_who_wait(self, copied: Copied) -> None:
        assert await copied.store.answer(copied.left.asking, "yes")
        claims = {claim.id: claim for claim in await copied.claims(100)}
        assert claims[copied.left.answered].answer == {"yes": True}
        assert claims[copied.left.asking].answer == "yes"
        assert [step.tokens for step in claims[copied.left.asking].journal] == [60]

    async def test_a_sub_run_tells_its_parent(self, copied: Copied) -> None:
        copied.clock.advance(HOUR / 2)
        child = await copied.claims_of(copied.left.child)
        await copied.settle(child)
        told_parent = await copied.claims_of(copied.left.parent)
        assert (told_parent.answer["run"], told_parent.answer["status"]) == (copied.left.child, "done")

    async def test_held_runs_are_let_go(self, copied: Copied) -> None:
        left = copied.left
        assert await copied.store.release("mail", hold="flood") == 1
        await copied.store.resume("resting")
        assert await copied.statuses([left.flooded, left.paused, left.short]) == ["ready", "ready", "held"]
        copied.clock.advance(HOUR)
        assert left.short in {claim.id for claim in await copied.claims(100)}
        [thrifty] = [state for state in await copied.store.triggers() if state.name == "thrifty"]
        assert thrifty.runs_this_hour == 1

    async def test_a_step_that_is_written_again_is_not_charged_again(self, copied: Copied) -> None:
        journaled = await copied.claims_one()
        await copied.store.journal(journaled.id, journaled.token, journaled.journal)
        assert [state.tokens_today for state in await copied.store.triggers()] == [
            state.tokens_today for state in copied.before["triggers"]
        ]

    async def test_a_wait_after_failures_stays_when_the_schedule_is_edited(self, copied: Copied) -> None:
        due = (await copied.feed()).next_due
        hourly = msgspec.structs.replace(INBOX, schedule=Cron(expression="0 * * * *"))
        others = [each for each in WORLD.feeds if each.name != "inbox"]
        await copied.open(msgspec.structs.replace(WORLD, generation="g2", feeds=(hourly, *others)))
        assert (await copied.feed()).next_due == due is not None

    async def test_a_run_does_not_start_in_its_quiet_hours(self, copied: Copied) -> None:
        copied.clock.advance(2500)
        assert copied.left.hushed not in {claim.id for claim in await copied.claims(100)}
        copied.clock.advance(6600)
        assert copied.left.hushed in {claim.id for claim in await copied.claims(100)}

    async def test_budgets_stay_spent(self, copied: Copied) -> None:
        thrifty = copied.trigger("thrifty")
        assert (thrifty.runs_this_hour, thrifty.tokens_today, thrifty.done) == (1, 60, 1)
        assert (await copied.decides("one more", trigger="thrifty")).outcome == "held"

    async def test_dead_letters_are_retried_and_dropped(self, copied: Copied) -> None:
        assert await copied.store.retry(copied.left.dead)
        assert (await copied.claims_of(copied.left.dead)).attempt == 1
        await copied.store.bury("inbox", Event(subject="x", type="mail", data={}, key="odd:1"), "again")
        await copied.store.bury("inbox", Event(subject="x", type="mail", data={}, key="odd:3"), "no")
        assert [letter.key for letter in (await copied.store.dead()).items] == ["odd:3", "odd:1"]
        assert await copied.store.drop_dead("event-1")

    async def test_reads_that_find_nothing_extend_their_span(self, copied: Copied) -> None:
        lease = await copied.store.lease(3, "a", LEASE_SECONDS)
        assert lease is not None
        times: dict[str, Any] = {"first_at": copied.now(), "last_at": copied.now(), "next_due": copied.now(9)}
        await copied.store.rest([Rest(feed="box", token=lease.token, count=1, result="nothing_new", seen=9, **times)])
        assert [span.count for span in await copied.store.ticks("box")] == [5]

    async def test_everything_is_forgotten_in_time(self, copied: Copied) -> None:
        copied.clock.advance(30 * DAY)
        ages = {"events": DAY, "ticks": DAY, "runs": DAY, "pushed": DAY}
        while await copied.store.retain(**ages):
            pass
        assert await copied.store.recall("hook", ["p1", "p2"]) == {}
        assert await copied.store.ticks("inbox") == []
        assert copied.left.finished not in [run.id for run in (await copied.store.runs(limit=1000)).items]
        assert await copied.store.check() == []
