"""Whether the engine did what the model says."""

from __future__ import annotations

from collections import Counter

from harken.feed import INTERNAL
from harken.runs import Run
from harken.schedule import quiet_hours
from tests.system.property.engine import Stage
from tests.system.property.scenario_config import EVERY_MINUTES, LOOKBACK, QUIET
from tests.system.property.scenarios import Jump, Meanwhile


async def judge(stage: Stage) -> None:
    runs = await stage.runs()
    each_occurrence_has_one_run(stage, [run for run in runs if run.trigger != "after"])
    all_are_over(stage, runs)
    await events_are_recorded_once(stage)
    await steps_are_recorded_once(stage, runs)
    everything_was_shown(stage)
    schedule_was_kept(stage)
    ends_were_announced(stage, runs)
    nothing_started_in_quiet_hours(stage, runs)
    assert await stage.store.check() == []


def each_occurrence_has_one_run(stage: Stage, runs: list[Run]) -> None:
    found = Counter((run.trigger, key) for run in runs for key in run.event_keys)
    expected = stage.model.runs()
    assert not expected - found, f"lost: {sorted(expected - found)}"
    assert not found - expected, f"too many: {sorted((found - expected).items())}"
    recorded = set(stage.model.feeds["push"].keys) if stage.scenario.push else set()
    assert stage.accepted <= recorded, f"accepted and lost: {stage.accepted - recorded}"


def all_are_over(stage: Stage, runs: list[Run]) -> None:
    yielding = {trigger.name for trigger in stage.wanted.values() if trigger.overlap == "cancel_previous"}
    left = [(run.trigger, run.event_keys, run.status, run.hold, run.error) for run in runs if run.status != "done"]
    left = [one for one in left if one[0] not in yielding or one[2] != "cancelled"]
    assert not left, f"not over: {left}"


async def events_are_recorded_once(stage: Stage) -> None:
    recorded: Counter[tuple[str, str]] = Counter()
    for event in await stage.store.events_after(0, 5_000):
        recorded[(event.feed, event.key)] += 1
    expected = Counter({(name, key): n for name, told in stage.model.feeds.items() for key, n in told.keys.items()})
    found = Counter({where: n for where, n in recorded.items() if where[0] not in (INTERNAL, "push")})
    expected = Counter({where: n for where, n in expected.items() if where[0] != "push"})
    assert found == expected, f"recorded but not new: {found - expected}; not recorded: {expected - found}"


async def steps_are_recorded_once(stage: Stage, runs: list[Run]) -> None:
    slow = [run for run in runs if run.workflow_rev == "slow@1" and run.status == "done"]
    for run in slow:
        whole = await stage.store.run(run.id)
        assert [record.path for record in whole.journal if record.status == "ok"] == ["one", "two"]
    keys = {key for _, key in stage.did}
    assert len(keys) >= 2 * len(slow), "each step of each run has an idempotency key of its own"


def everything_was_shown(stage: Stage) -> None:
    """What a source still has at the end, it must have been asked for."""
    for number, plan in enumerate(stage.scenario.feeds):
        world, told = stage.worlds[number], stage.model.feeds[f"f{number}"]
        items = world.log() if plan.view in ("log", "forward") else world.listing()
        if plan.view == "since":
            start = max(told.starts).timestamp()
            at = {change.id: change.at for change in world._changes}
            items = [item for item in items if item.stamp is not None and start <= item.stamp]
            items = [item for item in items if at[item.id] - (item.stamp or 0.0) <= LOOKBACK]
        items = items[-plan.cap :] if plan.cap else items
        assert {(item.id, item.state) for item in items} <= told.shown, "the source was not asked for all it has"


def schedule_was_kept(stage: Stage) -> None:
    """Every activation between the trigger's start and now, if none may be missed."""
    if stage.scenario.cron != "all":
        return
    start, now = stage.model.listeners["cron"].start.timestamp(), stage.clock.time()
    step = EVERY_MINUTES * 60
    hours = range(int(start // 3600), int(now // 3600) + 1)
    due = {hour * 3600 + minute * 60 for hour in hours for minute in range(0, 60, EVERY_MINUTES)}
    due = {instant for instant in due if start < instant <= now - step}
    fired = {event.occurred_at for served in stage.sources["cron"].served for event in served.batch.events}
    missed = due - {instant.timestamp() for instant in fired if instant is not None}
    assert not missed, f"{len(missed)} activations were missed"


def ends_were_announced(stage: Stage, runs: list[Run]) -> None:
    if stage.scenario.announced:
        over = Counter(run.id for run in runs if run.trigger != "after" and run.status == "done")
        told = Counter(key.split(":")[0] for run in runs if run.trigger == "after" for key in run.event_keys)
        assert told == over, f"not announced: {over - told}; announced twice: {told - over}"


def nothing_started_in_quiet_hours(stage: Stage, runs: list[Run]) -> None:
    """Unless the clock was set wrong, and with it the hours."""
    script = [it.what if isinstance(it, Meanwhile) else it for it in stage.scenario.script]
    if any(isinstance(it, Jump) for it in script):
        return
    quiet = {trigger.name for trigger in stage.wanted.values() if trigger.quiet is not None}
    started = [(run.trigger, run.started_at) for run in runs if run.trigger in quiet and run.started_at is not None]
    early = [(name, at) for name, at in started if quiet_hours(QUIET, at)[0] <= at]
    assert not early, f"started in quiet hours: {early}"
