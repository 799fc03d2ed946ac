"""Copies a store into an empty one, and sees to it that nobody uses either of them meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from harken.clock import Clock
from harken.errors import Refused
from harken.operate.rows import Plain
from harken.store.export_rows import KINDS, Chunk
from harken.store.transfer import Counts, Moving

__all__ = ["Watching", "copy_store"]

STAY_SECONDS = 5.0
LOOK_SECONDS = 2.0


class Watching(Protocol):
    """Whoever wants to see how it goes on."""

    def waits(self, writers: Sequence[str]) -> None:
        """The store is still in use by these."""
        ...

    def copied(self, counts: Counts) -> None:
        """So many rows of each kind are there by now."""
        ...


async def copy_store(
    source: Moving, target: Moving, clock: Clock, watching: Watching, *, live: bool = False, force: bool = False
) -> Plain:
    """Copy all of `source`. With `live` wait until nobody uses it, and let it refuse every later start.

    Raise Refused when somebody uses it, when `target` is not empty, or when the copy is not complete."""
    began = clock.monotonic()
    await _alone(source, clock, watching, wait=live)
    copying = _Copying(source, clock, watching.copied)
    await target.take(copying.rows(), source.place, force=force)
    await _verify(target, copying.counts)
    if live:
        await source.mark(f"this store moved to {target.place}", MOVED)
    return {
        "from": source.place,
        "to": target.place,
        "moved": live,
        "seconds": round(clock.monotonic() - began, 1),
        "counts": dict(copying.counts),
    }


MOVED = "Name that one as the store. To use this one all the same: harken store reopen"


async def _alone(source: Moving, clock: Clock, watching: Watching, *, wait: bool) -> None:
    while writers := await source.writers():
        if not wait:
            fix = "Stop what uses it and copy then, or wait for that with --live"
            raise Refused(f"{source.place} is in use: {', '.join(writers)}", fix=fix)
        watching.waits(writers)
        await clock.sleep(LOOK_SECONDS)


class _Copying:
    """The rows of a store as they pass, counted; every few seconds the store is kept from others again."""

    def __init__(self, source: Moving, clock: Clock, told: Callable[[Counts], None]) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(KINDS.values(), 0))
        self._source = source
        self._clock = clock
        self._told = told

    async def rows(self) -> AsyncIterator[Chunk]:
        stayed = self._clock.monotonic()
        async for chunk in self._source.rows():
            yield chunk
            kind = KINDS.get(type(chunk[0]))
            if kind is not None:
                self.counts[kind] += len(chunk)
                self._told(self.counts)
            if self._clock.monotonic() - stayed >= STAY_SECONDS:
                await self._source.stay()
                stayed = self._clock.monotonic()
        await self._source.stay()


async def _verify(target: Moving, copied: Counts) -> None:
    """Raise Refused, and let nobody start with it, when the copy does not have what was read."""
    found = await target.counts()
    missing = [f"{found[kind]} of {copied[kind]} {kind}" for kind in copied if found[kind] != copied[kind]]
    if missing:
        message = f"the copy in {target.place} is not complete: it has {', '.join(missing)}"
        fix = "Copy into another empty store, and report this"
        await target.mark(message, fix)
        raise Refused(message, fix=fix)
