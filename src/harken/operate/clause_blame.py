"""Clause blame: how many events each clause of a condition held back alone, and the smallest change that helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from harken.event import Recorded
from harken.feed import Trigger
from harken.language.cel import Condition, bind, compile_condition
from harken.language.cel.failed_clauses import and_clauses, failed_clauses, smallest_change
from harken.language.cel.python_to_cel_values import show
from harken.language.dotted_paths import MISSING
from harken.match import Screen
from harken.operate.backtest_scan import NearMisses, Scan
from harken.operate.context import Context
from harken.operate.event_from_record import past_variables
from harken.operate.output_rows import Plain
from harken.operate.owner_access import heard

__all__ = ["blame_rows", "blame_sentence", "near_miss", "recent_blame"]

VALUES = 5
RECENT = 200
"""Among so many of the last events `triggers show` looks for what clauses held back."""


def blame_rows(screen: Screen, found: Scan, condition: Condition | None) -> list[Plain]:
    """A row for each clause: how many events it failed for, and alone held back, with the smallest change."""
    if condition is None:
        return []
    rows = []
    for at, clause in enumerate(screen.clauses):
        near = found.near.get(at)
        row: Plain = {"clause": clause.source, "failed": found.blamed[at], "alone": near.count if near else 0}
        rows.append(row | _nearest(condition, at, near))
    return rows


def _nearest(condition: Condition, at: int, near: NearMisses | None) -> Plain:
    if near is None or not near.count:
        return {"values": {}, "nearest": [], "change": None, "condition": None, "adds": 0}
    # of values that are equally near, such as words, the commonest is proposed
    commonest = sorted(near.values.items(), key=lambda item: -item[1])
    change = smallest_change(condition, at, [{"event": near.examples[key]} for key, _ in commonest])
    return {
        "values": {_shown(value): number for (_, value), number in commonest[:VALUES]},
        "nearest": near.newest[:VALUES],
        "change": change.clause if change else None,
        "condition": change.condition if change else None,
        "adds": _adds(change.condition, near) if change else 0,
    }


def _adds(source: str, near: NearMisses) -> int:
    """How many of the events that only this clause held back the changed condition lets through."""
    if not source:
        return near.count
    changed = compile_condition(source)
    counted = ((number, near.examples[key]) for key, number in near.values.items())
    return sum(number for number, event in counted if changed.outcome(bind({"event": event}))[0] == "true")


def _shown(value: Any) -> str:
    return "not there" if value is MISSING else show(value)


def near_miss(source: str, event: Recorded) -> Plain | None:
    """The one clause that held the event back, with the smallest change; None if there were several, or none."""
    condition, variables = compile_condition(source), past_variables(event)
    clauses = and_clauses(condition)
    failed = failed_clauses(clauses, bind(variables))
    if len(failed) != 1:
        return None
    change = smallest_change(condition, failed[0], [variables])
    return {
        "clause": clauses[failed[0]].source,
        "of": len(clauses),
        "change": change.clause if change else None,
        "condition": change.condition if change else None,
    }


async def recent_blame(context: Context, definition: Trigger | None) -> list[Plain]:
    """What each clause held back among the trigger's last events."""
    if definition is None or not definition.condition:
        return []
    clauses = and_clauses(compile_condition(definition.condition))
    failed: Counter[int] = Counter()
    alone: Counter[int] = Counter()
    for event in heard(context, (await context.store.events(trigger=definition.name, limit=RECENT)).items):
        if definition.types and event.type not in definition.types:
            continue
        not_true = failed_clauses(clauses, bind(past_variables(event)))
        failed.update(not_true)
        alone.update(not_true if len(not_true) == 1 else ())
    return [{"clause": clause.source, "failed": failed[at], "alone": alone[at]} for at, clause in enumerate(clauses)]


def blame_sentence(row: Mapping[str, Any]) -> Iterator[str]:
    if not row["failed"]:
        return
    yield f"clause {row['clause']}: not true for {row['failed']}, alone held back {row['alone']}"
    if row["alone"]:
        values = ", ".join(f"{value} ({number})" for value, number in row["values"].items())
        yield f"  values: {values}"
        if row["change"]:
            yield f"  smallest change: {row['change']} lets {row['adds']} more through"
        elif row["change"] == "":
            yield f"  without it {row['adds']} more would pass"
