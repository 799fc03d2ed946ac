"""`harken triggers backtest`: what a trigger's rules, or changed ones, make of the events that are stored.

Unchanged rules must give the recorded verdicts: the answer says on how many events that was checked, and what could not
be checked because it is no longer stored. Everything goes through the functions that fire: conditions through
`match.Screen`, what passes through `match.match` and a store's own commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.durations import parse_duration
from harken.errors import Forbidden, Misconfigured, Refused
from harken.event import Recorded, Verdict
from harken.feed import INTERNAL, Feed, Trigger, TriggerState
from harken.language.cel import Condition, compile_condition
from harken.match import Rule, Rules, Screen
from harken.operate.backtest_clock import PastClock
from harken.operate.backtest_replay import Past, PastRun, commit_of, orders_between, position_in_run, runs_between
from harken.operate.backtest_scan import STARTED, Reading, Scan, differs, scan
from harken.operate.clause_blame import blame_rows, blame_sentence
from harken.operate.context import Context
from harken.operate.events import moment_of
from harken.operate.output_rows import Plain, plain, title_of
from harken.operate.progress import Progress
from harken.operate.wording import count

__all__ = ["backtest", "rules_of"]

LAST = "7d"
SAMPLES = 10
COSTED = 50
"""Among so many of the last runs the cost of one is looked for."""
PER_READ = 200
MOST_LOOKED_UP = 2_000
"""So many verdicts that no condition explains are looked at one by one."""

NO_VERDICT = "the trigger did not listen when they came"
OTHER_START = "the start line was another one then"
GONE = "what the verdict refers to is no longer stored"
BEGAN_BEFORE = "their run began to gather before the first event that was read"
RUN_GONE = "the end of an earlier run is no longer stored"
BUDGET = "it depends on the moment at which earlier runs were started"
TOO_MANY = "more than were looked at one by one"


class Tested(msgspec.Struct, kw_only=True):
    """What the backtest found beyond its scan. `before` and `after` count outcomes; `same` verdicts were reproduced."""

    same: int = 0
    unknown: Counter[str] = msgspec.field(default_factory=Counter)
    differing: list[Plain] = []
    differing_count: int = 0
    before: Counter[str] = msgspec.field(default_factory=Counter)
    after: Counter[str] = msgspec.field(default_factory=Counter)
    gained: list[int] = []
    lost: list[int] = []
    gained_count: int = 0
    lost_count: int = 0
    runs_before: int = 0
    runs_after: int = 0


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounded the events: how long runs took, when people released held ones. `counted`: those of the span."""

    feeds: Sequence[Feed]
    state: TriggerState
    runs: Mapping[str, PastRun]
    orders: Sequence[tuple[datetime, str]]
    begin: datetime
    ids: Sequence[int]
    counted: frozenset[int]


async def backtest(
    context: Context, *, name: str, condition: str | None = None, last: str = "", since: str = "", until: str = ""
) -> Plain:
    """Decide the trigger's stored events again, with its condition or a changed one. Changes nothing."""
    now = context.clock.now()
    begin, end = _span(last, since, until, now)
    trigger, state, feed = await rules_of(context, name)
    if context.principal.owner and INTERNAL in trigger.feeds:
        # the counts of a condition, and of each of its clauses, would tell of the runs of others
        fix = "Try a draft of it: its dry run has the events that are about a workflow of yours"
        raise Forbidden("events of Harken itself are about everything, and not counted for an owner", fix=fix)
    changed = _compile(trigger.condition if condition is None else condition)
    feeds = _feeds_of(context, trigger)
    plainly = is_plain(trigger)
    found = Scan()
    for each in feeds:
        rule = Rule(trigger, state, each.name)
        rules = Rules(0, each, (rule,))
        screen = Screen(rule, rules, rule.condition if condition is None else changed)
        reading = await _reading(context, each, end, alone=len(feeds) == 1)
        keep = not plainly
        await scan(context.store, screen, rules, name, begin, end, keep_passed=keep, found=found, on_page=reading.add)
    found.passed.sort()
    tested = _tested(found)
    if plainly:
        await _look_at_odd(context, found, tested, name)
    else:
        other = changed if condition is not None else None
        await _live_again(context, found, tested, feeds, trigger, state, other, begin)
    rows = await _samples(context, name, [*tested.gained, *tested.lost])
    answer = _answer(found, tested, trigger, feed, condition, rows, context.feed_label(feed.name))
    answer["span"] = {"since": plain(begin), "until": plain(end or now)}
    answer["cost"] = await _cost(context, name, tested.runs_after, _hours(begin, end or now))
    answer["per_hour"] = {
        "recorded": round(tested.runs_before / _hours(begin, end or now), 3),
        "now": round(tested.runs_after / _hours(begin, end or now), 3),
    }
    answer["clauses"] = blame_rows(screen, found, changed)
    return answer | {"lines": _lines(answer)}


