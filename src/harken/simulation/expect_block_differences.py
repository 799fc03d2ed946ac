"""Compares what a case expects with what happened: each difference with the path of what was written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from harken.event import Recorded, Verdict
from harken.feed import INTERNAL
from harken.runs import Run
from harken.simulation.case_schema import CallBlock, ExpectBlock, RunBlock, StepBlock, VerdictBlock
from harken.simulation.judge import Judgement
from harken.simulation.step_stand_ins import Effect

__all__ = ["Difference", "Outcome", "differences"]

Path = tuple[str | int, ...]
MATCHES = "matches"
"""`{matches: "^INC-"}` in place of a value: a regular expression that its text must match."""
LONGEST = 300


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What happened: everything that a case may look at. The runs have their journals."""

    events: Sequence[Recorded]
    runs: Sequence[Run]
    effects: Sequence[Effect]
    judgement: Judgement


class Difference(msgspec.Struct, frozen=True):
    """`path` leads to what was expected, in the case."""

    path: Path
    message: str


def differences(expect: ExpectBlock, outcome: Outcome) -> list[Difference]:
    return [
        *_runs(expect.runs, outcome),
        *_verdicts(expect.verdicts, outcome),
        *_calls(expect.calls, outcome.effects),
        *_faults(expect, outcome.judgement),
    ]


def _runs(expected: int | list[RunBlock] | None, outcome: Outcome) -> Iterator[Difference]:
    if expected is None:
        return
    path: Path = ("expect", "runs")
    runs = outcome.runs
    count = expected if isinstance(expected, int) else len(expected)
    if len(runs) != count:
        yield Difference(path, f"expected {_number(count, 'run')}, there {_were(len(runs))}{_shown_runs(outcome)}")
        if isinstance(expected, int) or not runs:
            return
    for at, (block, run) in enumerate(zip(expected if isinstance(expected, list) else (), runs, strict=False)):
        yield from _run((*path, at), block, run, outcome)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _were(count: int) -> str:
    return "was 1" if count == 1 else f"were {count}" if count else "was none"


def _shown_runs(outcome: Outcome) -> str:
    """The runs there are; without any, the verdicts that say why."""
    if outcome.runs:
        return ": " + "; ".join(f"{run.trigger or run.workflow} ({', '.join(run.event_keys)})" for run in outcome.runs)
    said = [
        f"{event.subject}: {verdict.outcome} for {verdict.trigger}{_because(verdict)}"
        for event in outcome.events
        for verdict in event.verdicts
        if event.feed != INTERNAL
    ]
    return ": " + "; ".join(said) if said else ", and no event was recorded"


def _because(verdict: Verdict) -> str:
    return f", {verdict.reason}" if verdict.reason else ""


def _run(path: Path, block: RunBlock, run: Run, outcome: Outcome) -> Iterator[Difference]:
    for name in ("workflow", "trigger", "status"):
        wanted, found = getattr(block, name), getattr(run, name)
        if wanted is not None and wanted != found:
            error = f" ({run.error})" if name == "status" and run.error else ""
            yield Difference((*path, name), f"expected {_show(wanted)}, got {_show(found)}{error}")
    if block.events is not None:
        named = {event.id: event for event in outcome.events}
        found_events = [named[number] for number in run.event_ids if number in named]
        wrong = len(found_events) != len(block.events) or not all(
            wanted in (event.subject, event.key) for wanted, event in zip(block.events, found_events, strict=True)
        )
        if wrong:
            subjects = [event.subject for event in found_events]
            yield Difference((*path, "events"), f"expected {_show(block.events)}, got {_show(subjects)}")
    given = run.input if run.input is not None else _data_of(run, outcome.events)
    if "input" in block.model_fields_set:
        yield from _values((*path, "input"), block.input, given)
    if "output" in block.model_fields_set:
        yield from _values((*path, "output"), block.output, run.output)
    if block.error is not None and block.error not in run.error:
        yield Difference((*path, "error"), f"expected a text with {_show(block.error)}, got {_show(run.error)}")
    for step, wanted in block.steps.items():
        yield from _step((*path, "steps", step), step, wanted, run, outcome.effects)


def _data_of(run: Run, events: Sequence[Recorded]) -> Any:
    """The input of a run without a mapping: the data of its first event."""
    return next((event.data for event in events if event.id in run.event_ids), None)


