"""The worker: bounded, leased, patient with its store, and gone without loss."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from harken.errors import Deferred, NeedsAttention, RetryLater, StoreBusy, StoreUnavailable
from harken.feed import INTERNAL
from harken.store import Commit
from harken.testing.clock import VirtualClock, virtual
from harken.timings import Timings
from tests.run.test_steps import paths
from tests.run.world import World, do, running_world, steps

THREE = steps(do("a"), do("b"), do("c"))


async def begun(world: World, count: int = 1) -> None:
    """Let time pass until the service has been called so often."""
    for _ in range(100_000):
        if len(world.service.got) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the service was never called")


async def take(world: World, n: int) -> None:
    """Have the worker execute the run of an event, which is claimed as it is written."""
    world.worker.accept((await world.push({"n": n}, claim=world.worker.reserve(1))).claimed)


@virtual
async def test_each_step_is_journaled_before_the_next_and_the_last_rides_along(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with running_world(clock, tmp_path, THREE) as world:
        run = await world.end()
        assert [[record.path for record in args[2]] for args in world.store.asked("journal")] == [["a"], ["b"]]
        assert [record.path for record in run.journal] == ["a", "b", "c"]


@virtual
async def test_a_run_without_waiting_steps_needs_no_task_and_one_write(clock: VirtualClock, tmp_path: Path) -> None:
    pure = steps({"action": "filter", "condition": "event.n > 0"})
    async with running_world(clock, tmp_path, pure) as world:
        await world.end(n=1)
        world.store.calls.clear()
        assert world.worker.reserve(1) == 1
        answer = await world.push({"n": 1}, claim=1)
        world.worker.accept(answer.claimed)
        assert world.worker.in_flight == 0
        run = await world.until(answer.verdicts[0][0].run_id)
        assert (run.status, len(run.journal), world.store.asked("journal")) == ("done", 1, [])


@virtual
async def test_ends_that_come_while_one_is_written_share_the_next_write(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, {}) as world:
        await world.end()
        world.store.calls.clear()
        for n in range(10):
            await take(world, n)
        await asyncio.sleep(1)
        assert [len(args[0]) for args in world.store.asked("settle")] == [10]


@virtual
async def test_the_end_of_a_run_that_nothing_waits_for_is_no_reason_to_look_for_more(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        await asyncio.sleep(1)
        world.store.calls.clear()
        for n in range(10):
            await take(world, n)
            await asyncio.sleep(0.05)
        assert world.worker.done == 10
        assert world.store.asked("claim") == []


@virtual
async def test_the_next_run_of_a_slot_begins_as_soon_as_the_one_before_it_has_ended(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        await asyncio.sleep(1)
        world.service.seconds, began = 0.2, clock.monotonic()
        for n in range(3):
            answer = await world.push({"n": n}, claim=world.worker.reserve(1), slot="k")
            world.worker.accept(answer.claimed)
            world.worker.unreserve(1 - len(answer.claimed))
        await world.until(answer.verdicts[0][0].run_id)
        assert clock.monotonic() - began < 1.0


@virtual
async def test_no_more_runs_than_allowed_work_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a")), parallel=2) as world:
        world.service.seconds = 1
        runs = [await world.start() for _ in range(7)]
        for run in runs:
            await world.until(run)
        assert (world.service.most_at_once, world.worker.done) == (2, 7)


@virtual
async def test_the_bound_can_be_changed_while_runs_work(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a")), parallel=1) as world:
        world.service.seconds = 10
        runs = [await world.start() for _ in range(9)]
        await clock.sleep(5)
        world.worker.resize(3, 5.0)
        await clock.sleep(1)
        assert world.service.at_once == 3
        world.worker.resize(2, 5.0)
        assert world.service.at_once == 3
        await clock.sleep(12)
        assert world.service.at_once == 2
        for run in runs:
            await world.until(run)
        assert (world.service.most_at_once, world.worker.done) == (3, 9)


@virtual
async def test_reservations_are_part_of_the_bound(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, {}, parallel=3) as world:
        assert [world.worker.reserve(2), world.worker.reserve(2)] == [2, 1]
        world.worker.unreserve(3)
        assert world.worker.reserve(9) == 3


@virtual
async def test_a_failing_step_is_tried_again_without_its_forerunners(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, THREE) as world:
        world.service.says = [1, RetryLater("busy"), RetryLater("busy")]
        run = await world.end()
        assert (run.status, run.attempt, len(world.service.got)) == ("done", 3, 5)
        assert [key.rpartition(":")[2] for key in world.service.keys] == ["a", "b", "b", "b", "c"]


@virtual
async def test_tries_wait_longer_and_longer(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        world.service.says = [RetryLater("busy"), RetryLater("busy")]
        began = clock.time()
        await world.end()
        assert 30 <= clock.time() - began <= 37


@virtual
async def test_retry_after_is_honoured(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        world.service.says = [RetryLater("busy", after=90)]
        began = clock.time()
        await world.end()
        assert clock.time() - began >= 90


@virtual
async def test_a_retry_after_that_is_longer_than_any_wait_of_ours_is_not_cut(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        world.service.says = [RetryLater("busy", after=7_200)]
        began = clock.time()
        await world.end()
        assert clock.time() - began >= 7_200


@virtual
async def test_used_up_tries_make_a_dead_letter_with_the_reason(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        world.service.says = [RetryLater("away")] * 9
        run = await world.end()
        assert (run.status, run.error, len(world.service.got)) == ("dead", "step a: away", 3)


@virtual
async def test_being_rate_limited_uses_up_no_tries(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        world.service.says = [RetryLater("slow down", reason="rate_limited")] * 5
        run = await world.end(max_attempts=1)
        assert (run.status, run.attempt) == ("done", 1)


@virtual
async def test_a_short_retry_after_of_a_delivery_is_kept(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        world.service.says = [RetryLater("slow down", after=6, reason="rate_limited")]
        began = clock.time()
        run = await world.end(max_attempts=1)
        assert (run.status, run.attempt) == ("done", 1)
        assert 6 <= clock.time() - began < 8


@virtual
async def test_a_run_that_only_waits_for_a_rate_limit_uses_up_no_try(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        world.service.says = [Deferred("used up", after=6)] * 50
        began = clock.time()
        run = await world.end(max_attempts=1)
        assert (run.status, run.attempt) == ("done", 1)
        assert 300 <= clock.time() - began < 330


@virtual
async def test_what_needs_a_person_is_dead_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        world.service.says = [NeedsAttention("the token is revoked", fix="Make a new one")]
        run = await world.end()
        assert (run.status, run.error) == ("dead", "step a: the token is revoked. Make a new one")


@virtual
async def test_a_bug_in_an_action_is_told_without_its_text(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        world.service.says = [KeyError("token-123")] * 3
        run = await world.end()
        assert (run.status, "KeyError" in run.error, "token-123" in run.error) == ("dead", True, False)


@virtual
async def test_a_step_has_tries_of_its_own(clock: VirtualClock, tmp_path: Path) -> None:
    retry = {"max_attempts": 3, "backoff": "2s"}
    async with running_world(clock, tmp_path, steps(do("a", retry=retry))) as world:
        world.service.says = [RetryLater("busy"), RetryLater("busy")]
        run = await world.end()
        assert (run.attempt, len(world.service.got)) == (1, 3)


@virtual
async def test_a_step_that_takes_too_long_is_tried_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a", timeout="2s"))) as world:
        world.service.seconds = 9
        run = await world.end()
        assert (run.status, run.error) == ("dead", "step a: desk.do took longer than 2 s")


@virtual
async def test_an_ignored_error_is_recorded_and_passed_over(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(
        clock, tmp_path, steps(do("a", on_error="ignore"), do("b", s="{{.steps.a.status}}"))
    ) as world:
        world.service.says = [NeedsAttention("no")]
        run = await world.end()
        assert (run.status, paths(run), world.service.got[1]) == ("done", {"a": "failed", "b": "ok"}, {"s": "failed"})


@virtual
async def test_a_fallback_takes_the_place_of_the_response(clock: VirtualClock, tmp_path: Path) -> None:
    first = do("a", on_error="fallback", fallback={"n": "{{.inputs.n}}"})
    async with running_world(clock, tmp_path, steps(first, do("b", n="{{.steps.a.response.n}}"))) as world:
        world.service.says = [NeedsAttention("no")]
        await world.end(n=7)
        assert world.service.got[1] == {"n": 7}


@virtual
async def test_an_ignored_error_is_not_tried_again_when_the_run_is(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a", on_error="ignore"), do("b"))) as world:
        world.service.says = [NeedsAttention("no"), RetryLater("busy")]
        await world.end()
        assert [key.rpartition(":")[2] for key in world.service.keys] == ["a", "b", "b"]


@virtual
async def test_a_crashed_run_goes_on_from_its_journal(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, THREE, timings=Timings(claim_seconds=60.0)) as world:
        world.service.seconds = 5
        run_id = await world.start()
        await begun(world, 2)
        world.store.failing = {verb: [StoreUnavailable("gone")] * 9_999 for verb in ("journal", "extend", "settle")}
        await asyncio.sleep(120)
        assert await world.sqlite.requeue_expired() == 1
        world.store.failing = {}
        rescuer = world.add_worker("w2")
        world.work(rescuer)
        run = await world.until(run_id)
        assert run.status == "done"
        assert [record.path for record in run.journal] == ["a", "b", "c"]
        assert [key.rpartition(":")[2] for key in world.service.keys][:2] == ["a", "b"]
        assert world.service.keys.count(f"{run_id}:a") == 1
        await rescuer.stop(0)


@virtual
async def test_who_lost_the_run_writes_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(
        clock, tmp_path, steps(do("a", timeout="1h")), timings=Timings(claim_seconds=60.0)
    ) as world:
        world.service.seconds = 500
        run_id = await world.start()
        await begun(world)
        world.store.failing = {"extend": [StoreUnavailable("gone")] * 200}
        await asyncio.sleep(100)
        await world.sqlite.requeue_expired()
        (taken,) = await world.sqlite.claim("other", 1, 600)
        world.store.failing = {}
        await asyncio.sleep(30)
        assert (world.worker.lost, world.worker.in_flight) == (1, 0)
        assert (await world.look(run_id)).journal == ()
        assert taken.journal == ()


@virtual
async def test_a_hiccup_of_the_store_does_not_end_the_heartbeat(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(
        clock, tmp_path, steps(do("a", timeout="1h")), timings=Timings(claim_seconds=30.0)
    ) as world:
        world.service.seconds = 300
        world.store.failing = {"extend": [StoreBusy("full"), StoreUnavailable("locked"), OSError("disk")]}
        run_id = await world.start()
        for _ in range(30):
            await asyncio.sleep(10)
            assert await world.sqlite.requeue_expired() == 0
        run = await world.until(run_id)
        assert (run.status, len(world.service.got)) == ("done", 1)


@virtual
async def test_writes_wait_for_a_store_that_is_away(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, THREE) as world:
        away: list[Exception] = [StoreUnavailable("the disk is full")] * 4
        world.store.failing = {"claim": away[:], "journal": away[:], "settle": away[:], "get": away[:]}
        run = await world.end()
        assert (run.status, len(world.service.got)) == ("done", 3)


@virtual
async def test_one_end_that_the_store_refuses_does_not_hold_up_the_others(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, {}, parallel=4) as world:
        runs = [await world.start() for _ in range(3)]
        world.store.failing = {"settle": [ValueError("bad"), ValueError("bad")]}
        ended = [(await world.until(run)).status for run in runs]
        assert sorted(ended) == ["dead", "done", "done"]


@virtual
async def test_a_running_run_that_is_asked_to_stop_is_cancelled(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, THREE, timings=Timings(claim_seconds=30.0)) as world:
        world.service.seconds = 1
        run_id = await world.start()
        await begun(world)
        world.service.seconds = 50
        await begun(world, 2)
        await world.sqlite.cancel(run_id, "nobody wants it")
        run = await world.until(run_id)
        assert (run.status, [record.path for record in run.journal]) == ("cancelled", ["a"])
        assert run.error == "nobody wants it"


@virtual
async def test_a_run_that_was_claimed_and_has_not_begun_is_cancelled_alone(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a")), parallel=1, timings=Timings(claim_seconds=30)) as world:
        world.service.seconds = 50
        runs = [await world.start() for _ in range(3)]
        await begun(world)
        # as commits hand them over that reserved room before the first run began
        world.worker.accept(await world.sqlite.claim(world.worker.holder, 2, 30.0))
        await world.sqlite.cancel(runs[2])
        run = await world.until(runs[2])
        assert (run.status, run.error) == ("cancelled", "cancelled by hand")
        assert [(await world.until(run_id)).status for run_id in runs[:2]] == ["done", "done"]


@virtual
async def test_a_worker_that_has_stopped_extends_no_claims(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        await world.end()
        await world.worker.stop(grace_seconds=0)
        assert [task for task in asyncio.all_tasks() if task.get_name() == "heartbeat"] == []


@virtual
async def test_a_stopped_worker_hands_its_run_back_and_it_goes_on_elsewhere(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with running_world(clock, tmp_path, THREE) as world:
        world.service.seconds = 1
        run_id = await world.start()
        await begun(world)
        world.service.seconds = 50
        await begun(world, 2)
        await world.worker.stop(grace_seconds=1)
        handed_back = await world.look(run_id)
        assert (handed_back.status, handed_back.attempt, paths(handed_back)) == ("ready", 1, {"a": "ok"})
        successor = world.add_worker("w2")
        world.work(successor)
        assert (await world.until(run_id)).status == "done"
        await successor.stop(0)


@virtual
async def test_a_stop_gives_runs_in_flight_time_to_end(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, THREE) as world:
        world.service.seconds = 2
        run_id = await world.start()
        await begun(world)
        await world.worker.stop(grace_seconds=30)
        assert (await world.look(run_id)).status == "done"


@virtual
async def test_a_run_that_waits_for_a_slot_here_is_handed_back_too(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, THREE, parallel=1) as world:
        world.service.seconds = 50
        granted = world.worker.reserve(1)
        first = await world.push({}, claim=granted)
        second = await world.push({}, claim=1)
        world.worker.accept(first.claimed)
        world.worker.accept(second.claimed)
        await world.worker.stop(grace_seconds=0)
        runs = [await world.look(answer.verdicts[0][0].run_id) for answer in (first, second)]
        assert [run.status for run in runs] == ["ready", "ready"]


@virtual
async def test_runs_become_due_later_without_a_nudge(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        await asyncio.sleep(12)
        await world.push({})
        await asyncio.sleep(5.1)
        assert len(world.service.got) == 1


@virtual
async def test_an_unknown_revision_is_a_dead_letter(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, {}) as world:
        world.revisions["main"] = "gone@9"
        run = await world.end()
        assert (run.status, "gone@9" in run.error) == ("dead", True)


@virtual
async def test_a_workflow_that_does_not_compile_is_a_dead_letter(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps({"action": "nothing"})) as world:
        run = await world.end()
        assert (run.status, "steps.0.action" in run.error) == ("dead", True)


@virtual
async def test_ends_are_matched_again_when_the_internal_rules_moved_on(clock: VirtualClock, tmp_path: Path) -> None:
    revision = 999
    learnt = 0

    async def learn() -> None:
        nonlocal revision, learnt
        revision, learnt = world.opened.feeds[INTERNAL].revision, learnt + 1

    def match(events: Any) -> Commit:
        return Commit(feed=INTERNAL, revision=revision)

    async with running_world(clock, tmp_path, steps(do("a")), internal=match, learn=learn) as world:
        run = await world.end()
        assert (run.status, learnt, len(world.service.got)) == ("done", 1, 1)


@virtual
async def test_the_end_of_a_run_is_announced(clock: VirtualClock, tmp_path: Path) -> None:
    heard: list[Any] = []
    async with running_world(clock, tmp_path, steps(do("a")), internal=heard.extend) as world:
        world.service.says = [NeedsAttention("no")]
        run = await world.end()
        assert [(event.type, event.data["run"], event.data["error"]) for event in heard] == [
            ("run.dead", run.id, "step a: no")
        ]
