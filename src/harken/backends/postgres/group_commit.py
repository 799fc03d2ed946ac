"""Pushes that wait at the same moment share one commit: what a webhook's few rows cost is round trips, not work.

A push that arrives alone is written at once. If a shared commit fails, each of its pushes is written alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from harken.backends.postgres.run_creation_and_admission import CommitShare
from harken.errors import HarkenError, StoreUnavailable
from harken.store import Commit, Committed, Stale

__all__ = ["GroupCommit", "may_share"]

Answer = Committed | Stale | Exception
GroupKey = tuple[str, int, str]
"""Feed, revision and holder: commits that agree in them can be written as one."""
Waiting = list[tuple[Commit, "asyncio.Future[Committed | Stale]"]]
Write = Callable[[Commit, Sequence[CommitShare]], Awaitable[Committed | Stale]]

LARGEST_GROUP = 200


def may_share(wanted: Commit) -> bool:
    """Whether it only adds new events: no cursor, no tick, nothing else about its feed or triggers."""
    about_feed = (wanted.token, wanted.watermark, wanted.next_due, wanted.health, wanted.tick)
    moves = wanted.cursor is not msgspec.UNSET or wanted.done or wanted.release or wanted.backfilled
    return about_feed == (None,) * 5 and not moves and not any(entry.again for entry in wanted.entries)


class GroupCommit:
    """`write` writes a commit that several share; with no shares, a commit of its own."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: dict[GroupKey, Waiting] = {}
        """A key is present while a commit of it is being written."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def commit(self, wanted: Commit) -> Committed | Stale:
        key = (wanted.feed, wanted.revision, wanted.holder)
        waiting = self._waiting.get(key)
        if waiting is not None:
            future: asyncio.Future[Committed | Stale] = asyncio.get_running_loop().create_future()
            waiting.append((wanted, future))
            return await future
        self._waiting[key] = []
        try:
            return await self._write(wanted, ())
        finally:
            self._start_next(key)

    def _start_next(self, key: GroupKey) -> None:
        """Start a shared commit of those that arrived while the last one was written."""
        waiting = self._waiting[key]
        if not waiting:
            del self._waiting[key]
            return
        group, self._waiting[key] = waiting[:LARGEST_GROUP], waiting[LARGEST_GROUP:]
        task = asyncio.get_running_loop().create_task(self._commit_group(key, group), name="store-commit")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit_group(self, key: GroupKey, group: Waiting) -> None:
        # if this task is cancelled, nobody knows what the store has: who is told so sends again, and repeats are found
        answers: Sequence[Answer] = [StoreUnavailable("the commit was broken off", after=1.0)] * len(group)
        try:
            answers = await self._write_group([wanted for wanted, _ in group])
        finally:
            self._start_next(key)
            _answer(group, answers)

    async def _write_group(self, commits: Sequence[Commit]) -> list[Answer]:
        entries = [entry for one in commits for entry in one.entries]
        whole = msgspec.structs.replace(commits[0], entries=entries, claim=sum(one.claim for one in commits))
        try:
            answer = await self._write(whole, [CommitShare(len(one.entries), one.claim) for one in commits])
        except HarkenError as error:
            return [error] * len(commits)
        except Exception:
            # one commit of the group is invalid: retry each alone
            return [await self._write_alone(one) for one in commits]
        if isinstance(answer, Committed):
            return list(_split(answer, commits))
        if answer.revision != whole.revision:
            return [answer] * len(commits)
        return [await self._write_alone(one) for one in commits]

    async def _write_alone(self, wanted: Commit) -> Answer:
        try:
            return await self._write(wanted, ())
        except Exception as error:
            return error


def _answer(group: Waiting, answers: Sequence[Answer]) -> None:
    for (_, future), answer in zip(group, answers, strict=True):
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _split(whole: Committed, commits: Sequence[Commit]) -> list[Committed]:
    """The part of a shared commit's answer that belongs to each of its commits."""
    answers: list[Committed] = []
    left, over, begin = list(whole.claimed), list(whole.over), 0
    for one in commits:
        end = begin + len(one.entries)
        ids, verdicts = whole.event_ids[begin:end], whole.verdicts[begin:end]
        # if two commits have the same event, its run belongs to the first
        mine = [claim for claim in left if claim.events[0].id in ids]
        left = [claim for claim in left if claim.events[0].id not in ids]
        ended = [one for one in over if one[0].events[0].id in ids]
        over = [one for one in over if one[0].events[0].id not in ids]
        answers.append(Committed(event_ids=ids, verdicts=verdicts, claimed=mine, over=ended))
        begin = end
    return answers