async def rules_of(context: Context, name: str) -> tuple[Trigger, TriggerState, Feed]:
    state = await context.trigger(name)
    trigger = context.triggers().get(name)
    feed = context.feeds().get(trigger.feed) if trigger is not None else None
    if trigger is None or feed is None:
        raise Refused(f"trigger {name} is not configured now", fix="Put it back, then ask again")
    return trigger, state, feed


async def _reading(context: Context, feed: Feed, end: datetime | None, *, alone: bool) -> Reading:
    newest = (await context.store.events(feed=feed.name, limit=1)).items
    what = "events" if alone else f"events of {context.feed_label(feed.name)}"
    return Reading(context.report, newest[0] if newest else None, end, what)


def _feeds_of(context: Context, trigger: Trigger) -> list[Feed]:
    """The feeds that it listens to: one, or those of the parts of its join."""
    known = context.feeds()
    missing = [name for name in trigger.feeds if name not in known]
    if missing:
        raise Refused(f"feed {missing[0]} is not configured now", fix="Put it back, then ask again")
    return [known[name] for name in trigger.feeds]


def is_plain(trigger: Trigger) -> bool:
    """Whether nothing but type, start line and condition decides: every event that passes them starts a run."""
    same = {"condition", "startup", "backfill", "flood_limit", "types", "max_attempts", "stale_after", "source"}
    same |= {"priority", "spacing", "quiet", "name", "feed", "workflow", "workflow_rev"}
    return Trigger(**{name: getattr(trigger, name) for name in same}) == trigger


def _span(last: str, since: str, until: str, now: datetime) -> tuple[datetime, datetime | None]:
    if last and since:
        raise Misconfigured("last and since exclude each other", fix="Use one of them")
    if since:
        begin = moment_of(since, now)
        assert begin is not None
    else:
        begin = now - timedelta(seconds=parse_duration(last or LAST))
    end = moment_of(until, now)
    if end is not None and end <= begin:
        raise Misconfigured("the span ends before it begins", fix="Give an earlier --since or a later --until")
    return begin, end


def _compile(source: str) -> Condition | None:
    return compile_condition(source) if source.strip() else None


def _hours(begin: datetime, end: datetime) -> float:
    return max((end - begin).total_seconds() / 3600, 1e-9)


def _tested(found: Scan) -> Tested:
    """Everything that the tally alone says, as if each event that passes fired."""
    tested = Tested(
        differing=[],
        differing_count=found.differing_count,
        gained=found.gained,
        lost=found.lost,
    )
    for (outcome, screened), number in found.tally.items():
        tested.before[outcome] += number
        after = _after(outcome, screened.changed)
        tested.after[after] += number
        if not differs(outcome, screened):
            tested.same += number
        started, starts = outcome in STARTED, after in STARTED
        tested.gained_count += number if starts and not started else 0
        tested.lost_count += number if started and not starts else 0
    for (outcome, listens, begun, _), number in found.unheard.items():
        if not listens:
            continue
        if outcome == "before_start" and not begun:
            tested.same += number
            tested.before[outcome] += number
            tested.after[outcome] += number
        else:
            tested.unknown[OTHER_START if outcome else NO_VERDICT] += number
    tested.runs_before = sum(tested.before[outcome] for outcome in ("fired", "held"))
    tested.runs_after = sum(tested.after[outcome] for outcome in ("fired", "held"))
    return tested


def _after(outcome: str, changed: str) -> str:
    """The outcome with the changed condition, where only the condition decides."""
    if changed != "true":
        return "filtered" if changed == "false" else "error"
    return "fired" if outcome in ("filtered", "error") else outcome


async def _look_at_odd(context: Context, found: Scan, tested: Tested, name: str) -> None:
    """Look at events that passed and did not fire: why is in their verdict, and in what came before."""
    tested.differing += [await _difference(context, id, name, "") for id in found.differing[:SAMPLES]]
    if len(found.odd) > MOST_LOOKED_UP:
        tested.same -= len(found.odd) - MOST_LOOKED_UP
        tested.unknown[TOO_MANY] += len(found.odd) - MOST_LOOKED_UP
    for id in found.odd[:MOST_LOOKED_UP]:
        event = await context.store.event(id)
        verdict = _verdict(event, name)
        if event is None or verdict is None:
            continue
        if verdict.outcome == "held" and ("paused" in verdict.reason or "flood" in verdict.reason):
            continue
        tested.same -= 1
        if verdict.outcome == "duplicate":
            if await _has_earlier(context, event, name):
                tested.same += 1
            else:
                tested.unknown[GONE] += 1
            continue
        tested.differing_count += 1
        if len(tested.differing) < SAMPLES:
            tested.differing.append(_difference_row(event, verdict, "fired"))


