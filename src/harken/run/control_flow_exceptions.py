"""How a step ends without success: signals, which are no errors, and errors that carry an output."""

from __future__ import annotations

from typing import Any

from harken.errors import HarkenError, RetryLater
from harken.runs import Park, StepRecord

__all__ = ["FailedForGood", "Filtered", "Halted", "Parked", "Rejected", "Signal", "StepFailed", "Withdrawn"]


class Signal(Exception):
    """Not an error: a step ends or suspends the execution on purpose."""


class Filtered(Signal):
    """A filter's condition is false: the iteration, the branch or the run ends here, successfully."""


class Withdrawn(Signal):
    """Whoever wanted the run does not want it any more, or may not: it ends here as cancelled, for this reason."""


class Parked(Signal):
    """The run waits for time, a person or a sub-run. `record` is written together with the parking."""

    def __init__(self, park: Park, record: StepRecord | None = None) -> None:
        super().__init__(park.waiting_for)
        self.park = park
        self.record = record


class FailedForGood(HarkenError):
    """The run fails and is not tried again by itself; there is an output for the journal."""

    code = "failed"

    def __init__(self, message: str, *, output: Any = None, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.output = output


class Rejected(FailedForGood):
    """A person rejected."""

    code = "rejected"


class StepFailed(RetryLater):
    """A step failed, but has an output for the journal."""

    def __init__(self, message: str, *, output: Any = None, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.output = output


class Halted(Exception):
    """A step failed in this try and its own retries are used up; `where` is the path of the innermost failed step."""

    def __init__(self, error: HarkenError, where: str, tries: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.where = where
        self.tries = tries

    def __str__(self) -> str:
        return f"step {self.where}: {self.error}"
