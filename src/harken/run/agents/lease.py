"""The claim of a run as its agent needs it: renewed by us, so that it is known to the second how long it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import structlog

from harken.clock import Clock
from harken.errors import LeaseLost
from harken.run.agents.process_tree_supervisor import boot_seconds
from harken.run.retry import retry_store
from harken.runs import Claimed
from harken.store import Runs

__all__ = ["AgentLease"]

RENEWALS = 12
"""How often the claim is renewed within its length; a cancel is noticed with a renewal."""
TROUBLE_PAUSE = 1.0

log = structlog.get_logger("harken.run")


class AgentLease:
    """The lease of one claimed run. The worker renews it too, but cannot tell when its renewal reached the store."""

    def __init__(self, store: Runs, clock: Clock, claimed: Claimed, seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._claims = {claimed.id: claimed.token}
        self._run = claimed.id
        self.seconds = seconds

    @property
    def margin(self) -> float:
        """How long before the end of the lease an agent ends that was not renewed: 10 s of 60."""
        return self.seconds / 6

    async def prove(self) -> float:
        """Renew the claim, and return until when it lasts by `boot_seconds`. Raise LeaseLost if it is not ours."""
        while True:
            # from before the call: the store counts from a moment within it
            began, answer = boot_seconds(), await retry_store(self._extend, self._clock)
            if answer == "lost":
                raise LeaseLost("the run was claimed by another worker")
            if answer == "cancel":
                await self.wait_for_cancel()
            if boot_seconds() - began < self.margin:
                return began + self.seconds

    async def wait_for_cancel(self) -> None:
        """Wait to be cancelled: the worker ends a run that is to be cancelled with its next renewal."""
        await self._clock.sleep(self.seconds)
        raise LeaseLost("the run is to be cancelled, and its worker did not do it")

    async def keep(self, renewed: Callable[[float], None]) -> Literal["lost", "cancel"]:
        """Renew until the claim is lost or the run is to be cancelled; tell each time until when it lasts.

        A store that does not answer is asked again: the agent ends by itself when that takes too long."""
        failing = False
        while True:
            pause = self.seconds / RENEWALS
            await self._clock.sleep(min(pause, TROUBLE_PAUSE) if failing else pause)
            began = boot_seconds()
            try:
                async with asyncio.timeout(self.margin):
                    answer = await self._extend()
            except Exception as error:
                if not failing:
                    log.warning(
                        "agent.renewal_failed", run=self._run, code=getattr(error, "code", type(error).__name__)
                    )
                failing = True
                continue
            failing = False
            if answer != "kept":
                return answer
            renewed(began + self.seconds)

    async def _extend(self) -> Literal["kept", "lost", "cancel"]:
        answers = await self._store.extend(self._claims, self.seconds)
        return answers[self._run]
