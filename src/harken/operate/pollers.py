"""Operations on poller jobs. A job is a trigger of the same name with a feed of its own.

With `agent`, the jobs of other agents are treated as if they did not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from harken.circuit_breaker import Health, before_try, is_permanent
from harken.clock import from_unix
from harken.errors import Misconfigured, NotFound, Refused
from harken.feed import FeedState, TriggerState
from harken.operate.context import Context
from harken.operate.output_rows import Plain, plain
from harken.operate.trigger_status import mend_advice, over_reason
from harken.operate.triggers import refuse_expired
from harken.operate.wording import stamp
from harken.schedule import At, Every, is_over, next_due
from harken.store import Backlog
from harken.store.document_kinds import ALERT
from harken.suggest import suggest_fix

if TYPE_CHECKING:
    from harken.config.findings import Finding
    from harken.config.loaded import Loaded
    from harken.config.pollers.schema import Job

__all__ = ["Pollers", "list_jobs", "pause", "reload", "reset", "resume", "run_now", "show"]

JOB = "poller:"
WHOLE = ("section:pollers", "file:pollers.yaml", "file:harken.yaml")
PLAN = ("add", "replace", "remove", "keep")
"""The kind of document in which it is kept what was told of a feed, and when."""

Rows: TypeAlias = list[Plain]
States: TypeAlias = tuple[Mapping[str, TriggerState], Mapping[str, FeedState], Mapping[str, Backlog]]


class Pollers:
    """The jobs for Python callers: each method returns the job afterwards, and each change is in the audit log."""

    def __init__(self, call: Callable[..., Awaitable[Plain]]) -> None:
        self._call = call

    async def list(self, agent: str = "") -> Rows:
        items: Rows = (await self._call("pollers.list", agent=agent))["items"]
        return items

    async def show(self, id: str, agent: str = "") -> Plain:
        return await self._call("pollers.show", id=id, agent=agent)

    async def run(self, id: str, agent: str = "") -> Plain:
        return await self._call("pollers.run", id=id, agent=agent)

    async def pause(self, id: str, agent: str = "") -> Plain:
        return await self._call("pollers.pause", id=id, agent=agent)

    async def resume(self, id: str, agent: str = "") -> Plain:
        return await self._call("pollers.resume", id=id, agent=agent)

    async def reset(self, id: str, agent: str = "") -> Plain:
        """Forget cursor, memory and errors, and start at now."""
        return await self._call("pollers.reset", id=id, agent=agent)


async def list_jobs(context: Context, *, agent: str = "") -> Plain:
    """Every job by id. A refused job is listed with the reason, although it does not run."""
    jobs = _jobs(context, agent)
    states = await _states(context)
    return {"items": [_row(context, id, jobs[id], states) for id in sorted(jobs)], "next": None}


async def show(context: Context, *, id: str, agent: str = "") -> Plain:
    """One job with all its settings, and the reason if it does not run."""
    job = _find_job(context, id, agent)
    loaded, states = _loaded(context), await _states(context)
    feed = states[1].get(job.feed) if job else None
    health = feed.health if feed else Health()
    breaker = _breaker(health, context.clock.time())
    return _row(context, id, job, states) | {
        "paused_reason": _stop(context, id, job, states) or None,
        "breaker": breaker,
        # while it is closed, this would be the wait after a failure, which next_run_at_ms shows
        "breaker_until_ms": None if breaker == "closed" else _unix_ms(health.blocked_until),
        "alert_cooldown_until_ms": _unix_ms(await _cooldown(context, loaded, job)),
        "refused": [str(finding) for finding in _findings(loaded, id)],
        "feed": job.feed if job else None,
        "file": loaded.origins.get(JOB + id),
        "settings": plain(job.settings) if job else None,
    }


def _breaker(health: Health, now: float) -> str:
    """The breaker's state: an open breaker whose wait is over is half-open; one that needs a person stays open."""
    state = before_try(health, now).state
    return "open" if state == "paused" else state


async def _cooldown(context: Context, loaded: Loaded, job: Job | None) -> float | None:
    """Until when alerts about the job are suppressed; None when one may be sent now."""
    told = await context.store.get(ALERT, job.feed) if job else None
    if told is None or loaded.pollers is None or not told.value.get("at"):
        return None
    until = float(told.value["at"]) + loaded.pollers.failure_alert_cooldown_secs
    return until if until > context.clock.time() else None


