"""`harken test add`: a recorded event and its verdict become a test case, without secrets and without people."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from harken.config.loaded import Loaded
from harken.errors import NotFound, Refused
from harken.event import Recorded, Verdict
from harken.feed import INTERNAL, Trigger
from harken.http.redact import contains_token, redact
from harken.language.cel import compile_condition
from harken.language.cel.explain import clauses
from harken.operate.configuration import load_directory
from harken.simulation.anonymous import Anonymiser
from harken.simulation.case_runner import run_cases
from harken.simulation.cases import FIRST, TESTS, shown_name
from harken.simulation.configuration import Configuration, SharedPlans, in_use
from harken.simulation.engine import Simulation, without_logs
from harken.simulation.script import Arrival, Script
from harken.simulation.write_case import case_of, file_of
from harken.suggest import suggest_fix
from harken.testing import VirtualClock, VirtualLoop, run_virtual

__all__ = ["AddedCase", "add_case"]

REPEATABLE = ("fired", "filtered", "error", "gathered", "before_start")
"""Verdicts that depend on the event and the rules alone, and not on what else was there."""
LONG_BEFORE = 3_600.0
_NOT_A_NAME = re.compile(r"[^a-z0-9]+")
FieldPath = tuple[str | int, ...]


class AddedCase(msgspec.Struct, frozen=True, kw_only=True):
    """The file that was written. `kept` are the fields whose values the condition needs as they are."""

    file: str
    name: str
    trigger: str
    outcome: str
    kept: tuple[str, ...] = ()


def add_case(
    directory: Path, event: Mapping[str, Any], *, trigger: str = "", name: str = "", file: Path | None = None
) -> AddedCase:
    """Write a case of this event, as `events show` returns it, and of its verdict for the trigger.

    It is run before it stays: raise Refused if the configuration decides otherwise by now, if the verdict depends on
    more than the event, or if the file is there already.
    """
    loaded = load_directory(directory)
    chosen = _chosen(event, trigger, loaded)
    recorded = next(one for one in event["verdicts"] if one["trigger"] == chosen.name)
    if recorded["outcome"] not in REPEATABLE or event["feed_id"] == INTERNAL:
        message = f"the verdict {recorded['outcome']} depends on more than this event"
        raise Refused(message, fix=f"Choose an event that was one of: {', '.join(REPEATABLE)}")
    configuration = in_use(loaded, [event["feed_id"]])
    maker = _Maker(configuration, chosen, event, recorded["outcome"])
    maker.refuse_changed()
    script, verdict, kept = maker.redacted()
    title = name or f"event {event['id']} is {recorded['outcome']} for {chosen.name}"
    expect = _expected(chosen, verdict)
    target = file or directory / TESTS / f"{_file_name(chosen.name)}-event-{event['id']}.yaml"
    text = file_of([case_of(redact(title, loaded.secrets), script, configuration, expect)], {})
    _write(target, text, loaded)
    return AddedCase(
        file=shown_name(target, directory),
        name=title,
        trigger=chosen.name,
        outcome=recorded["outcome"],
        kept=tuple(".".join(map(str, path)) for path in kept),
    )


def _chosen(event: Mapping[str, Any], name: str, loaded: Loaded) -> Trigger:
    """The trigger that is meant: the only one with a verdict, unless one is named."""
    triggers = {trigger.name: trigger for trigger in loaded.triggers}
    decided = [verdict["trigger"] for verdict in event["verdicts"]]
    if name and name not in decided:
        raise NotFound(f"event {event['id']} has no verdict of {name}", fix=suggest_fix(name, decided))
    if not name and len(decided) != 1:
        fix = f"Name one with --trigger: {', '.join(decided)}" if decided else "Choose another event"
        raise Refused(f"{len(decided)} triggers have decided about event {event['id']}", fix=fix)
    wanted = name or decided[0]
    if wanted not in triggers:
        raise NotFound(f"trigger {wanted} is not configured now", fix="Put it back, then add the case")
    return triggers[wanted]


class _Maker:
    """Tries out how much of an event can be replaced without another verdict."""

    def __init__(self, configuration: Configuration, trigger: Trigger, event: Mapping[str, Any], outcome: str) -> None:
        self._configuration = configuration
        self._trigger = trigger
        self._event = event
        self._outcome = outcome
        self._secrets = configuration.loaded.secrets
        self._plans = SharedPlans(configuration.loaded)
        self._clause = ""

    def refuse_changed(self) -> None:
        """Raise Refused if the configuration decides about the event as it was recorded in another way."""
        verdict = self._decide(self._script(None))
        if verdict is None or verdict.outcome != self._outcome:
            found = f"{verdict.outcome}: {verdict.reason}" if verdict else "no verdict"
            message = (
                f"event {self._event['id']} was {self._outcome} for {self._trigger.name}, and would now be {found}"
            )
            fix = "The rules have changed since: choose a newer event, or write the case by hand"
            raise Refused(redact(message.rstrip(": "), self._secrets), fix=fix)
        self._clause = clause_of(self._trigger, verdict)

    def redacted(self) -> tuple[Script, Verdict, Sequence[FieldPath]]:
        """The script with as little of the event as gives the same verdict, and the fields that had to stay."""
        kept: list[FieldPath] = [] if self._same([]) else self._needed()
        script = self._script(kept)
        verdict = self._decide(script)
        if verdict is None or not self._is_same(verdict):
            message = "without the secrets in this event its verdict is another one"
            raise Refused(message, fix="Write the case by hand, with values of your own")
        return script, verdict, kept

    def _needed(self) -> list[FieldPath]:
        reads = (
            [path[1:] for _, path in compile_condition(self._trigger.condition).reads]
            if self._trigger.condition
            else []
        )
        kept: list[FieldPath] = [path for path in dict.fromkeys(reads) if path]
        for path in list(kept):
            fewer = [one for one in kept if one != path]
            if self._same(fewer):
                kept = fewer
        return kept

    def _same(self, kept: Collection[FieldPath]) -> bool:
        verdict = self._decide(self._script(kept))
        return verdict is not None and self._is_same(verdict)

    def _is_same(self, verdict: Verdict) -> bool:
        return verdict.outcome == self._outcome and clause_of(self._trigger, verdict) == self._clause

    def _script(self, kept: Collection[FieldPath] | None) -> Script:
        """The event alone; with `kept` without secrets and people, except for these fields."""
        event = self._event
        data, subject, state = event["data"], event["subject"], event["state"]
        if kept is not None:
            anonymiser = Anonymiser(self._secrets)
            data, subject = anonymiser.data(data, kept), anonymiser.text(subject)
            state = None if state is None else anonymiser.text(state)
        happened: float | None = FIRST
        if event["occurred_at"] is None:
            happened = None
        elif self._outcome == "before_start":
            happened = FIRST - LONG_BEFORE
        arrival = Arrival(
            at=FIRST,
            feed=event["feed_id"],
            subject=subject,
            type=event["type"],
            data=data if isinstance(data, Mapping) else {"value": data},
            state=state,
            dated=happened,
        )
        start = datetime.fromisoformat(event["recorded_at"]).replace(microsecond=0)
        return Script(items=(arrival,), start=start)

    def _decide(self, script: Script) -> Verdict | None:
        async def main(clock: VirtualClock) -> list[Recorded]:
            loop: Any = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            simulation = Simulation(self._configuration, script, loop, plans=self._plans)
            await simulation.play()
            events = await simulation.events()
            await simulation.close()
            return events

        with without_logs():
            events = run_virtual(main)
        mine = (verdict for event in events for verdict in event.verdicts if verdict.trigger == self._trigger.name)
        return next(mine, None)


def clause_of(trigger: Trigger, verdict: Verdict) -> str:
    """The part of the condition that decided, as the reason has it; empty if none did."""
    if not trigger.condition or verdict.outcome not in ("filtered", "error"):
        return ""
    labels = [clause.label for clause in clauses(compile_condition(trigger.condition))]
    return next((label for label in labels if label in verdict.reason), "")


def _expected(trigger: Trigger, verdict: Verdict) -> dict[str, Any]:
    wanted: dict[str, Any] = {"trigger": trigger.name, "outcome": verdict.outcome}
    if clause := clause_of(trigger, verdict):
        wanted["clause"] = clause
    return {"verdicts": [wanted]}


def _file_name(trigger: str) -> str:
    return _NOT_A_NAME.sub("-", trigger.lower()).strip("-") or "trigger"


def _write(target: Path, text: str, loaded: Loaded) -> None:
    """Write the file, and run it. If it does not pass, or has a secret in it, nothing is left behind."""
    if contains_token(text.encode(), loaded.secrets):
        raise Refused("the case would hold a secret of this installation", fix="Write it by hand, without the secret")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise Refused(f"{target} is there already", fix="Name another with --file") from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    summary = run_cases(loaded.directory, target)
    if summary.failed or not summary.results:
        target.unlink()
        reason = summary.results[0].problems[0].message if summary.results else "it has no case"
        raise Refused(f"the case does not pass: {reason}", fix="This is a fault of Harken; please report it")
