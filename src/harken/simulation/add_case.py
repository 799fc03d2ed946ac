"""`harken test add`: the case of a recorded event is written to a file, if it passes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from harken.errors import Refused
from harken.operate.event_case import make_case
from harken.operate.load_and_check_configuration import load_directory
from harken.simulation.case_runner import run_cases
from harken.simulation.read_test_cases import TESTS, shown_name

__all__ = ["AddedCase", "add_case"]

_NOT_A_NAME = re.compile(r"[^a-z0-9]+")


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
    case = make_case(load_directory(directory), event, trigger=trigger, name=name)
    target = file or directory / TESTS / f"{_file_name(case.trigger)}-event-{event['id']}.yaml"
    _write(target, case.yaml, directory)
    return AddedCase(
        file=shown_name(target, directory),
        name=case.name,
        trigger=case.trigger,
        outcome=case.outcome,
        kept=case.kept,
    )


def _file_name(trigger: str) -> str:
    return _NOT_A_NAME.sub("-", trigger.lower()).strip("-") or "trigger"


def _write(target: Path, text: str, directory: Path) -> None:
    """Write the file, and run it. If it does not pass, nothing is left behind."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise Refused(f"{target} is there already", fix="Name another with --file") from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    summary = run_cases(directory, target)
    if summary.failed or not summary.results:
        target.unlink()
        reason = summary.results[0].problems[0].message if summary.results else "it has no case"
        fix = "Its verdict depends on more than the event: write the case by hand"
        raise Refused(f"the case does not pass: {reason}", fix=fix)
