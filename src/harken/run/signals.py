"""How a step ends other than well: on purpose (signals), or badly (errors with something to show)."""

from __future__ import annotations

from typing import Any

from harken.errors import HarkenError, RetryLater
from harken.runs import Park, StepRecord

__all__ = ["Filtered", "Halted", "Parked", "Rejected", "Signal", "StepFailed"]


class Signal(Exception):
    """Not an error: a step ends the walk on purpose."""


class Filtered(Signal):
    """A filter said no: the round of a loop, the branch or the run ends well here."""


class Parked(Signal):
    """The run waits for time, a person or a sub-run. `record` is written only with the parking itself."""

    def __init__(self, park: Park, record: StepRecord | None = None) -> None:
        super().__init__(park.waiting_for)
        self.park = park
        self.record = record


class Rejected(HarkenError):
    """A person said no: the run fails, and is not tried again by itself."""

    code = "rejected"

    def __init__(self, message: str, *, output: Any = None) -> None:
        super().__init__(message)
        self.output = output


class StepFailed(RetryLater):
    """A step failed with something to show for it."""

    def __init__(self, message: str, *, output: Any = None, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.output = output


class Halted(Exception):
    """A step failed for good in this try; `where` is the path of the innermost one."""

    def __init__(self, error: HarkenError, where: str, tries: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.where = where
        self.tries = tries

    def __str__(self) -> str:
        return f"step {self.where}: {self.error}"
