"""What every verb needs: the connection, the seal, this life of the process, and names that never change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harken.backends.codec import Texts
from harken.backends.encryption import Seal
from harken.backends.redis.codec import BUCKET, Ask, event_fields, recorded
from harken.backends.redis.connection import Connection
from harken.errors import NotFound
from harken.event import Recorded

__all__ = ["Transaction"]

AT_ONCE = 200


class Transaction(Texts):
    """`life`: a worker of the same name in an earlier life of its process is gone, and its claims with it."""

    def __init__(self, connection: Connection, seal: Seal, life: str) -> None:
        self.connection = connection
        self.seal = seal
        self.life = life
        self.greeted: set[str] = set()
        self._names: dict[bytes, str] = {}
        self._uids: dict[str, str] = {}
        self._workflows: dict[str, str] = {}

    def ask(self) -> Ask:
        return Ask(self.seal)

    async def learn_names(self, uids: Iterable[bytes]) -> None:
        """Read the names of triggers that are not known yet: a uid keeps its name for good."""
        unknown = [uid for uid in set(uids) - self._names.keys() if uid]
        found = await self.connection.read(*(("HGET", self.connection.key("tr:") + uid, "name") for uid in unknown))
        self._names.update((uid, name.decode()) for uid, name in zip(unknown, found, strict=True) if name)

    def trigger_name(self, uid: bytes) -> str:
        return self._names.get(uid, "")

    async def uid_of(self, trigger: str) -> str:
        """The uid of a trigger, removed or not; NotFound when there never was one."""
        if trigger not in self._uids:
            [uid] = await self.connection.read(("HGET", self.connection.key("tn"), trigger))
            if uid is None:
                raise NotFound(f"there is no trigger {trigger!r}")
            self._uids[trigger] = uid.decode()
        return self._uids[trigger]

    async def events(self, ids: Sequence[int]) -> list[Recorded]:
        """These events in this order, without those that are gone."""
        found: list[Recorded] = []
        for begin in range(0, len(ids), AT_ONCE):
            some = ids[begin : begin + AT_ONCE]
            rows = await self.connection.read(
                *(("HMGET", self.connection.key(f"e:{each // BUCKET}"), *event_fields(each)) for each in some)
            )
            events = [recorded(self.seal, each, row) for each, row in zip(some, rows, strict=True)]
            found.extend(event for event in events if event is not None)
        return found

    async def workflow_names(self, revisions: Iterable[str]) -> dict[str, str]:
        """The name of each workflow revision; a revision is never written twice."""
        wanted = set(revisions)
        unknown = [rev for rev in wanted - self._workflows.keys() if rev]
        if unknown:
            [rows] = await self.connection.read(("HMGET", self.connection.key("d:workflow"), *unknown))
            for rev, row in zip(unknown, rows, strict=True):
                if row is not None:
                    self._workflows[rev] = str(self.json(row[12:])["name"])
        return {rev: self._workflows.get(rev, "") for rev in wanted}
