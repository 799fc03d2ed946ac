"""One transaction: its connection, its instant, the seal, and the cache that outlives it.

Several replicas write, so a cached row is used only if it belongs to the revision that was read in this transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from harken.backends.codec import SealedTexts, decode_trigger
from harken.backends.encryption import Seal
from harken.errors import LeaseLost, NotFound
from harken.feed import Budget, Trigger

__all__ = ["LockedFeed", "Overtaken", "Rollback", "RowCache", "Transaction", "TriggerRow", "check_lease", "lock_feed"]


class Rollback(Exception):
    """Raised to write nothing of this transaction; the caller gets `answer` as the result."""

    def __init__(self, answer: Any) -> None:
        super().__init__(str(answer))
        self.answer = answer


class Overtaken(Exception):
    """Another replica has just written what this transaction was about to write: it is rolled back and done again."""


class TriggerRow:
    """What a commit needs to know of a trigger.

    `gathers_old`: events older than its `max_age` share a run, younger ones have a run each.
    """

    __slots__ = ("budget", "definition", "feed", "gathers_old", "id", "name", "uid")

    def __init__(self, id: int, uid: str, name: str, feed: str, definition: Trigger) -> None:
        self.id = id
        self.uid = uid
        self.name = name
        self.feed = feed
        self.definition = definition
        self.budget: Budget | None = definition.budget
        self.gathers_old = definition.max_age > 0


class RowCache:
    """What a process keeps between transactions.

    `listeners`: triggers by uid for each feed, at one revision of it. `trigger_names` and `priorities` only grow.
    `pruned_to`: for each table the id at which the next slice of pruning begins. `passed_events` are behind it, and
    may go some time: an open run needs them, or somebody starred them.
    """

    def __init__(self) -> None:
        self.listeners: dict[str, tuple[int, dict[str, TriggerRow]]] = {}
        self.trigger_names: dict[int, str] = {0: ""}
        self.priorities: set[int] = {0}
        self.pruned_to: dict[str, int] = {}
        self.passed_events: dict[int, None] = {}
        self.banks_checked_to = ""


class Transaction(SealedTexts):
    """Runs statements on one connection. `now` is the transaction's instant in microseconds, 0 if not yet read."""

    def __init__(self, connection: Any, seal: Seal, cache: RowCache, now: int) -> None:
        self.connection = connection
        self.seal = seal
        self.cache = cache
        self.now = now
        self.on_commit: list[Callable[[], object]] = []
        """Called after the commit."""
        self.made_ready = False
        """A run became ready that another replica may claim."""
        self._triggers: dict[str, TriggerRow] = {}

    @property
    def given_now(self) -> int | None:
        """For a statement that reads the server's clock where this is None."""
        return self.now or None

    async def rows(self, sql: str, *bindings: Any) -> Sequence[Any]:
        found: Sequence[Any] = await self.connection.fetch(sql, *bindings)
        return found

    async def row(self, sql: str, *bindings: Any) -> Any:
        return await self.connection.fetchrow(sql, *bindings)

    async def value(self, sql: str, *bindings: Any) -> Any:
        return await self.connection.fetchval(sql, *bindings)

    async def do(self, sql: str, *bindings: Any) -> int:
        """Return how many rows it changed."""
        status: str = await self.connection.execute(sql, *bindings)
        return int(status.rsplit(" ", 1)[-1])

    async def each(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run the same statement for each row, pipelined."""
        if rows:
            await self.connection.executemany(sql, rows)

    async def load_triggers(self, feed: str, revision: int, uids: Iterable[str]) -> None:
        """Make these triggers available to `trigger`. The caller holds the lock of the feed, which is at `revision`."""
        cached = self.cache.listeners.get(feed)
        if cached is None or cached[0] != revision:
            cached = self.cache.listeners[feed] = (revision, {})
        missing = {uid for uid in uids if uid not in cached[1]}
        if missing:
            for row in await self._trigger_rows("uid=ANY($1::text[])", list(missing)):
                # a trigger of another feed can change without a new revision of this one, so it is not cached
                (cached[1] if row.feed == feed else self._triggers)[row.uid] = row
        self._triggers.update(cached[1])

    def trigger(self, uid: str) -> TriggerRow:
        """A trigger that `load_triggers` has loaded."""
        found = self._triggers.get(uid)
        if found is None:
            raise NotFound(f"there is no trigger with uid {uid!r}")
        return found

    async def trigger_by_name(self, name: str) -> TriggerRow:
        found = await self._trigger_rows("name=$1 AND removed_at IS NULL", name)
        if not found:
            raise NotFound(f"there is no trigger {name!r}")
        return found[0]

    async def trigger_by_id(self, id: int) -> TriggerRow | None:
        found = await self._trigger_rows("id=$1", id)
        return found[0] if found else None

    async def _trigger_rows(self, where: str, *bindings: Any) -> list[TriggerRow]:
        rows = await self.rows(f"SELECT id, uid, name, feed, definition FROM triggers WHERE {where}", *bindings)
        return [TriggerRow(row[0], row[1], row[2], row[3], decode_trigger(self.seal.open(row[4]))) for row in rows]

    async def trigger_names(self, ids: Iterable[int]) -> dict[int, str]:
        """Names by id, of at least these triggers. A trigger never changes its name."""
        names = self.cache.trigger_names
        missing = {id for id in ids if id not in names}
        if missing:
            rows = await self.rows("SELECT id, name FROM triggers WHERE id=ANY($1::int[])", list(missing))
            names.update((row[0], row[1]) for row in rows)
        return names


_LOCK_FEED = """WITH f AS MATERIALIZED
(SELECT id, revision, identity, last_success, shard FROM feeds WHERE name=$1 {lock}),
l AS MATERIALIZED (SELECT token, until FROM leases WHERE shard=(SELECT shard FROM f) {lease})
SELECT f.id, f.revision, f.identity, f.last_success, l.token, l.until,
ARRAY(SELECT nextval('event_ids') FROM generate_series(1, $2)),
ARRAY(SELECT nextval('run_seqs') FROM generate_series(1, $3)), harken_now() FROM f LEFT JOIN l ON true"""
LOCK_LEASED = _LOCK_FEED.format(lock="FOR NO KEY UPDATE", lease="FOR KEY SHARE")
LOCK_PUSHED = _LOCK_FEED.format(lock="FOR KEY SHARE", lease="AND false")
"""Pushes to one feed run side by side: they only keep its revision from changing."""


class LockedFeed(NamedTuple):
    """A feed that this transaction has locked, its lease, and new ids for the rows that will be written."""

    id: int
    revision: int
    identity: str
    last_success: int | None
    token: int | None
    until: int | None
    event_ids: list[int]
    run_seqs: list[int]


async def lock_feed(tx: Transaction, feed: str, *, leased: bool, events: int = 0, runs: int = 0) -> LockedFeed:
    """Lock the feed, with its lease if `leased`, and read the server's clock where `tx` has no instant yet.

    Raise NotFound for a feed that was never opened.
    """
    row = await tx.row(LOCK_LEASED if leased else LOCK_PUSHED, feed, events, runs)
    if row is None:
        raise NotFound(f"there is no feed {feed!r}")
    tx.now = tx.now or row[8]
    return LockedFeed(*row[:8])


def check_lease(token: int, current: int | None, until: int | None, now: int) -> None:
    """Raise LeaseLost unless this token is the shard's current one and has not expired."""
    if current != token or until is None or until < now:
        raise LeaseLost("another process reads these feeds now")
