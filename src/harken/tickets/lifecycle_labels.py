"""The labels by which a ticket shows where its run is. They are a closed set; every other label belongs to people."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property

import msgspec

__all__ = ["Lifecycle", "LifecycleLabels"]


class Lifecycle(StrEnum):
    PENDING = "pending"
    ENQUEUED = "enqueued"
    IN_PROGRESS = "in-progress"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


# when a swap was cut short, two are on the ticket: the one that keeps it from being claimed again counts
_STRONGEST_FIRST = (
    Lifecycle.IN_PROGRESS,
    Lifecycle.WAITING,
    Lifecycle.ENQUEUED,
    Lifecycle.FAILED,
    Lifecycle.DONE,
    Lifecycle.PENDING,
)


class LifecycleLabels(msgspec.Struct, frozen=True, dict=True):
    """The lifecycle labels with one prefix, such as `harken:done`. Platforms differ in case, so case never counts."""

    prefix: str = "harken"

    def label(self, state: Lifecycle) -> str:
        return f"{self.prefix}:{state}"

    def state_of(self, labels: Iterable[str]) -> Lifecycle | None:
        """The state that these labels show; None if there is no lifecycle label among them."""
        found = {self._states[name] for label in labels if (name := label.casefold()) in self._states}
        return next((state for state in _STRONGEST_FIRST if state in found), None)

    def others(self, labels: Iterable[str]) -> list[str]:
        """The labels that are not ours. One that only begins with our prefix belongs to people."""
        return [label for label in labels if label.casefold() not in self._states]

    def surplus(self, labels: Iterable[str], state: Lifecycle | None) -> list[str]:
        """The lifecycle labels to remove, as they are written on the ticket, so that only that of `state` is left."""
        return [label for label in labels if self._states.get(label.casefold(), state) != state]

    @cached_property
    def _states(self) -> dict[str, Lifecycle]:
        return {self.label(state).casefold(): state for state in Lifecycle}
