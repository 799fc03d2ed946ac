"""The seven metrics of jobs: there from the start, counted as it happens, and gone with their job."""

from __future__ import annotations

import re
from pathlib import Path

from harken.app import App
from harken.testing import VirtualClock, virtual
from harken.testing.fakes import Answer
from tests.system.hostile.world import House
from tests.system.pollers.world import World, world

BROKEN, FORBIDDEN = Answer(status=503), Answer(status=401)
SERIES = re.compile(r"^(poller_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
WATCH = 'kind="webhook_poll",agent="ana",job_id="watch"'


def series(app: App) -> dict[str, float]:
    """Every series of jobs but the buckets, with its value."""
    found = SERIES.findall(app._telemetry.page().decode())
    return {f"{name}{{{labels}}}": float(value) for name, labels, value in found if not name.endswith("_bucket")}


def ticks(app: App) -> dict[str, float]:
    found = series(app)
    statuses = ("ok", "transient", "permanent", "skipped")
    counts = {status: found[f'poller_ticks_total{{{WATCH},status="{status}"}}'] for status in statuses}
    return {status: count for status, count in counts.items() if count}


def one(app: App, name: str) -> float:
    """The value of a metric that has only the job as its label."""
    return series(app)[f'{name}{{job_id="watch"}}']


async def started(it: World, clock: VirtualClock, *jobs: str, settings: str = "") -> House:
    it.write(*(jobs or (it.job(),)), settings=settings)
    house = House(it.directory, clock)
    await house.up()
    return house


async def reads(house: House) -> str:
    return str((await house.ask("triggers.run", name="watch"))["result"])


@virtual
async def test_exactly_these_series_are_there_from_the_start_at_zero(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock)
        assert series(house.app) == {
            f'poller_ticks_total{{{WATCH},status="ok"}}': 0,
            f'poller_ticks_total{{{WATCH},status="transient"}}': 0,
            f'poller_ticks_total{{{WATCH},status="permanent"}}': 0,
            f'poller_ticks_total{{{WATCH},status="skipped"}}': 0,
            f"poller_latency_ms_sum{{{WATCH}}}": 0,
            f"poller_latency_ms_count{{{WATCH}}}": 0,
            f"poller_items_seen_total{{{WATCH}}}": 0,
            f"poller_items_dispatched_total{{{WATCH}}}": 0,
            'poller_consecutive_errors{job_id="watch"}': 0,
            'poller_breaker_state{job_id="watch"}': 0,
            'poller_lease_takeovers_total{job_id="watch"}': 0,
        }
        await house.down()


@virtual
async def test_every_status_of_a_tick_is_counted_as_it_happens(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock)
        await clock.sleep(30)
        assert ticks(house.app) == {"ok": 1}
        it.listing.answers += [BROKEN, Answer(status=429, headers={"Retry-After": "50"})]
        assert [await reads(house) for _ in range(2)] == ["error", "rate_limited"]
        assert ticks(house.app) == {"ok": 1, "transient": 2}
        # the budget of the credential puts this one off: nobody is asked
        asked = len(it.listing.seen)
        await reads(house)
        assert (ticks(house.app)["skipped"], len(it.listing.seen)) == (1, asked)
        await clock.sleep(120)
        it.listing.answers.append(FORBIDDEN)
        await reads(house)
        assert ticks(house.app)["permanent"] == 1
        await house.ask("triggers.pause", name="watch")
        await clock.sleep(1)
        assert await reads(house) == "skipped"
        assert ticks(house.app)["skipped"] == 2
        await house.down()


@virtual
async def test_latency_is_in_milliseconds_and_only_of_what_was_asked(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, it.job(schedule="{every_secs: 3600}"))
        await clock.sleep(1)
        it.listing.answers.append(Answer(hang=True))
        await reads(house)
        page = house.app._telemetry.page().decode()
        await house.ask("triggers.pause", name="watch")
        await clock.sleep(1)
        await reads(house)
        assert series(house.app)[f"poller_latency_ms_count{{{WATCH}}}"] == 2
        assert 10_000 <= series(house.app)[f"poller_latency_ms_sum{{{WATCH}}}"] < 10_100
        assert f'poller_latency_ms_bucket{{{WATCH},le="10"}} 1\n' in page
        assert f'poller_latency_ms_bucket{{{WATCH},le="30000"}} 2\n' in page
        await house.down()


@virtual
async def test_new_items_are_seen_and_delivered_ones_dispatched(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.listing.add("old", age=60)
        house = await started(it, clock, it.job(failure_to="{channel: telegram, to: '-1001'}"))
        await clock.sleep(30)
        it.chat.down = True
        it.listing.add("a")
        it.listing.add("b")
        await reads(house)
        await reads(house)
        found = series(house.app)
        # what the first read only learns is seen as well
        assert found[f"poller_items_seen_total{{{WATCH}}}"] == 3
        assert found[f"poller_items_dispatched_total{{{WATCH}}}"] == 0
        it.chat.down = False
        # an alert is a delivery too, but not one of the job's items
        it.listing.answers += [FORBIDDEN] * 100
        await clock.sleep(1_800)
        assert series(house.app)[f"poller_items_dispatched_total{{{WATCH}}}"] == 2
        assert len(it.chat.sent) == 3
        await house.down()


@virtual
async def test_errors_in_a_row_and_the_breaker_as_it_opens_probes_and_closes(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, settings="  breaker_threshold: 2\n")
        await clock.sleep(1)
        states: list[float] = []
        it.listing.answers += [BROKEN] * 2
        await reads(house)
        assert (one(house.app, "poller_consecutive_errors"), one(house.app, "poller_breaker_state")) == (1, 0)
        await reads(house)
        assert (one(house.app, "poller_consecutive_errors"), one(house.app, "poller_breaker_state")) == (2, 2)
        # its wait is over, and the read that tries has not begun
        house.app.intake.scheduler.stop()
        await clock.sleep(35)
        assert one(house.app, "poller_breaker_state") == 1
        it.listing.after = {len(it.listing.seen) + 1: lambda: states.append(one(house.app, "poller_breaker_state"))}
        await reads(house)
        # and while it was under way
        assert states[-1] == 1
        assert (one(house.app, "poller_consecutive_errors"), one(house.app, "poller_breaker_state")) == (0, 0)
        it.listing.answers.append(FORBIDDEN)
        await reads(house)
        # nothing goes through until a person acts
        assert (one(house.app, "poller_consecutive_errors"), one(house.app, "poller_breaker_state")) == (1, 2)
        await house.down()


@virtual
async def test_jobs_are_taken_over_from_a_process_that_died_and_not_from_one_that_stopped(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, it.job(), it.job("other"))
        await clock.sleep(30)
        await house.down()
        await house.up()
        await clock.sleep(120)
        assert one(house.app, "poller_lease_takeovers_total") == 0
        await house.die()
        await house.up()
        await clock.sleep(120)
        assert one(house.app, "poller_lease_takeovers_total") == 1
        assert series(house.app)['poller_lease_takeovers_total{job_id="other"}'] == 1
        await house.down()


@virtual
async def test_the_series_of_a_job_go_with_it_and_with_its_agent(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        house = await started(it, clock, it.job(), it.job("other"), it.job("moved"))
        await clock.sleep(30)
        it.write(it.job(), it.job("moved", agent="bob"))
        await house.ask("reload")
        found = series(house.app)
        assert found[f'poller_ticks_total{{{WATCH},status="ok"}}'] == 1
        assert [name for name in found if 'job_id="other"' in name] == []
        assert {name for name in found if 'job_id="moved"' in name and 'agent="ana"' in name} == set()
        assert found['poller_items_seen_total{kind="webhook_poll",agent="bob",job_id="moved"}'] == 0
        it.directory.joinpath("pollers.yaml").unlink()
        await house.ask("reload")
        assert b"poller_" not in house.app._telemetry.page()
        await house.down()


@virtual
async def test_more_jobs_than_a_page_of_strangers_may_have_keep_their_names(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        it.write(*(it.job(f"job-{number}", schedule="{cron: '0 0 1 1 *'}") for number in range(501)))
        house = House(it.directory, clock)
        await house.up()
        found = [name for name in series(house.app) if name.startswith("poller_ticks_total")]
        assert (len(found), [name for name in found if "other" in name]) == (2_004, [])
        await house.down()


@virtual
async def test_without_jobs_there_is_no_series(clock: VirtualClock, tmp_path: Path) -> None:
    tmp_path.joinpath("harken.yaml").write_text("store: harken.db\n")
    house = House(tmp_path, clock)
    await house.up()
    assert b"poller_" not in house.app._telemetry.page()
    await house.down()