async def _has_earlier(context: Context, event: Recorded, name: str) -> bool:
    """Whether an earlier event of the same key started the run that this one refers to."""
    page = await context.store.events(feed=event.feed, key=event.key, before=event.id, limit=20)
    return any((verdict := _verdict(each, name)) is not None and verdict.run_id for each in page.items)


async def _live_again(
    context: Context,
    found: Scan,
    tested: Tested,
    feeds: Sequence[Feed],
    trigger: Trigger,
    state: TriggerState,
    changed: Condition | None,
    begin: datetime,
) -> None:
    """Let the events that pass go through a store of their own, with the rules as they are and as changed."""
    tested.differing += [await _difference(context, id, trigger.name, "") for id in found.differing[:SAMPLES]]
    warm = begin - _warm_up(trigger)
    costs = trigger.budget is not None and bool(trigger.budget.tokens_per_day or trigger.budget.usd_per_day)
    runs = await runs_between(context.store, trigger.name, warm, journals=costs)
    orders = await orders_between(context.store, trigger.name, warm)
    earlier = sorted([id for feed in feeds for id in await _earlier(context, feed, trigger, warm, begin)])
    ids = [*earlier, *found.passed]
    world = World(
        feeds=feeds, state=state, runs=runs, orders=orders, begin=warm, ids=ids, counted=frozenset(found.passed)
    )
    await _check(context, tested, world, trigger)
    if changed is None:
        tested.after, tested.runs_after = Counter(tested.before), tested.runs_before
        return
    other = msgspec.structs.replace(trigger, condition=changed.source)
    await _compare(context, tested, world, other)


def _warm_up(trigger: Trigger) -> timedelta:
    """How long before the span events may still matter within it."""
    window = getattr(trigger.gather, "window", None) or getattr(trigger.gather, "within", None) or 0.0
    day = 86_400.0 if trigger.budget is not None else 0.0
    limits = [trigger.throttle.per if trigger.throttle else 0.0, trigger.dedupe.within if trigger.dedupe else 0.0]
    return timedelta(seconds=max(3600.0, 2 * float(window), day, trigger.max_age, *limits))


async def _earlier(context: Context, feed: Feed, trigger: Trigger, warm: datetime, begin: datetime) -> list[int]:
    """Events before the span that started something."""
    found: list[int] = []
    after = 0
    while True:
        page = await context.store.history(feed.name, trigger.name, since=warm, until=begin, after=after)
        found += [id for id, outcome in zip(page.ids, page.outcomes, strict=True) if outcome in STARTED]
        if page.next is None:
            return found
        after = page.next


async def _check(
    context: Context,
    tested: Tested,
    world: World,
    trigger: Trigger,
) -> None:
    begun: set[str] = set()
    async with context.running().scratch(clock := PastClock(world.begin)) as store:
        past = Past(store, clock, world.runs, world.orders)
        await past.open(world.feeds, trigger, world.state, _workflows(trigger))
        async for commit in _commits(context, world.ids, trigger.name, "events decided again"):
            group = [(event, recorded) for event, recorded in commit if recorded is not None]
            known = [pair for pair in group if await _is_known(context, tested, world, trigger, *pair, begun)]
            decisions = await past.decide(known) if known else []
            for (event, recorded), decided in zip(known, decisions, strict=True):
                if event.id in world.counted:
                    _count_checked(tested, trigger, event, recorded, decided, blind=past.blind)


async def _is_known(
    context: Context,
    tested: Tested,
    world: World,
    trigger: Trigger,
    event: Recorded,
    recorded: Verdict,
    begun: set[str],
) -> bool:
    """Whether everything that the verdict refers to was decided here before. `begun`: the runs that were."""
    counted = event.id in world.counted
    if recorded.outcome in ("filtered", "before_start"):
        return False
    if position_in_run(recorded.reason) > 1 and recorded.run_id not in begun:
        if counted:
            _unknown(tested, BEGAN_BEFORE)
        return False
    if recorded.outcome == "duplicate" and recorded.run_id not in begun:
        if counted and not await _has_earlier(context, event, trigger.name):
            _unknown(tested, GONE)
        return False
    begun.add(recorded.run_id)
    return True


