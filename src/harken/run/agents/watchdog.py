"""Watches one start of an agent: its time, its silence, its claim and its session, until all of it is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from harken.clock import Clock
from harken.errors import LeaseLost
from harken.run.agents.lease import AgentLease
from harken.run.agents.output_capture import AgentOutput
from harken.run.agents.process import AgentExit, AgentProcess
from harken.task_cancellation import cancel_and_wait

__all__ = ["Ended", "Limits", "supervise"]

LOOK_SECONDS = 0.25
LAST_WAIT = 15.0
"""How much longer than its grace we wait for an agent that must end; its supervisor goes on without us."""

EndedBy = Literal["", "timeout", "stall", "lost", "cancel"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: of the whole start, of silence (0: any), and between SIGTERM and SIGKILL."""

    timeout: float
    stall: float
    grace: float


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a start ended. `by` says why we ended it; empty if we did not."""

    exit: AgentExit
    by: EndedBy


async def supervise(
    process: AgentProcess,
    output: AgentOutput,
    lease: AgentLease,
    limits: Limits,
    clock: Clock,
    *,
    on_renewed: Callable[[float], None],
    on_session: Callable[[str], Awaitable[None]],
) -> Ended:
    """Wait for the end of the agent, and end it where it must. If we are cancelled, the agent is ended first."""

    def renewed(until: float) -> None:
        process.renew(until)
        on_renewed(until)

    keeping = asyncio.create_task(lease.keep(renewed), name="agent lease")
    noting = asyncio.create_task(_note_session(output, clock, on_session), name="agent session")
    began = clock.monotonic()
    by: EndedBy = ""
    try:
        while not process.exited.done():
            await asyncio.wait({process.exited}, timeout=LOOK_SECONDS)
            if not by and (by := _must_end(keeping, output, limits, clock.monotonic(), began)):
                # another worker has the run: there is no time for a grace
                process.end(grace=0.0 if by == "lost" else None)
        return Ended(exit=process.exited.result(), by=by)
    except asyncio.CancelledError:
        process.end()
        await _wait_for_end(process, keeping, limits.grace + LAST_WAIT)
        raise
    finally:
        await cancel_and_wait([keeping, noting])


def _must_end(
    keeping: asyncio.Task[Literal["lost", "cancel"]], output: AgentOutput, limits: Limits, now: float, began: float
) -> EndedBy:
    if keeping.done():
        return keeping.result()
    if now - began >= limits.timeout:
        return "timeout"
    return "stall" if limits.stall and now - output.last_at >= limits.stall else ""


async def _wait_for_end(
    process: AgentProcess, keeping: asyncio.Task[Literal["lost", "cancel"]], seconds: float
) -> None:
    both = {process.exited, keeping}
    await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if keeping.done() and keeping.result() == "lost":
        process.end(grace=0.0)
    await asyncio.wait({process.exited}, timeout=seconds)


async def _note_session(output: AgentOutput, clock: Clock, on_session: Callable[[str], Awaitable[None]]) -> None:
    """Tell the session as soon as it is known: after a crash of ours the next attempt goes on with it."""
    while not output.usage.session:
        await clock.sleep(LOOK_SECONDS)
    # a claim that is lost is noticed by the renewal too, which ends the agent
    with contextlib.suppress(LeaseLost):
        await on_session(output.usage.session)
