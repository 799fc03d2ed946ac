"""Pushes that wait at the same moment share one commit: a webhook's few rows cost round trips, not work.

A lone push never waits. Whatever a shared commit cannot do for all of them is done for each by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from harken.backends.postgres.queue import Share
from harken.errors import HarkenError
from harken.store import Commit, Committed, Stale

__all__ = ["GroupCommit", "may_share"]

Answer = Committed | Stale | Exception
Line = list[tuple[Commit, "asyncio.Future[Committed | Stale]"]]
Write = Callable[[Commit, Sequence[Share]], Awaitable[Committed | Stale]]

LARGEST_GROUP = 200


def may_share(wanted: Commit) -> bool:
    """It moves no cursor and says nothing of its feed beside its new events."""
    says = (wanted.token, wanted.watermark, wanted.next_due, wanted.health, wanted.tick)
    moves = wanted.cursor is not msgspec.UNSET or wanted.done or wanted.release or wanted.backfilled
    return says == (None,) * 5 and not moves and not any(entry.again for entry in wanted.entries)


class GroupCommit:
    def __init__(self, write: Write) -> None:
        self._write = write
        self._lines: dict[tuple[str, int, str], Line] = {}
        self._flights: set[asyncio.Task[None]] = set()

    async def commit(self, wanted: Commit) -> Committed | Stale:
        place = (wanted.feed, wanted.revision, wanted.holder)
        line = self._lines.get(place)
        if line is not None:
            future: asyncio.Future[Committed | Stale] = asyncio.get_running_loop().create_future()
            line.append((wanted, future))
            return await future
        self._lines[place] = []
        try:
            return await self._write(wanted, ())
        finally:
            self._go_on(place)

    def _go_on(self, place: tuple[str, int, str]) -> None:
        """Let those go together who came while others were on their way."""
        line = self._lines[place]
        if not line:
            del self._lines[place]
            return
        group, self._lines[place] = line[:LARGEST_GROUP], line[LARGEST_GROUP:]
        flight = asyncio.get_running_loop().create_task(self._fly(place, group), name="store-commit")
        self._flights.add(flight)
        flight.add_done_callback(self._flights.discard)

    async def _fly(self, place: tuple[str, int, str], group: Line) -> None:
        try:
            answers = await self._share([wanted for wanted, _ in group])
        finally:
            self._go_on(place)
        for (_, future), answer in zip(group, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _share(self, commits: Sequence[Commit]) -> list[Answer]:
        entries = [entry for one in commits for entry in one.entries]
        whole = msgspec.structs.replace(commits[0], entries=entries, claim=sum(one.claim for one in commits))
        try:
            answer = await self._write(whole, [(len(one.entries), one.claim) for one in commits])
        except HarkenError as error:
            return [error] * len(commits)
        except Exception:
            # one of them has what the server refuses
            return [await self._alone(one) for one in commits]
        if isinstance(answer, Committed):
            return list(parts(commits, answer))
        if answer.revision != whole.revision:
            return [answer] * len(commits)
        return [await self._alone(one) for one in commits]

    async def _alone(self, wanted: Commit) -> Answer:
        try:
            return await self._write(wanted, ())
        except Exception as error:
            return error


def parts(commits: Sequence[Commit], whole: Committed) -> list[Committed]:
    """What a shared commit means for each of those who shared it."""
    answers: list[Committed] = []
    left, begin = list(whole.claimed), 0
    for one in commits:
        end = begin + len(one.entries)
        ids, verdicts = whole.event_ids[begin:end], whole.verdicts[begin:end]
        # of two who saw the same event the first has recorded it
        mine = [claim for claim in left if claim.events[0].id in ids]
        left = [claim for claim in left if claim.events[0].id not in ids]
        answers.append(Committed(event_ids=ids, verdicts=verdicts, claimed=mine))
        begin = end
    return answers