def _count_checked(
    tested: Tested, trigger: Trigger, event: Recorded, recorded: Verdict, decided: Verdict | None, *, blind: bool
) -> None:
    tested.runs_before += position_in_run(recorded.reason) == 1
    if decided is not None and _same(recorded, decided):
        return
    tested.same -= 1
    if blind and {recorded.outcome, decided.outcome if decided else ""} & {"skipped", "fired"}:
        tested.unknown[RUN_GONE] += 1
    elif trigger.budget is not None and "budget" in recorded.reason + (decided.reason if decided else ""):
        tested.unknown[BUDGET] += 1
    else:
        tested.differing_count += 1
        if len(tested.differing) < SAMPLES:
            tested.differing.append(_difference_row(event, recorded, decided.outcome if decided else "none"))


def _unknown(tested: Tested, why: str) -> None:
    tested.same -= 1
    tested.unknown[why] += 1


def _same(recorded: Verdict, decided: Verdict) -> bool:
    if recorded.outcome != decided.outcome:
        return False
    return position_in_run(recorded.reason) == position_in_run(decided.reason)


async def _compare(
    context: Context,
    tested: Tested,
    world: World,
    trigger: Trigger,
) -> None:
    """Decide with the changed condition, and count anew what it gains and loses."""
    tested.gained, tested.lost, tested.gained_count, tested.lost_count = [], [], 0, 0
    after: Counter[str] = Counter()
    runs_after = 0
    async with context.running().scratch(clock := PastClock(world.begin)) as store:
        past = Past(store, clock, world.runs, world.orders)
        await past.open(world.feeds, trigger, world.state, _workflows(trigger))
        async for commit in _commits(context, world.ids, trigger.name, "events decided with the change"):
            for (event, recorded), decided in zip(commit, await past.decide(commit), strict=True):
                if event.id not in world.counted:
                    continue
                outcome = decided.outcome if decided is not None else "filtered"
                after[outcome] += 1
                position = position_in_run(decided.reason) if decided is not None else 0
                runs_after += outcome in ("fired", "held") or position == 1
                started = recorded is not None and recorded.outcome in STARTED
                if (outcome in STARTED) != started:
                    ids_of = tested.lost if started else tested.gained
                    tested.gained_count += not started
                    tested.lost_count += started
                    if len(ids_of) < SAMPLES:
                        ids_of.append(event.id)
    declined = sum(tested.before.values()) - sum(after.values())
    after["filtered"] += max(0, declined)
    tested.after, tested.runs_after = after, runs_after


async def _commits(
    context: Context, ids: Sequence[int], name: str, what: str
) -> AsyncIterator[list[tuple[Recorded, Verdict | None]]]:
    """These events with the trigger's verdicts, oldest first, those together that were recorded together.

    `what` is said of them to whoever waits."""
    group: list[tuple[Recorded, Verdict | None]] = []
    async for event in _ordered(context, ids, what):
        pair = (event, _verdict(event, name))
        if group and commit_of(*pair) != commit_of(*group[0]):
            yield group
            group = []
        group.append(pair)
    if group:
        yield group


async def _ordered(context: Context, ids: Sequence[int], what: str) -> AsyncIterator[Recorded]:
    """These events, oldest first; those that were deleted meanwhile are left out."""
    for begin in range(0, len(ids), PER_READ):
        context.report(Progress(done=begin, total=len(ids), what=what))
        for event in reversed(await context.store.events_by_id(ids[begin : begin + PER_READ])):
            yield event


def _workflows(trigger: Trigger) -> dict[str, str]:
    return dict(trigger.routes) or {trigger.workflow: trigger.workflow_rev}


def _verdict(event: Recorded | None, name: str) -> Verdict | None:
    return next((verdict for verdict in event.verdicts if verdict.trigger == name), None) if event else None


async def _difference(context: Context, id: int, name: str, now: str) -> Plain:
    event = await context.store.event(id)
    return _difference_row(event, _verdict(event, name), now or "decided otherwise by the condition")


def _difference_row(event: Recorded | None, verdict: Verdict | None, now: str) -> Plain:
    return {
        "id": event.id if event else 0,
        "key": event.key if event else "",
        "recorded": verdict.outcome if verdict else "",
        "reason": verdict.reason if verdict else "",
        "now": now,
        "recorded_at": plain(event.recorded_at) if event else None,
    }


