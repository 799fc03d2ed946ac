"""What SQL functions get as `tx`: connection, seal, clock, and a cache of the rows that every commit needs.

Only one process writes the file (it holds a lock), so the cache is valid until a write fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apsw

from harken.backends.codec import SealedTexts, clock_micros, decode_feed, decode_trigger
from harken.backends.encryption import Seal
from harken.clock import Clock
from harken.errors import LeaseLost, NotFound
from harken.event import Identity
from harken.feed import Budget, Trigger
from harken.schedule import Quiet
from harken.store.document_kinds import COUNTER, IDS

__all__ = ["FeedRow", "Transaction", "TriggerRow"]


class FeedRow:
    """The columns of a feed that commits use."""

    __slots__ = ("id", "identity", "name", "revision", "shard", "touched")

    def __init__(self, id: int, name: str, revision: int, shard: int, identity: Identity) -> None:
        self.id = id
        self.name = name
        self.revision = revision
        self.shard = shard
        self.identity = identity
        self.touched = False


class TriggerRow:
    """The columns of a trigger that commits use. `shares`: it gathers some events (by age) and not others."""

    __slots__ = ("budget", "done", "feed", "fired", "id", "name", "shares", "uid")

    def __init__(self, id: int, uid: str, name: str, feed: str, definition: Trigger) -> None:
        self.id = id
        self.uid = uid
        self.name = name
        self.feed = feed
        self.budget = definition.budget
        self.shares = definition.max_age > 0
        self.fired = self.done = 0


class Transaction(SealedTexts):
    """Used for one transaction after another: the writer has one, and each reader its own.

    `execute` returns a cursor of its own with the rows. `write` is for statements that return none: it uses one cursor
    again and again, as making and closing one costs a third of a short statement.
    """

    def __init__(self, connection: apsw.Connection, seal: Seal, clock: Clock, *, for_reading: bool = False) -> None:
        self.connection = connection
        self.execute: Callable[..., Any] = connection.execute
        self.write: Callable[..., Any] = connection.cursor().execute
        self.seal = seal
        self.clock = clock
        self._feeds: dict[str, FeedRow] = {}
        self._triggers: dict[str, TriggerRow] = {}
        self._names: dict[int, str] = {}
        self._definitions: dict[int, Trigger | None] = {}
        self._leases: dict[int, tuple[int, int]] = {}
        self._touched: list[FeedRow] = []
        self._fired: list[TriggerRow] = []
        self._done: dict[str, int] = {}
        self.priorities: set[int] = set()
        self.over_budget: set[int] = set()
        """Ids of triggers that may have runs held by their budget."""
        self._over_budget_loaded = False
        self.pruned_to: dict[str, int] = {}
        """How far the current round of pruning has come, by table."""
        self.passed_events: dict[int, None] = {}
        """Events behind that place which may go some time: an open run needs them, or somebody starred them."""
        self.banks_checked_to = ""
        self.next_event = 1
        self.next_run = 1
        if not for_reading:
            self.load()

    def load(self) -> None:
        """Read counters and priorities from the file."""
        counted = self.json(self.value("SELECT value FROM documents WHERE kind=? AND name=?", (COUNTER, IDS))) or [1, 1]
        self.next_event = max(counted[0], 1 + (self.value("SELECT max(id) FROM events") or 0))
        self.next_run = max(counted[1], 1 + (self.value("SELECT max(seq) FROM runs") or 0))
        self.priorities = {row[0] for row in self.execute("SELECT DISTINCT priority FROM runs WHERE state < 6")} | {0}
        self.load_over_budget()

    def load_over_budget(self) -> None:
        """Read which triggers have runs that are held by their budget, unless that is cached."""
        if self._over_budget_loaded:
            return
        held = "SELECT DISTINCT trigger FROM runs WHERE state<6 AND state=1 AND hold='budget'"
        self.over_budget.clear()
        self.over_budget.update(row[0] for row in self.execute(held))
        self._over_budget_loaded = True

    def save_counters(self) -> None:
        """Store the next ids before rows are deleted, so that ids rise even if the newest rows go."""
        self.execute(
            "INSERT OR REPLACE INTO documents (kind, name, value, revision, updated_at) VALUES (?,?,?,1,?)",
            (COUNTER, IDS, self.shut_json([self.next_event, self.next_run]), self.now()),
        )

    def clear_cache(self) -> None:
        """After a failed write the cache may be wrong: read each row again when it is needed."""
        self._feeds.clear()
        self._triggers.clear()
        self._names.clear()
        self._definitions.clear()
        self._leases.clear()
        self._over_budget_loaded = False

    def roll_back(self) -> None:
        """The whole group was rolled back: drop the cache and the counts of this group."""
        self.clear_cache()
        self._touched.clear()
        self._fired.clear()
        self._done.clear()

    def flush(self) -> None:
        """Write the counts of this group before it is committed: one update per row, however often it was counted."""
        if not self._touched and not self._fired and not self._done:
            return
        now = self.now()
        for feed in self._touched:
            feed.touched = False
            self.write("UPDATE feeds SET last_success=?, last_tick=? WHERE id=?", (now, now, feed.id))
        for trigger in self._fired:
            counted = "UPDATE triggers SET fired=fired+?, done=done+?, last_fired_at=? WHERE id=?"
            self.write(counted, (trigger.fired, trigger.done, now, trigger.id))
            trigger.fired = trigger.done = 0
        for name, done in self._done.items():
            self.write("UPDATE triggers SET done=done+? WHERE name=?", (done, name))
        self._touched.clear()
        self._fired.clear()
        self._done.clear()

    def now(self) -> int:
        return clock_micros(self.clock.time())

    def value(self, sql: str, bindings: Sequence[Any] = ()) -> Any:
        row = self.execute(sql, bindings).fetchone()
        return None if row is None else row[0]

    def row(self, sql: str, bindings: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self.execute(sql, bindings).fetchone()
        return found

    def feed(self, name: str) -> FeedRow:
        feed = self._feeds.get(name)
        if feed is None:
            row = self.row("SELECT id, revision, shard, definition FROM feeds WHERE name=?", (name,))
            if row is None:
                raise NotFound(f"there is no feed {name!r}")
            definition = decode_feed(self.seal.open(row[3]))
            feed = self._feeds[name] = FeedRow(row[0], name, row[1], row[2], definition.identity)
        return feed

    def trigger(self, uid: str) -> TriggerRow:
        trigger = self._triggers.get(uid)
        if trigger is None:
            row = self.row("SELECT id, uid, name, feed, definition FROM triggers WHERE uid=?", (uid,))
            if row is None:
                raise NotFound(f"there is no trigger with uid {uid!r}")
            trigger = self._triggers[uid] = TriggerRow(
                row[0], uid, row[2], row[3], decode_trigger(self.seal.open(row[4]))
            )
        return trigger

    def budget(self, trigger: int) -> Budget | None:
        """The trigger's budget, by id."""
        definition = self._definition(trigger)
        return definition.budget if definition else None

    def quiet(self, trigger: int) -> Quiet | None:
        """The trigger's quiet hours, by id."""
        definition = self._definition(trigger)
        return definition.quiet if definition else None

    def _definition(self, trigger: int) -> Trigger | None:
        if trigger not in self._definitions:
            sealed = self.value("SELECT definition FROM triggers WHERE id=?", (trigger,))
            self._definitions[trigger] = decode_trigger(self.seal.open(sealed)) if sealed is not None else None
        return self._definitions[trigger]

    def trigger_named(self, name: str) -> TriggerRow:
        uid = self.value("SELECT uid FROM triggers WHERE name=? AND removed_at IS NULL", (name,))
        if uid is None:
            raise NotFound(f"there is no trigger {name!r}")
        return self.trigger(uid)

    def trigger_name(self, id: int) -> str:
        name = self._names.get(id)
        if name is None:
            name = self._names[id] = self.value("SELECT name FROM triggers WHERE id=?", (id,)) or ""
        return name

    def touch(self, feed: FeedRow) -> None:
        if not feed.touched:
            feed.touched = True
            self._touched.append(feed)

    def fired_counts(self) -> list[tuple[TriggerRow, int, int]]:
        """Counts of this group so far, for `restore_fired` when a savepoint is rolled back."""
        return [(trigger, trigger.fired, trigger.done) for trigger in self._fired]

    def restore_fired(self, counted: list[tuple[TriggerRow, int, int]]) -> None:
        for trigger in self._fired:
            trigger.fired = trigger.done = 0
        for trigger, fired, done in counted:
            trigger.fired, trigger.done = fired, done
        self._fired = [trigger for trigger, _, _ in counted]

    def count_fired(self, trigger: TriggerRow, *, done: bool = False) -> None:
        """Count a new run, and with `done` also its good end."""
        if not trigger.fired:
            self._fired.append(trigger)
        trigger.fired += 1
        trigger.done += done

    def count_done(self, trigger: str) -> None:
        self._done[trigger] = self._done.get(trigger, 0) + 1

    def check_lease(self, token: int, shard: int) -> None:
        """Raise LeaseLost unless this token is the shard's current one and has not run out."""
        lease = self._leases.get(shard)
        if lease is None:
            row = self.row("SELECT token, until FROM leases WHERE shard=?", (shard,))
            lease = self._leases[shard] = (row[0], row[1]) if row else (0, 0)
        if lease[0] != token or lease[1] < self.now():
            raise LeaseLost("another process reads these feeds now")

    def lease_changed(self) -> None:
        self._leases.clear()

    def feed_changed(self, name: str) -> None:
        self._feeds.pop(name, None)
