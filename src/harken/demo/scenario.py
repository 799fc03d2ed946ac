"""What a demo is made of: the files of a configuration, something that serves and lets things happen, and the truth."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Protocol

from harken.clock import Clock
from harken.demo import SCENARIOS
from harken.event import Recorded

__all__ = ["Scenario", "scenario_of"]


class Scenario(Protocol):
    """`expected` is the truth: what each trigger must run for, by names that `occurrence` finds again in events."""

    @property
    def place(self) -> str:
        """What is served, in the words of the view."""
        ...

    @property
    def expected(self) -> Mapping[str, Collection[str]]: ...
    @property
    def late(self) -> int:
        """How many things showed themselves after they happened."""
        ...

    @property
    def rate_limited(self) -> int: ...
    def prepare(self, directory: Path) -> None:
        """Write the configuration."""
        ...

    def serve(self) -> AbstractAsyncContextManager[Mapping[str, str]]:
        """Serve on loopback until the block ends; yields the environment that the configuration needs."""
        ...

    def open(self, url: str) -> None:
        """The controller listens at this address, and from now on everything counts."""
        ...

    async def advance(self) -> None:
        """Let a moment pass."""
        ...

    def occurrence(self, event: Recorded) -> str:
        """The name by which the play knows this event, empty when it is none of its own."""
        ...

    def deliveries(self) -> Mapping[str, Collection[str]]:
        """What the workflows wrote, by what must be written once: two messages under one name are one too many."""
        ...


def scenario_of(name: str, clock: Clock, random: Random) -> Scenario:
    """The play of this name, one of `PLAYS`."""
    made: Scenario = import_module(SCENARIOS[name]).make(clock, random)
    return made