def _step(path: Path, name: str, block: StepBlock, run: Run, effects: Sequence[Effect]) -> Iterator[Difference]:
    records = [record for record in run.journal if record.path == name]
    if not records:
        steps = ", ".join(dict.fromkeys(record.path for record in run.journal)) or "none"
        yield Difference(path, f"this step was not executed; executed: {steps}")
        return
    record = records[-1]
    for field, found in (("action", record.action), ("status", record.status)):
        wanted = getattr(block, field)
        if wanted is not None and wanted != found:
            error = f" ({record.error})" if record.error else ""
            yield Difference((*path, field), f"expected {_show(wanted)}, got {_show(found)}{error}")
    if "given" in block.model_fields_set:
        yield from _values((*path, "with"), block.given, record.input)
    if "output" in block.model_fields_set:
        yield from _values((*path, "output"), block.output, record.output)
    if block.error is not None and block.error not in record.error:
        yield Difference((*path, "error"), f"expected a text with {_show(block.error)}, got {_show(record.error)}")
    calls = sum(effect.key == f"{run.id}:{name}" for effect in effects)
    if block.calls is not None and block.calls != calls:
        yield Difference((*path, "calls"), f"expected {_number(block.calls, 'call')}, there {_were(calls)}")


def _verdicts(expected: Sequence[VerdictBlock], outcome: Outcome) -> Iterator[Difference]:
    for at, block in enumerate(expected):
        path: Path = ("expect", "verdicts", at)
        found = [
            (event, verdict)
            for event in outcome.events
            if block.event in (event.subject, event.key) or (not block.event and event.feed != INTERNAL)
            for verdict in event.verdicts
            if block.trigger in ("", verdict.trigger)
        ]
        if not found:
            subjects = ", ".join(dict.fromkeys(event.subject for event in outcome.events)) or "none"
            yield Difference(path, f"there is no verdict like this; recorded events: {subjects}")
            continue
        wrong = [list(_verdict(path, block, verdict)) for _, verdict in found]
        if all(wrong):
            yield from wrong[0]


def _verdict(path: Path, block: VerdictBlock, verdict: Verdict) -> Iterator[Difference]:
    if block.outcome is not None and block.outcome != verdict.outcome:
        message = f"expected {_show(block.outcome)}, got {_show(verdict.outcome)}{_because(verdict)}"
        yield Difference((*path, "outcome"), message)
    for name in ("reason", "clause"):
        wanted = getattr(block, name)
        if wanted is not None and _folded(wanted) not in _folded(verdict.reason):
            yield Difference((*path, name), f"expected a reason with {_show(wanted)}, got {_show(verdict.reason)}")


def _folded(text: str) -> str:
    return " ".join(text.split())


def _calls(expected: int | list[CallBlock] | None, effects: Sequence[Effect]) -> Iterator[Difference]:
    if expected is None:
        return
    path: Path = ("expect", "calls")
    count = expected if isinstance(expected, int) else len(expected)
    if len(effects) != count:
        shown = ": " + ", ".join(effect.action for effect in effects) if effects else ""
        yield Difference(path, f"expected {_number(count, 'call')} outside, there {_were(len(effects))}{shown}")
    for at, (block, effect) in enumerate(zip(expected if isinstance(expected, list) else (), effects, strict=False)):
        for name, found in (("action", effect.action), ("step", effect.step)):
            wanted = getattr(block, name)
            if wanted is not None and wanted != found:
                yield Difference((*path, at, name), f"expected {_show(wanted)}, got {_show(found)}")
        if "given" in block.model_fields_set:
            yield from _values((*path, at, "with"), block.given, effect.given)


def _faults(expect: ExpectBlock, judgement: Judgement) -> Iterator[Difference]:
    for name, wanted, found in (
        ("lost", expect.lost, judgement.lost),
        ("doubled", expect.doubled, judgement.doubled),
        ("mislabelled", expect.mislabelled, judgement.mislabelled),
    ):
        if wanted is not None and wanted != found:
            said = "; ".join(str(fault) for fault in judgement.faults if fault.kind == name)
            yield Difference(("expect", name), f"expected {wanted}, got {found}" + (f": {said}" if said else ""))


def _values(path: Path, expected: Any, found: Any) -> Iterator[Difference]:
    """Mappings may have more than was expected; everything else must be equal."""
    if isinstance(expected, Mapping) and set(expected) == {MATCHES} and isinstance(expected[MATCHES], str):
        text = found if isinstance(found, str) else msgspec.json.encode(found).decode()
        if re.search(expected[MATCHES], text) is None:
            yield Difference(path, f"expected a text that matches {_show(expected[MATCHES])}, got {_show(found)}")
    elif isinstance(expected, Mapping) and isinstance(found, Mapping):
        for name, value in expected.items():
            if name not in found:
                there = ", ".join(map(str, found))
                yield Difference((*path, name), f"expected {_show(value)}, and there is none; there: {there}")
            else:
                yield from _values((*path, name), value, found[name])
    elif isinstance(expected, list) and isinstance(found, list | tuple) and len(expected) == len(found):
        for at, (value, other) in enumerate(zip(expected, found, strict=True)):
            yield from _values((*path, at), value, other)
    elif expected != found:
        yield Difference(path, f"expected {_show(expected)}, got {_show(found)}")


def _show(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
