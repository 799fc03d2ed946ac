"""What every verb uses: the connection, the seal, and names that never change, so that they are read once."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from harken.backends.codec import SealedTexts
from harken.backends.encryption import Seal
from harken.backends.notify import Notifications
from harken.backends.redis.codec import (
    BUCKET,
    DOCUMENT,
    Arguments,
    Row,
    event_fields,
    fields_of_reply,
    hash_fields,
    recorded,
)
from harken.backends.redis.connection import Connection
from harken.errors import NotFound
from harken.event import Recorded

__all__ = ["Session", "UsesSession"]

EVENTS_PER_READ = 200
HASHES_PER_READ = 200
READS_AT_ONCE = 4
"""So many reads are under way together: the server makes the next answers while we decode one."""
MANY_HASHES = 10
"""From so many on, hashes are read by a script."""


class Session(SealedTexts):
    """A store that was reached. Each verb is one script, and so a transaction of its own.

    `life` is the random id of this process: a worker of the same name with another one has died. `holders` are the
    workers that have claimed with this session.
    """

    def __init__(self, connection: Connection, seal: Seal, life: str) -> None:
        self.connection = connection
        self.seal = seal
        self.life = life
        self.holders: set[str] = set()
        self.banks_checked = 0
        self._names: dict[bytes, str] = {}
        self._uids: dict[str, str] = {}
        self._workflows: dict[str, str] = {}

    def arguments(self) -> Arguments:
        return Arguments(self.seal)

    async def now(self) -> int:
        """The time of the store in microseconds."""
        now = self.connection.clock_us
        if now is not None:
            return now
        [[seconds, us]] = await self.connection.execute(("TIME",))
        return int(seconds) * 1_000_000 + int(us)

    async def hashes(self, keys: Sequence[str]) -> list[Row]:
        """All fields of these hashes; of one that does not exist, none."""
        if len(keys) < MANY_HASHES:
            rows = await self.connection.execute(*(("HGETALL", self.connection.key(key)) for key in keys))
            return list(map(hash_fields, rows))
        return await self._read_many("records.hashes", keys, (), fields_of_reply)

    async def fields(self, keys: Sequence[str], wanted: Sequence[str]) -> list[Row]:
        """These fields of the hashes, of each those that it has: of many, a third of what all would cost."""

        def named(values: Sequence[bytes | None]) -> Row:
            return {field: value for field, value in zip(wanted, values, strict=True) if value is not None}

        return await self._read_many("records.fields", keys, (list(wanted),), named)

    async def _read_many(
        self, verb: str, keys: Sequence[str], further: tuple[Any, ...], decode: Callable[[Sequence[Any]], Row]
    ) -> list[Row]:
        starts = range(0, len(keys), HASHES_PER_READ)
        found: dict[int, list[Row]] = {}
        left = deque(starts)

        async def read_on() -> None:
            while left:
                start = left.popleft()
                some = list(keys[start : start + HASHES_PER_READ])
                # a command for each would cost the driver several times what reading them costs
                reply = await self.connection.query(verb, self.arguments(), (some, *further))
                found[start] = list(map(decode, reply))

        try:
            await asyncio.gather(*(read_on() for _ in range(READS_AT_ONCE)))
        finally:
            # if one fails, the others end
            left.clear()
        return list(itertools.chain.from_iterable(found[start] for start in starts))

    async def events(self, ids: Sequence[int], *, with_verdicts: bool = True) -> list[Recorded]:
        """These events in this order, without those that were deleted."""
        found: list[Recorded] = []
        for begin in range(0, len(ids), EVENTS_PER_READ):
            some = ids[begin : begin + EVENTS_PER_READ]
            rows = await self.connection.execute(
                *(("HMGET", self.connection.key(f"e:{each // BUCKET}"), *event_fields(each)) for each in some)
            )
            for each, row in zip(some, rows, strict=True):
                event = recorded(self.seal, each, row, with_verdicts=with_verdicts)
                found += [event] if event is not None else []
        return found

    async def learn_names(self, uids: Iterable[bytes]) -> None:
        """Read the names of triggers that are not known yet, for `trigger_name`. A uid never changes its name."""
        unknown = [uid for uid in set(uids) - self._names.keys() if uid]
        found = await self.connection.execute(*(("HGET", self.connection.key("tr:") + uid, "name") for uid in unknown))
        self._names.update((uid, name.decode()) for uid, name in zip(unknown, found, strict=True) if name)

    def trigger_name(self, uid: bytes) -> str:
        return self._names.get(uid, "")

    async def uid_of(self, trigger: str) -> str:
        """The uid of a trigger, removed or not; NotFound if there never was one."""
        if trigger not in self._uids:
            [uid] = await self.connection.execute(("HGET", self.connection.key("tn"), trigger))
            if uid is None:
                raise NotFound(f"there is no trigger {trigger!r}")
            self._uids[trigger] = uid.decode()
        return self._uids[trigger]

    async def workflow_names(self, revisions: Iterable[str]) -> dict[str, str]:
        """The name of each workflow revision. A revision is written once."""
        wanted = set(revisions)
        unknown = [rev for rev in wanted - self._workflows.keys() if rev]
        if unknown:
            [rows] = await self.connection.execute(("HMGET", self.connection.key("d:workflow"), *unknown))
            for rev, row in zip(unknown, rows, strict=True):
                if row is not None:
                    self._workflows[rev] = str(self.json(row[DOCUMENT.size :])["name"])
        return {rev: self._workflows.get(rev, "") for rev in wanted}


class UsesSession(ABC):
    """What the classes that make up the store share."""

    _hints: Notifications

    @abstractmethod
    async def _ready(self) -> Session:
        """The session; the first call reaches the server."""