async def run_now(context: Context, *, id: str, agent: str = "") -> Plain:
    """Read the job now, through the same lease and commit as its schedule; what it finds is delivered as usual."""
    job, state = await _require_opened(context, id, agent)
    if state.paused:
        raise Refused(f"job {id} is paused: {state.paused}", fix=f"Resume it first: harken pollers resume {id}")
    await refuse_expired(context, id, context.feeds().get(job.feed), "read")
    report = await context.running().tick(job.feed, id)
    found = {name: report.get(name, 0) for name in ("seen", "new")}
    return {"id": id, "result": report["result"], **found, "error": report.get("error") or None}


async def pause(context: Context, *, id: str, agent: str = "") -> Plain:
    """Read and deliver nothing until it is resumed."""
    await _require_opened(context, id, agent)
    await context.store.pause(id, f"paused by the agent {agent}" if agent else "paused by a person")
    return await _row_after_change(context, id, agent)


async def resume(context: Context, *, id: str, agent: str = "") -> Plain:
    """Release held runs, clear errors and read again. Raises Refused, with the reason, if that cannot help."""
    job, state = await _require_opened(context, id, agent)
    await refuse_expired(context, id, context.feeds().get(job.feed), "resumed")
    states = await _states(context)
    over = over_reason(context.feeds().get(job.feed), states[1].get(job.feed))
    if over and not state.paused and not sum(states[2].get(id, Backlog()).held.values()):
        fix = f"Give it another time, or once more by hand: harken pollers run {id}"
        raise Refused(f"job {id} cannot be resumed: {over}", fix=fix)
    await context.store.resume(id)
    return await _row_after_change(context, id, agent)


async def reset(context: Context, *, id: str, agent: str = "") -> Plain:
    """Wipe cursor, memory and errors, end any pause, and start at now."""
    await _require_opened(context, id, agent)
    await context.store.reset(id, cursor=True)
    return await _row_after_change(context, id, agent)


async def reload(context: Context) -> Plain:
    """Load the configuration again and apply it. The plan lists jobs; `runs`: the old version goes on."""
    had = context.loaded is not None and context.loaded.pollers is not None
    plan = await context.running().reload()
    loaded = _loaded(context) if not had else context.loaded
    assert loaded is not None
    refused = [_refusal(loaded, name) for name in sorted(loaded.refused) if name.startswith(JOB) or name in WHOLE]
    return {"ok": not refused, **{what: _ids(plan.get(what, ())) for what in PLAN}, "refused": refused}


def _refusal(loaded: Loaded, name: str) -> Plain:
    id = name.partition(":")[2]
    errors = [str(finding) for finding in loaded.refused[name]]
    return {"id": id, "errors": errors, "runs": name.startswith(JOB) and id in loaded.jobs}


def _ids(names: Iterable[str]) -> list[str]:
    return [name.removeprefix(JOB) for name in names if name.startswith(JOB)]


def _loaded(context: Context) -> Loaded:
    """The configuration; raises NotFound when it has no enabled pollers section."""
    loaded = context.loaded
    if loaded is not None and loaded.pollers is not None:
        return loaded
    broken = [finding for name in WHOLE for finding in (loaded.refused.get(name, ()) if loaded else ())]
    if broken:
        raise NotFound(f"the pollers section cannot be used: {broken[0]}", fix="See: harken config check")
    fix = "Write pollers: with your jobs into pollers.yaml or harken.yaml, and not enabled: false"
    raise NotFound("there is no pollers section", fix=fix)


def _jobs(context: Context, agent: str) -> dict[str, Job | None]:
    """The jobs that the agent may see. A refused job has no known agent, so only people see it."""
    loaded = _loaded(context)
    if agent:
        return {id: job for id, job in loaded.jobs.items() if job.agent == agent}
    refused = dict.fromkeys(_ids(loaded.refused))
    return {**refused, **loaded.jobs}


def _find_job(context: Context, id: str, agent: str) -> Job | None:
    jobs = _jobs(context, agent)
    if id not in jobs:
        raise NotFound(f"there is no job {id}", fix=suggest_fix(id, jobs))
    return jobs[id]


async def _require_opened(context: Context, id: str, agent: str) -> tuple[Job, TriggerState]:
    """The job and its trigger's state; raises NotFound when no controller has opened it yet."""
    job = _find_job(context, id, agent)
    if job is None:
        found = _findings(_loaded(context), id)[0]
        raise Misconfigured(f"job {id} is refused: {found.message}", fix=found.fix or "See: harken config check")
    states = {state.name: state for state in await context.store.triggers()}
    if id not in states:
        raise NotFound(f"job {id} is configured, but no controller has opened it yet", fix="Run: harken start")
    return job, states[id]


