"""A replica of the property tests: what a person has it do, and configurations that it hears of late."""

from __future__ import annotations

from typing import Any

from harken.app.fleet import notify_replicas
from harken.errors import RetryLater
from harken.simulation.replica_lifecycle import Replica

__all__ = ["Life"]

PAUSE = 5.0


class Life(Replica):
    async def catch_up(self, delay: float) -> None:
        """Run the newest definitions, when the news has reached this replica and the store is there."""
        await self.clock.sleep(delay)
        while True:
            try:
                await self.apply()
                return
            except RetryLater:
                await self.clock.sleep(PAUSE)

    async def order(self, what: str, trigger: str) -> None:
        """A person has this replica do something about a trigger; the others are told."""
        if what == "pause":
            await self.connection.pause(trigger, "a test")
        elif what == "resume":
            await self.connection.resume(trigger)
        else:
            await self.connection.reset(trigger, cursor=what == "reset_cursor")
        self.look_again()
        store: Any = self.connection
        await notify_replicas(store)
