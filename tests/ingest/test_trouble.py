"""What a feed does while it cannot be read: offline, stopped by a wrong token, or answered with nonsense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.testing import Fault, VirtualClock
from harken.testing.clock import virtual
from tests.ingest.process import HOUR, Process, trigger

MINUTE = 60.0


def suffers(process: Process, kind: Any, seconds: float) -> None:
    """From now on, every read fails in this way for so long."""
    now = process.clock.time()
    process.world.faults.append(Fault(begin=now, end=now + seconds, kind=kind))


async def health(process: Process) -> Any:
    return (await process.store.state("inbox")).health


async def failed_reads(process: Process) -> int:
    return sum(tick.count for tick in await process.store.ticks("inbox", limit=1_000) if tick.error)


@virtual
async def test_being_offline_pauses_nothing_is_shown_and_is_caught_up_with(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger())
    began = clock.time()
    suffers(process, "offline", 10 * HOUR)
    await clock.sleep(5 * HOUR)
    process.world.put("meanwhile")
    found = await health(process)
    assert (found.state, found.failures, found.code) == ("closed", 0, "offline")
    assert began < found.offline_since < began + 70
    await clock.sleep(5 * HOUR + 70)
    assert (await health(process)).clean
    assert await process.fired() == ["meanwhile"]
    # it was tried every minute, and noted every ten
    assert 55 <= await failed_reads(process) <= 70
    await process.stop()


@virtual
async def test_being_offline_counts_towards_no_breaker(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    process.feed = msgspec.structs.replace(process.feed, breaker=1)
    await process.start(trigger())
    suffers(process, "offline", HOUR)
    await clock.sleep(HOUR / 2)
    assert (await health(process)).state == "closed"
    await process.stop()


@virtual
async def test_a_wrong_token_is_probed_slowly_and_recovers_by_itself(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger())
    suffers(process, "forbidden", 40 * MINUTE)
    await clock.sleep(70)
    paused = await health(process)
    assert (paused.state, paused.probes, await failed_reads(process)) == ("paused", 1, 1)
    process.world.put("meanwhile")
    await clock.sleep(30 * MINUTE)
    assert (await failed_reads(process), await process.fired()) == (2, [])
    await clock.sleep(30 * MINUTE)
    assert ((await health(process)).clean, await process.fired()) == (True, ["meanwhile"])
    await process.stop()


@virtual
async def test_a_probe_keeps_its_time_over_restarts_and_goes_on_doubling(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger())
    suffers(process, "forbidden", 100 * HOUR)
    await clock.sleep(70)
    due = (await process.store.state("inbox")).next_due
    for _ in range(3):
        await process.stop_for(MINUTE)
        await process.start()
    assert (await process.store.state("inbox")).next_due == due
    assert await failed_reads(process) == 1
    await process.crash()
    await clock.sleep(30 * MINUTE)
    await process.start()
    assert ((await health(process)).probes, await failed_reads(process)) == (2, 2)
    await process.stop()


@virtual
async def test_only_the_replica_that_holds_the_lease_probes(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger())
    other = process.another_intake("other")
    await other.start(process.definitions())
    suffers(process, "forbidden", 100 * HOUR)
    await clock.sleep(2 * HOUR)
    # at once, after 15, 45 and 105 minutes
    assert await failed_reads(process) == 4
    await other.stop()
    await process.stop()


@virtual
async def test_what_a_person_has_paused_is_never_probed(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger())
    suffers(process, "forbidden", 100 * HOUR)
    await clock.sleep(70)
    await process.store.pause("t", "holiday")
    await process.intake.refresh("inbox")
    await clock.sleep(24 * HOUR)
    assert await failed_reads(process) == 1
    await process.stop()


@pytest.mark.parametrize(("lasts", "state"), [(65.0, "closed"), (300.0, "paused")])
@virtual
async def test_one_malformed_answer_is_retried_before_it_pauses(
    clock: VirtualClock, tmp_path: Path, lasts: float, state: str
) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger())
    suffers(process, "malformed", lasts)
    await clock.sleep(100)
    assert (await health(process)).state == state
    await process.stop()