async def _row_after_change(context: Context, id: str, agent: str) -> Plain:
    context.nudge()
    return _row(context, id, _find_job(context, id, agent), await _states(context))


async def _states(context: Context) -> States:
    triggers = {state.name: state for state in await context.store.triggers()}
    feeds = {state.name: state for state in await context.store.feeds()}
    return triggers, feeds, await context.store.backlogs()


def _findings(loaded: Loaded, id: str) -> list[Finding]:
    """The job's findings, errors before warnings."""
    return sorted(loaded.refused.get(JOB + id, ()), key=lambda finding: finding.severity != "error")


def _row(context: Context, id: str, job: Job | None, states: States) -> Plain:
    trigger, feed = states[0].get(id), states[1].get(job.feed) if job else None
    stopped = bool(_stop(context, id, job, states))
    probed = feed is not None and feed.health.probed and not (trigger and trigger.paused)
    backlog = states[2].get(id, Backlog())
    return {
        "id": id,
        "kind": job.kind if job else None,
        "agent": job.agent if job else None,
        "paused": stopped,
        "last_run_at_ms": _ms(feed.last_tick) if feed else None,
        "next_run_at_ms": _ms(_next(context, job, feed)) if job and feed and not (stopped and not probed) else None,
        "last_status": _status(feed, backlog) if feed else None,
        "last_error": _error(context, id, feed, backlog),
        "consecutive_errors": feed.health.failures if feed else 0,
        "items_seen_total": feed.seen if feed else 0,
        "items_dispatched_total": trigger.done if trigger and job else 0,
    }


def _stop(context: Context, id: str, job: Job | None, states: States) -> str:
    """Why the job is not read; empty when it is."""
    if job is None:
        return "it is refused as it is written, so it does not run"
    trigger, feed = states[0].get(id), states[1].get(job.feed)
    if trigger is not None and trigger.paused:
        return trigger.paused
    if feed is not None and feed.health.state == "paused":
        advice = mend_advice(id, feed.health, context.clock.now(), is_job=True)
        return f"{feed.health.message or feed.health.code}. {advice}"
    definition = context.feeds().get(job.feed)
    schedule = definition.schedule if definition else None
    if feed is not None and isinstance(schedule, At) and is_over(schedule, feed.last_success):
        return f"it was to be read once, at {stamp(schedule.instant)}, and was"
    return ""


def _next(context: Context, job: Job, feed: FeedState) -> datetime | None:
    """When the job is read next; before the first read this comes from its schedule."""
    definition = context.feeds().get(job.feed)
    schedule = definition.schedule if definition else None
    if isinstance(schedule, At):
        return max(schedule.instant, feed.next_due or schedule.instant)
    if feed.next_due is not None or schedule is None or isinstance(schedule, Every):
        return feed.next_due
    return next_due(schedule, feed.created_at)


def _status(feed: FeedState, backlog: Backlog) -> str | None:
    """The result of the last read, or of its deliveries while reads succeed; None before the first read and after a
    reset of its errors."""
    if feed.last_tick is None:
        return None
    health = feed.health
    if health.clean and (backlog.dead or backlog.retrying):
        return "permanent" if backlog.dead else "transient"
    if health.clean:
        return "ok" if feed.last_success == feed.last_tick else None
    if health.code == "deferred":
        return "skipped"
    return "permanent" if health.state == "paused" or is_permanent(health.code) else "transient"


def _error(context: Context, id: str, feed: FeedState | None, backlog: Backlog) -> str | None:
    if feed is not None and not feed.health.clean:
        return feed.health.message
    if backlog.dead:
        return f"{_deliveries(backlog.dead)} given up. See: harken dead list; then: harken dead retry --trigger {id}"
    if backlog.retrying:
        return f"{_deliveries(backlog.retrying)} tried again. See: harken runs list --trigger {id} --status ready"
    found = _findings(_loaded(context), id)
    return str(found[0]) if found else None


def _deliveries(number: int) -> str:
    return "1 delivery is" if number == 1 else f"{number} deliveries are"


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _unix_ms(seconds: float | None) -> int | None:
    return None if seconds is None else _ms(from_unix(seconds))
