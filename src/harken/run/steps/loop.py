"""Steps that hold several walks: foreach and parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic import Field

from harken.errors import Misconfigured, Refused
from harken.run.compiler import Compiler, Strict
from harken.run.execute import Frame, walk
from harken.run.plan import Kind, Made
from harken.run.signals import Filtered, Parked
from harken.run.steps.wait import APPROVAL
from harken.runs import Park

__all__ = ["FOREACH", "PARALLEL", "together"]


class ForeachWords(Strict):
    items: Any
    steps: list[Any]
    parallel: int = Field(default=1, ge=1, le=100)
    max_items: int = Field(default=1_000, ge=1, le=100_000)


class ParallelWords(Strict):
    branches: dict[str, list[Any]] | list[list[Any]]


def _foreach(params: ForeachWords, builder: Compiler) -> Made:
    items, steps = builder.value(params.items, "items"), builder.block(params.steps, "steps")

    async def act(frame: Frame) -> Any:
        found = items(frame.names)
        if not isinstance(found, list):
            raise Misconfigured(f"foreach needs a list of items, not {type(found).__name__}")
        if len(found) > params.max_items:
            fix = "Raise max_items, or narrow the list first"
            raise Refused(f"foreach got {len(found):,} items; at most {params.max_items:,} are allowed", fix=fix)

        async def one(index: int) -> Any:
            scope = frame.scope.inner(item=found[index], index=index)
            return await _round(walk(frame.execution, steps, scope, f"{frame.path}[{index}]."))

        return await together(frame, one, len(found), params.parallel)

    return Made(act=act)


def _parallel(params: ParallelWords, builder: Compiler) -> Made:
    given = params.branches
    pairs = list(given.items()) if isinstance(given, dict) else [(str(at), steps) for at, steps in enumerate(given)]
    keys: Sequence[str | int] = list(given) if isinstance(given, dict) else range(len(given))
    blocks = [builder.block(steps, "branches", key) for key, (_, steps) in zip(keys, pairs, strict=True)]

    async def act(frame: Frame) -> Any:
        async def one(at: int) -> Any:
            return await _round(walk(frame.execution, blocks[at], frame.scope, f"{frame.path}.{pairs[at][0]}."))

        responses = await together(frame, one, len(blocks), len(blocks))
        return {name: response for (name, _), response in zip(pairs, responses, strict=True)}

    return Made(act=act)


async def _round(walking: Awaitable[Any]) -> Any:
    """A filter inside ends this round only."""
    try:
        return await walking
    except Filtered:
        return None


async def together(frame: Frame, one: Callable[[int], Awaitable[Any]], count: int, width: int) -> list[Any]:
    """Do all, at most `width` at a time. What has begun is finished: after an error nothing new begins."""
    results: list[Any] = [None] * count
    ended: dict[int, BaseException] = {}
    following = iter(range(count))
    stopped = False

    async def work() -> None:
        nonlocal stopped
        for at in following:
            try:
                results[at] = await one(at)
            except Exception as error:
                ended[at] = error
                stopped = stopped or width == 1 or not isinstance(error, Parked)
            if width > 1:
                # the other rounds may take long: what this one did is written now
                await frame.execution.ledger.ready_for(pure=True)
            if stopped:
                return

    if width == 1:
        await work()
    else:
        workers = await asyncio.gather(*(work() for _ in range(min(width, count))), return_exceptions=True)
        ended.update((count + at, error) for at, error in enumerate(workers) if error is not None)
    _raise_first([ended[at] for at in sorted(ended)])
    return results


def _raise_first(ended: Sequence[BaseException]) -> None:
    for error in ended:
        if not isinstance(error, Parked):
            raise error
    parked = [error for error in ended if isinstance(error, Parked)]
    if parked:
        raise _joined(parked)


def _joined(parked: Sequence[Parked]) -> Parked:
    """One parking for several: the earliest time, and one question at a time, so that an answer has one meaning."""
    questions = [one for one in parked if one.park.waiting_for == APPROVAL]
    # one that was asked before has its record in the journal already
    asking = next((one for one in questions if one.record is None), questions[0] if questions else None)
    heard = [one for one in parked if one not in questions or one is asking]
    until = min((one.park.until for one in heard if one.park.until is not None), default=None)
    lead = asking or next((one for one in parked if one.park.waiting_for), parked[0])
    park = Park(until=until, waiting_for=lead.park.waiting_for, prompt=lead.park.prompt)
    return Parked(park, asking.record if asking else None)


FOREACH = Kind(name="foreach", params=ForeachWords, build=_foreach, pure=True)
PARALLEL = Kind(name="parallel", params=ParallelWords, build=_parallel, pure=True, replays=True)