async def _samples(context: Context, name: str, ids: Sequence[int]) -> Mapping[int, Plain]:
    rows: dict[int, Plain] = {}
    for event in await context.store.events_by_id(ids) if ids else ():
        verdict = _verdict(event, name)
        rows[event.id] = {
            "id": event.id,
            "key": event.key,
            "title": title_of(event.data),
            "recorded_at": plain(event.recorded_at),
            "recorded": verdict.outcome if verdict else "",
            "reason": verdict.reason if verdict else "",
        }
    return rows


async def _cost(context: Context, name: str, runs: int, hours: float) -> Plain:
    """What these runs would use, by what the last ones used; zero where no model was asked."""
    page = await context.store.runs(trigger=name, limit=COSTED, journals=True)
    over = [run for run in page.items if run.finished_at is not None]
    tokens = sum(record.tokens for run in over for record in run.journal) / max(1, len(over))
    usd = sum(record.usd for run in over for record in run.journal) / max(1, len(over))
    return {
        "measured_runs": len(over),
        "tokens_per_run": round(tokens, 1),
        "usd_per_run": round(usd, 6),
        "tokens": round(tokens * runs),
        "usd": round(usd * runs, 4),
        "usd_per_day": round(usd * runs / hours * 24, 4),
    }


def _answer(
    found: Scan,
    tested: Tested,
    trigger: Trigger,
    feed: Feed,
    condition: str | None,
    rows: Mapping[int, Plain],
    label: str,
) -> Plain:
    unheard = sum(number for (_, listens, _, changed), number in found.unheard.items() if listens and changed == "true")
    unchanged = sum(tested.before.values()) - tested.gained_count - tested.lost_count
    return {
        "trigger": trigger.name,
        "feed": label,
        "condition": trigger.condition,
        "changed_condition": condition,
        "events": found.events,
        "checked": tested.same + tested.differing_count,
        "reproduced": tested.same,
        "not_reproduced": tested.differing_count,
        "differing": tested.differing,
        "not_checked": dict(tested.unknown),
        "recorded": dict(tested.before),
        "now": dict(tested.after),
        "diff": {
            "would_fire": tested.gained_count,
            "would_no_longer_fire": tested.lost_count,
            "unchanged": unchanged,
            "had_it_listened": unheard,
        },
        "would_fire": [rows[id] for id in tested.gained if id in rows],
        "would_no_longer_fire": [rows[id] for id in tested.lost if id in rows],
        "runs": {"recorded": tested.runs_before, "now": tested.runs_after},
    }


def _lines(answer: Mapping[str, Any]) -> list[str]:
    span, diff, cost = answer["span"], answer["diff"], answer["cost"]
    lines = [f"{count(answer['events'], 'event')} of {answer['feed']}, recorded since {span['since']}"]
    lines.append(_parity_line(answer))
    lines += [f"  not checked: {number}, as {why}" for why, number in answer["not_checked"].items()]
    for row in answer["differing"]:
        lines.append(f"  #{row['id']} {row['key']}: recorded {row['recorded']}, now {row['now']}. {row['reason']}")
    if answer["changed_condition"] is not None:
        lines.append(
            f"with the changed condition {diff['would_fire']} more would fire, {diff['would_no_longer_fire']} would no "
            f"longer, {diff['unchanged']} stay as they are"
        )
        for label, rows in (("+", answer["would_fire"]), ("-", answer["would_no_longer_fire"])):
            lines += [f"  {label} #{row['id']} {row['key']} {row['title']} ({row['recorded']})" for row in rows]
    if diff["had_it_listened"]:
        lines.append(f"{diff['had_it_listened']} more would have fired had it listened, or begun, earlier")
    rate = answer["per_hour"]
    lines.append(
        f"runs: {answer['runs']['recorded']} recorded ({rate['recorded']:g} an hour), "
        f"{answer['runs']['now']} now ({rate['now']:g} an hour)"
    )
    if cost["tokens_per_run"] or cost["usd_per_run"]:
        lines.append(
            f"cost by the last {count(cost['measured_runs'], 'run')}: {cost['tokens']} tokens and {cost['usd']:g} USD, "
            f"{cost['usd_per_day']:g} USD a day"
        )
    return lines + [sentence for row in answer["clauses"] for sentence in blame_sentence(row)]


def _parity_line(answer: Mapping[str, Any]) -> str:
    checked, differing = answer["checked"], answer["not_reproduced"]
    if not checked:
        return "no verdict could be checked: the trigger has none on these events"
    if not differing:
        return f"unchanged rules give the recorded verdict for all {checked} that were checked (100%)"
    share = f"{100 * answer['reproduced'] / checked:.2f}%"
    return (
        f"unchanged rules give the recorded verdict for {answer['reproduced']} of {checked} ({share}): for the others "
        "the trigger was edited since, or this is a defect"
    )
