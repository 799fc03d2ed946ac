"""One transaction: its connection, its instant, the seal, and what this process may keep between transactions.

Several replicas write, so nothing is kept that is not proven by a revision read in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from harken.backends.codec import Texts, decode_trigger
from harken.backends.encryption import Seal
from harken.errors import LeaseLost, NotFound
from harken.feed import Budget, Trigger

__all__ = ["LockedFeed", "RowCache", "Transaction", "TriggerRow", "Withdrawn", "check_lease", "enter"]


class Withdrawn(Exception):
    """Nothing of this verb is to be written; `answer` is what its caller hears."""

    def __init__(self, answer: Any) -> None:
        super().__init__(str(answer))
        self.answer = answer


class TriggerRow:
    """What a commit needs to know of a trigger. `shares`: some of its events are gathered, and others are not."""

    __slots__ = ("budget", "definition", "feed", "id", "name", "shares", "uid")

    def __init__(self, id: int, uid: str, name: str, feed: str, definition: Trigger) -> None:
        self.id = id
        self.uid = uid
        self.name = name
        self.feed = feed
        self.definition = definition
        self.budget: Budget | None = definition.budget
        self.shares = definition.max_age > 0


class RowCache:
    """What outlives a transaction: listeners of a feed at one revision, names that never change, priorities."""

    def __init__(self) -> None:
        self.listeners: dict[str, tuple[int, dict[str, TriggerRow]]] = {}
        self.names: dict[int, str] = {0: ""}
        self.priorities: set[int] = {0}
        self.swept: dict[str, int] = {}


class Transaction(Texts):
    """The verbs' way to the database, for the length of one transaction that sees the instant `now`."""

    def __init__(self, connection: Any, seal: Seal, shelf: RowCache, now: int) -> None:
        self.connection = connection
        self.seal = seal
        self.shelf = shelf
        self.now = now
        self.afterwards: list[Callable[[], object]] = []
        """Done once the transaction is committed."""
        self.wakes = False
        """A run became ready that somebody else may claim."""
        self._rows: dict[str, TriggerRow] = {}

    @property
    def given_now(self) -> int | None:
        """For a statement that asks the server's clock where it is given none."""
        return self.now or None

    async def rows(self, sql: str, *bindings: Any) -> Sequence[Any]:
        found: Sequence[Any] = await self.connection.fetch(sql, *bindings)
        return found

    async def row(self, sql: str, *bindings: Any) -> Any:
        return await self.connection.fetchrow(sql, *bindings)

    async def value(self, sql: str, *bindings: Any) -> Any:
        return await self.connection.fetchval(sql, *bindings)

    async def do(self, sql: str, *bindings: Any) -> int:
        """How many rows it changed."""
        status: str = await self.connection.execute(sql, *bindings)
        return int(status.rsplit(" ", 1)[-1])

    async def each(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """The same statement for each row, without waiting in between."""
        if rows:
            await self.connection.executemany(sql, rows)

    async def know(self, feed: str, revision: int, uids: Iterable[str]) -> None:
        """Make these triggers known to `trigger`. The feed is at this revision, and we hold its lock."""
        kept = self.shelf.listeners.get(feed)
        if kept is None or kept[0] != revision:
            kept = self.shelf.listeners[feed] = (revision, {})
        missing = {uid for uid in uids if uid not in kept[1]}
        if missing:
            for row in await self._trigger_rows("uid=ANY($1::text[])", list(missing)):
                # whoever listens to another feed may change without this revision's knowing
                (kept[1] if row.feed == feed else self._rows)[row.uid] = row
        self._rows.update(kept[1])

    def trigger(self, uid: str) -> TriggerRow:
        """One that `know` was asked for."""
        found = self._rows.get(uid)
        if found is None:
            raise NotFound(f"there is no trigger with uid {uid!r}")
        return found

    async def trigger_named(self, name: str) -> TriggerRow:
        found = await self._trigger_rows("name=$1 AND removed_at IS NULL", name)
        if not found:
            raise NotFound(f"there is no trigger {name!r}")
        return found[0]

    async def trigger_numbered(self, id: int) -> TriggerRow | None:
        found = await self._trigger_rows("id=$1", id)
        return found[0] if found else None

    async def _trigger_rows(self, where: str, *bindings: Any) -> list[TriggerRow]:
        rows = await self.rows(f"SELECT id, uid, name, feed, definition FROM triggers WHERE {where}", *bindings)
        return [TriggerRow(row[0], row[1], row[2], row[3], decode_trigger(self.seal.open(row[4]))) for row in rows]

    async def name_triggers(self, ids: Iterable[int]) -> dict[int, str]:
        """The names of triggers, which never change."""
        names = self.shelf.names
        missing = {id for id in ids if id not in names}
        if missing:
            rows = await self.rows("SELECT id, name FROM triggers WHERE id=ANY($1::int[])", list(missing))
            names.update((row[0], row[1]) for row in rows)
        return names


def check_lease(token: int, current: int | None, until: int | None, now: int) -> None:
    """Raise LeaseLost unless this token is the shard's current one and has not run out."""
    if current != token or until is None or until < now:
        raise LeaseLost("another process reads these feeds now")


_ENTER = """WITH f AS MATERIALIZED (SELECT id, revision, identity, last_success, shard FROM feeds WHERE name=$1 {lock}),
l AS MATERIALIZED (SELECT token, until FROM leases WHERE shard=(SELECT shard FROM f) {lease})
SELECT f.id, f.revision, f.identity, f.last_success, l.token, l.until,
ARRAY(SELECT nextval('event_ids') FROM generate_series(1, $2)),
ARRAY(SELECT nextval('run_seqs') FROM generate_series(1, $3)), harken_now() FROM f LEFT JOIN l ON true"""

LEASED = _ENTER.format(lock="FOR NO KEY UPDATE", lease="FOR KEY SHARE")

PUSHED = _ENTER.format(lock="FOR KEY SHARE", lease="AND false")


class LockedFeed(NamedTuple):
    """A feed as it is while we write to it, its lease, and fresh ids for what we write."""

    id: int
    revision: int
    identity: str
    last_success: int | None
    token: int | None
    until: int | None
    event_ids: list[int]
    run_seqs: list[int]


async def enter(tx: Transaction, feed: str, *, leased: bool, events: int = 0, runs: int = 0) -> LockedFeed:
    """Raise NotFound for a feed that was never opened."""
    row = await tx.row(LEASED if leased else PUSHED, feed, events, runs)
    if row is None:
        raise NotFound(f"there is no feed {feed!r}")
    tx.now = tx.now or row[8]
    return LockedFeed(*row[:8])
