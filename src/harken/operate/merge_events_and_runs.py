"""Events and runs in one stream, with one position: a browser has few connections, and pages need both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from harken.errors import Malformed
from harken.operate.output_rows import Plain
from harken.task_cancellation import cancel_and_wait

__all__ = ["Moved", "Position", "merge"]

Kind = Literal["event", "run"]


class Position(msgspec.Struct, frozen=True):
    """How far a reader has got: the id of its last event, and the position of its last run."""

    event: int
    run: int

    def __str__(self) -> str:
        return f"{self.event}-{self.run}"

    @classmethod
    def parse(cls, text: str) -> Position:
        parts = text.split("-")
        if len(parts) != 2 or not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in parts):
            raise Malformed(
                "after must be the id of a message of this stream", fix="Send what the stream had as id, such as 41-0"
            )
        return cls(int(parts[0]), int(parts[1]))

    def past(self, kind: Kind, row: Plain) -> Position:
        """The position after this row."""
        return Position(row["id"], self.run) if kind == "event" else Position(self.event, row["position"])


class Moved(msgspec.Struct, frozen=True):
    """What happened, None for a heartbeat, and the position after it."""

    kind: Kind
    row: Plain | None
    position: Position


async def merge(
    events: AsyncIterator[Plain | None], runs: AsyncIterator[Plain | None], begin: Position
) -> AsyncIterator[Moved]:
    """Both as they come; ends with the first that ends. Neither is read further than one row ahead."""
    sources: dict[Kind, AsyncIterator[Plain | None]] = {"event": events, "run": runs}
    waiting = {asyncio.create_task(_next(source)): kind for kind, source in sources.items()}
    position = begin
    try:
        while True:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                kind = waiting.pop(task)
                more, row = task.result()
                if not more:
                    return
                position = position if row is None else position.past(kind, row)
                yield Moved(kind, row, position)
                waiting[asyncio.create_task(_next(sources[kind]))] = kind
    finally:
        await cancel_and_wait(list(waiting))


async def _next(source: AsyncIterator[Plain | None]) -> tuple[bool, Plain | None]:
    """Whether there is one more, and what it is."""
    try:
        return True, await anext(source)
    except StopAsyncIteration:
        return False, None
