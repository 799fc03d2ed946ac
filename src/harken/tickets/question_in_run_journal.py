"""The question of a run that waits for a person, as its journal has it."""

from __future__ import annotations

from collections.abc import Mapping

from harken.runs import Run, StepRecord
from harken.tickets.still_wanted_check import PREFLIGHT

__all__ = ["asking_step", "is_approval", "prompt_of"]

_APPROVALS = frozenset({"approve", PREFLIGHT})


def asking_step(run: Run) -> StepRecord | None:
    """The step that has asked last, of those that wait; None if the run waits for nobody."""
    if run.status != "waiting":
        return None
    latest = {record.path: record for record in run.journal}
    asked = [record for record in latest.values() if record.status == "waiting" and prompt_of(record)]
    return asked[-1] if asked else None


def prompt_of(record: StepRecord) -> str:
    """What the step has asked; empty if nothing."""
    output = record.output if isinstance(record.output, Mapping) else {}
    return next((text for name in ("prompt", "question") if isinstance(text := output.get(name), str) and text), "")


def is_approval(record: StepRecord) -> bool:
    """Whether the answer is yes or no."""
    return record.action in _APPROVALS
