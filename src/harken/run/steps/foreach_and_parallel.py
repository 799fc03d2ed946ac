"""Steps that execute others several times or at once: foreach and parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic import Field

from harken.errors import Misconfigured, Refused
from harken.run.compiler import Compiler, Strict
from harken.run.control_flow_exceptions import Filtered, Parked
from harken.run.execute import Frame, walk
from harken.run.plan import CompiledAct, StepKind
from harken.run.steps.wait_and_approve import APPROVAL
from harken.runs import Park

__all__ = ["FOREACH", "PARALLEL", "run_bounded"]


class ForeachBlock(Strict):
    items: Any
    steps: list[Any]
    parallel: int = Field(default=1, ge=1, le=100)
    max_items: int = Field(default=1_000, ge=1, le=100_000)


class ParallelBlock(Strict):
    branches: dict[str, list[Any]] | list[list[Any]]


def _foreach(params: ForeachBlock, compiler: Compiler) -> CompiledAct:
    items, steps = compiler.value(params.items, "items"), compiler.steps(params.steps, "steps")

    async def act(frame: Frame) -> Any:
        found = items(frame.names)
        if not isinstance(found, list):
            raise Misconfigured(f"foreach needs a list of items, not {type(found).__name__}")
        frame.input = {"items": len(found)}
        if len(found) > params.max_items:
            fix = "Raise max_items, or narrow the list first"
            raise Refused(f"foreach got {len(found):,} items; at most {params.max_items:,} are allowed", fix=fix)

        async def one(index: int) -> Any:
            scope = frame.scope.nested(item=found[index], index=index)
            return await _until_filtered(walk(frame.execution, steps, scope, f"{frame.path}[{index}]."))

        return await run_bounded(frame, one, len(found), params.parallel)

    return CompiledAct(act=act)


def _parallel(params: ParallelBlock, compiler: Compiler) -> CompiledAct:
    given = params.branches
    pairs = list(given.items()) if isinstance(given, dict) else [(str(at), steps) for at, steps in enumerate(given)]
    keys: Sequence[str | int] = list(given) if isinstance(given, dict) else range(len(given))
    branches = [compiler.steps(steps, "branches", key) for key, (_, steps) in zip(keys, pairs, strict=True)]

    async def act(frame: Frame) -> Any:
        async def one(at: int) -> Any:
            return await _until_filtered(
                walk(frame.execution, branches[at], frame.scope, f"{frame.path}.{pairs[at][0]}.")
            )

        responses = await run_bounded(frame, one, len(branches), len(branches))
        return {name: response for (name, _), response in zip(pairs, responses, strict=True)}

    return CompiledAct(act=act)


async def _until_filtered(execution: Awaitable[Any]) -> Any:
    """A filter inside ends this iteration or branch only."""
    try:
        return await execution
    except Filtered:
        return None


async def run_bounded(frame: Frame, one: Callable[[int], Awaitable[Any]], count: int, width: int) -> list[Any]:
    """Execute `one` for each index, at most `width` at a time. After an error none begins, and those under way end."""
    results: list[Any] = [None] * count
    ended: dict[int, BaseException] = {}
    pending = iter(range(count))
    stopped = False

    async def work() -> None:
        nonlocal stopped
        for at in pending:
            try:
                results[at] = await one(at)
            except Exception as error:
                ended[at] = error
                stopped = stopped or width == 1 or not isinstance(error, Parked)
            if width > 1:
                # the others may take long: write the records of this one now
                await frame.execution.journal.flush_effects()
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
        raise _merge_parked(parked)


def _merge_parked(parked: Sequence[Parked]) -> Parked:
    """Park once for several: until the earliest time, and with one question, so that an answer is unambiguous."""
    questions = [one for one in parked if one.park.waiting_for == APPROVAL]
    # prefer a question that is open already: it has its record in the journal
    asked = next((one for one in questions if one.record is None), questions[0] if questions else None)
    relevant = [one for one in parked if one not in questions or one is asked]
    until = min((one.park.until for one in relevant if one.park.until is not None), default=None)
    lead = asked or next((one for one in parked if one.park.waiting_for), parked[0])
    park = Park(until=until, waiting_for=lead.park.waiting_for, prompt=lead.park.prompt)
    return Parked(park, asked.record if asked else None)


FOREACH = StepKind(name="foreach", params=ForeachBlock, build=_foreach, pure=True)
PARALLEL = StepKind(name="parallel", params=ParallelBlock, build=_parallel, pure=True, replays=True)
