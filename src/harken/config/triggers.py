"""From the trigger of a workflow file to a Trigger and the feed it listens to."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from harken.config.findings import Path, Report, nearest
from harken.config.listen import Heard, hear
from harken.config.resolver import Made, Surroundings
from harken.config.trigger_schema import KINDS, LATER, Common, TriggerBlock
from harken.config.validate import as_table, check
from harken.config.yaml.nodes import Node, Scalar, Table, locate, strings
from harken.durations import format_duration
from harken.errors import HarkenError
from harken.feed import Budget, Digest, Spacing, Trigger
from harken.schedule import Every, Quiet

__all__ = ["read_trigger"]

_LATER_GATHERING = ("debounce", "join", "throttle", "dedupe")


def read_trigger(
    workflow: str, rev: str, node: Node, around: Surroundings, report: Report, source: str
) -> tuple[Trigger, Made] | None:
    """Return the trigger and its feed; None when anything is wrong with them."""
    path: Path = ("trigger",)
    table = as_table(node, report, path)
    if table is None:
        return None
    block = check(TriggerBlock, table, report, path)
    kind = _kind(table, report, path)
    heard = hear(kind, workflow, table, around, report, path) if kind else None
    _check_texts(table, around, report, path)
    _check_secrets(table, report, path)
    _check_start(heard.mapped if heard else table, report, heard.path if heard else path)
    gather = _gather(block, table, report, path) if block else None
    if block is None or heard is None or report.failed:
        return None
    condition = _both(heard.condition, block.condition)
    if heard.condition:
        _compiles(around.check_condition, Scalar(value=condition, place=table.place), report, (*path, "event"))
    _check_freshness(block, heard, table, report, path)
    trigger = _trigger(workflow, rev, block, heard, source)
    return msgspec.structs.replace(trigger, condition=condition, gather=gather), heard.made


def _kind(table: Table, report: Report, path: Path) -> str | None:
    given = [name for name in (*KINDS, *LATER) if name in table.items]
    node = table.items.get("type")
    if node is not None:
        named = node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""
        if named not in (*KINDS, *LATER):
            report.error(node.place, (*path, "type"), "there is no such trigger", nearest(named, KINDS))
            return None
        given = [named, *(name for name in given if name != named)]
    if len(given) != 1:
        message = f"has {' and '.join(given)}" if given else "says nothing about what to listen to"
        fix = "Keep one, and put the other into a workflow of its own" if given else f"Add one of {', '.join(KINDS)}"
        report.error(table.place, path, message, fix, "invalid" if given else "missing")
        return None
    if given[0] in LATER:
        place = locate(table, (given[0],), key=True)
        report.error(place, (*path, given[0]), f"this version has no {given[0]} trigger yet", "", "not_yet")
        return None
    return given[0]


def _check_start(table: Table, report: Report, path: Path) -> None:
    startup = getattr(table.items.get("startup"), "value", None)
    if startup == "backfill" and "backfill" not in table.items:
        report.error(table.keys["startup"], (*path, "startup"), "needs backfill:", "Add backfill: 4h", "missing")
    if startup == "ignore_historical" and "backfill" in table.items:
        message = "does not go with startup: ignore_historical"
        report.error(table.keys["backfill"], (*path, "backfill"), message, "Remove one of them")


def _check_texts(table: Table, around: Surroundings, report: Report, path: Path) -> None:
    condition = table.items.get("condition")
    if isinstance(condition, Scalar) and isinstance(condition.value, str) and condition.value:
        _compiles(around.check_condition, condition, report, (*path, "condition"))
    for inside in (("concurrency_key",), ("gather", "digest", "by"), ("input_mapping",), ("poll", "input_mapping")):
        for rest, scalar in strings(_inside(table, inside)):
            _compiles(around.check_template, scalar, report, (*path, *inside, *rest))
            _check_key(scalar, report, path, inside)


def _check_key(scalar: Scalar, report: Report, path: Path, inside: Path) -> None:
    """A key without a template is the same for every event: fine for a lock, never what a digest means."""
    text = str(scalar.value)
    fix = f"Write {{{{.trigger.event.{text.removeprefix('event.')}}}}} for the value of a field"
    if "{{" in text or inside[-1] not in ("by", "concurrency_key"):
        return
    if inside[-1] == "by":
        report.error(scalar.place, (*path, *inside), "is the same for every event", fix)
    elif "." in text:
        report.warn(scalar.place, (*path, *inside), "is one key for all events", fix)


def _check_secrets(table: Table, report: Report, path: Path) -> None:
    """Only what reaches a service may hold a secret: conditions and inputs are stored with what they decided."""
    for inside, scalar in strings(table):
        if scalar.shown is not None and inside[0] != "webhook" and inside[:2] != ("poll", "query"):
            fix = "Use it in poll.query, in webhook or in a step"
            report.error(scalar.place, (*path, *inside), "a secret cannot stand here", fix)


def _check_freshness(block: Common, heard: Heard, table: Table, report: Report, path: Path) -> None:
    schedule = heard.made.feed.schedule
    if block.stale_after and isinstance(schedule, Every) and block.stale_after < 2 * schedule.seconds:
        fix = f"Write at least {format_duration(2 * schedule.seconds)}, or read it more often"
        message = "is shorter than two intervals, so it is stale between two reads"
        report.warn(table.keys["stale_after"], (*path, "stale_after"), message, fix, "too_short")


def _inside(node: Node, path: tuple[str, ...]) -> Node:
    for part in path:
        found = node.items.get(part) if isinstance(node, Table) else None
        if found is None:
            return Scalar(value=None, place=node.place)
        node = found
    return node


def _compiles(compiler: Callable[[str], object], scalar: Scalar, report: Report, path: Path) -> None:
    try:
        compiler(str(scalar.value))
    except HarkenError as error:
        report.error(scalar.place, path, error.message, error.fix, "expression")


def _gather(block: Common, table: Table, report: Report, path: Path) -> Digest | None:
    gather = block.gather
    for name in _LATER_GATHERING:
        if gather is not None and getattr(gather, name) is not None:
            place = locate(table, ("gather", name), key=True)
            report.error(place, (*path, "gather", name), f"this version has no {name} yet", "Use digest", "not_yet")
    if gather is None or gather.digest is None:
        return None
    return Digest(window=gather.digest.window, max=gather.digest.max, by=gather.digest.by)


def _trigger(workflow: str, rev: str, block: Common, heard: Heard, source: str) -> Trigger:
    asked = heard.asked
    return Trigger(
        name=workflow,
        feed=heard.made.feed.name,
        workflow=workflow,
        workflow_rev=rev,
        mapping=asked.input_mapping,
        overlap=block.overlap,
        concurrency_key=block.concurrency_key,
        spacing=_spacing(heard),
        priority=block.priority,
        startup=asked.startup or "since_last",
        backfill=asked.backfill or 0.0,
        flood_limit=block.flood_limit,
        types=heard.types,
        max_attempts=block.max_attempts,
        stale_after=block.stale_after or 0.0,
        max_age=block.max_age or 0.0,
        quiet=_quiet(block),
        budget=Budget(**block.budget.model_dump()) if block.budget else None,
        source=source,
    )


def _quiet(block: Common) -> Quiet | None:
    return Quiet(**block.quiet_hours.model_dump()) if block.quiet_hours else None


def _spacing(heard: Heard) -> Spacing | None:
    query, asked = heard.made.query, heard.asked
    written = query.model_fields_set if query is not None else frozenset()
    per_tick = asked.max_per_tick or (getattr(query, "max_per_tick", 0) if "max_per_tick" in written else 0)
    delay = asked.dispatch_delay_ms or (getattr(query, "dispatch_delay_ms", 0) if "dispatch_delay_ms" in written else 0)
    return Spacing(per_tick=per_tick or 0, delay=(delay or 0) / 1_000) if per_tick or delay else None


def _both(first: str, second: str) -> str:
    return f"({first}) && ({second})" if first and second.strip() else first or second.strip()
