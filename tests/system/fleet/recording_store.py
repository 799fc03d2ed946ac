"""A store that writes down, before and after each call, who wanted what under which lease."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from harken.errors import LeaseLost
from harken.store import HOUSEKEEPING, Commit, Committed, Definitions, Failure, IdleRead, Lease, Opened, Stale

__all__ = ["Gate", "Pen", "RecordedStore"]

Wishes = Sequence[tuple[str, int]]
"""The feeds that are written, with the tokens."""


class Pen:
    """Appends lines to a file of its own: a process that is killed leaves what it has said until then."""

    def __init__(self, path: Path, who: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._who = who
        self._calls = itertools.count(1)

    def ask(self, verb: str, **what: Any) -> int:
        call = next(self._calls)
        self._write({"who": self._who, "call": call, "asked": time.monotonic(), "verb": verb, **what})
        return call

    def hear(self, call: int, outcome: str, **what: Any) -> None:
        self._write({"who": self._who, "call": call, "heard": time.monotonic(), "outcome": outcome, **what})

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")


class Gate:
    """Another process can close it: a renewal of the leases then waits, so that it cannot notice that one is lost."""

    def __init__(self, path: Path) -> None:
        self._closed = path
        self._reached = path.with_suffix(".reached")

    def close(self) -> None:
        self._closed.touch()

    def open(self) -> None:
        self._closed.unlink()
        self._reached.unlink()

    @property
    def is_reached(self) -> bool:
        """Whether a renewal waits: from then on there is none on its way to the store."""
        return self._reached.exists()

    async def passed(self) -> None:
        while self._closed.exists():
            self._reached.touch()
            await asyncio.sleep(0.05)


class RecordedStore:
    """The store behind it, unchanged. Lines tell of leases, and of writes that need one."""

    def __init__(self, store: Any, pen: Pen, gate: Gate) -> None:
        self._store = store
        self._pen = pen
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self, definitions: Definitions) -> Opened:
        opened: Opened = await self._store.open(definitions)
        call = self._pen.ask("open", shards={feed.name: feed.shard for feed in definitions.feeds})
        self._pen.hear(call, "done", generation=definitions.generation)
        return opened

    async def lease(self, shard: int, holder: str, seconds: float, *, generation: str = "") -> Lease | None:
        if shard != HOUSEKEEPING:
            await self._gate.passed()
        call = self._pen.ask("lease", shard=shard, holder=holder)
        lease: Lease | None = await self._store.lease(shard, holder, seconds, generation=generation)
        if lease is None:
            self._pen.hear(call, "refused")
        else:
            # by the store's own clock
            self._pen.hear(call, "done", token=lease.token, granted=lease.until.timestamp() - seconds)
        return lease

    async def release_lease(self, lease: Lease, holder: str) -> None:
        call = self._pen.ask("release_lease", shard=lease.shard, holder=holder)
        await self._store.release_lease(lease, holder)
        self._pen.hear(call, "done", token=lease.token)

    async def commit(self, commit: Commit) -> Committed | Stale:
        if commit.token is None:
            return await self._store.commit(commit)  # type: ignore[no-any-return]
        answer: Committed | Stale = await self._written(
            "commit", [(commit.feed, commit.token)], self._store.commit(commit)
        )
        return answer

    async def record_idle(self, reads: Sequence[IdleRead]) -> Sequence[str]:
        wishes = [(rest.feed, rest.token) for rest in reads]
        stale: Sequence[str] = await self._written("record_idle", wishes, self._store.record_idle(reads))
        return stale

    async def fail(self, failure: Failure) -> None:
        wishes = [(failure.feed, failure.token)] if failure.token is not None else []
        await self._written("fail", wishes, self._store.fail(failure))

    async def forget(self, feed: str, token: int, listed: Sequence[str], before: datetime | None) -> int:
        gone: int = await self._written("forget", [(feed, token)], self._store.forget(feed, token, listed, before))
        return gone

    async def _written(self, verb: str, wishes: Wishes, doing: Any) -> Any:
        call = self._pen.ask(verb, writes=wishes)
        try:
            answer = await doing
        except LeaseLost:
            self._pen.hear(call, "refused")
            raise
        except BaseException as error:
            self._pen.hear(call, "unknown", error=type(error).__name__)
            raise
        events = [id for id in answer.event_ids if id] if isinstance(answer, Committed) else []
        self._pen.hear(call, "stale" if isinstance(answer, Stale) else "done", events=events)
        return answer
