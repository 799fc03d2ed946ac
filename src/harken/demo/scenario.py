"""What a demo scenario provides: configuration files, fake services in which things happen, and the expected runs."""

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
    """`expected` lists what each trigger must run for, by the names that `occurrence` derives from events."""

    @property
    def place(self) -> str:
        """A short description of what is served."""
        ...

    @property
    def expected(self) -> Mapping[str, Collection[str]]: ...
    @property
    def late(self) -> int:
        """How many items were shown later than they happened."""
        ...

    @property
    def rate_limited(self) -> int: ...
    @property
    def refused(self) -> int:
        """How many messages were sent that nobody can read: each must be a dead letter."""
        ...

    @property
    def looked_at(self) -> str:
        """The command that lists what the demo is about."""
        ...

    @property
    def noted(self) -> str:
        """What `notes` are about, as a heading; empty where there are none."""
        ...

    @property
    def settled(self) -> bool:
        """Whether the services have been told everything that they will be told of what happened."""
        ...

    def prepare(self, directory: Path) -> None:
        """Write the configuration."""
        ...

    def serve(self) -> AbstractAsyncContextManager[Mapping[str, str]]:
        """Serve on loopback until the block ends; yields the environment that the configuration needs."""
        ...

    def open(self, url: str) -> None:
        """Called when the controller listens at this address: from now on everything counts."""
        ...

    async def advance(self) -> None:
        """Let a moment pass."""
        ...

    def occurrence(self, event: Recorded) -> str:
        """The scenario's name for this event; empty for an event that is not its own."""
        ...

    def notes(self) -> Collection[str]:
        """What was seen at the services since the last call, one line each, oldest first."""
        ...

    def deliveries(self) -> Mapping[str, Collection[str]]:
        """What the workflows wrote, by name: two messages under one name are a duplicate."""
        ...


def scenario_of(name: str, clock: Clock, random: Random) -> Scenario:
    """The scenario of this name, one of `SCENARIOS`."""
    made: Scenario = import_module(SCENARIOS[name]).make(clock, random)
    return made
