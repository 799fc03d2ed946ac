"""Intents become verdicts: a run is inserted, joins one that gathers, is held, or there is none, with the reason.

Plain intents of a page are inserted with one statement. Those that depend on what else is there (slots, windows,
budgets) follow one by one, in the order of the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from harken.backends.codec import decode_verdicts, micros
from harken.backends.postgres.holding import close_gathering
from harken.backends.postgres.inserting import NewRow, insert_runs
from harken.backends.postgres.slots import take_slot
from harken.backends.postgres.spending import has_room, lock_budget, spend
from harken.backends.postgres.transaction import Books, TriggerRow
from harken.backends.run_states import (
    BLOCKED,
    GATHERING,
    HAS_ITS_RUN,
    HELD,
    HOLD_REASONS,
    NOT_OVER,
    READY,
    RUNNING,
    gathered_as,
    run_id_of,
)
from harken.event import Verdict
from harken.store import GatherInto, Intent

__all__ = ["Resolver", "Share", "Wish"]

Share = tuple[int, int]
"""So many entries of a page, and how many of their runs may be handed over."""


class Wish(NamedTuple):
    """An intent of the entry at `place` of its page, for the event that is being recorded."""

    place: int
    intent: Intent
    event_id: int
    seq: int


class Resolver:
    """Resolves the intents of one commit. `handed` has the runs that are claimed for the caller already."""

    def __init__(self, books: Books, shares: Sequence[Share], holder: str) -> None:
        self.handed: list[tuple[Wish, bytes]] = []
        self._books = books
        self._owners = [owner for owner, (entries, _) in enumerate(shares) for _ in range(entries)]
        self._rooms = [most for _, most in shares]
        self._holder = holder
        self._fired: Counter[int] = Counter()
        self._gathered: dict[tuple[int, str], bytes] = {}

    async def resolve(self, wishes: Sequence[Wish], *, hand: bool = True) -> list[Verdict]:
        """A verdict for each wish, in the same order. With `hand` new runs may be claimed for the caller."""
        if not hand:
            self._rooms = [0] * len(self._rooms)
        verdicts: dict[int, Verdict] = {}
        plain = [wish for wish in wishes if self._is_plain(wish.intent)]
        if plain:
            verdicts.update(zip((wish.seq for wish in plain), await self._plain(plain), strict=True))
        for wish in wishes:
            if wish.seq not in verdicts:
                verdicts[wish.seq] = await self._one(wish)
        return [verdicts[wish.seq] for wish in wishes]

    def tallied(self) -> tuple[list[int], list[int]]:
        """Triggers and how often they fired, since this was asked last."""
        fired, self._fired = self._fired, Counter()
        return list(fired), list(fired.values())

    def _is_plain(self, intent: Intent) -> bool:
        trigger = self._books.trigger(intent.trigger)
        slotted = intent.slot and intent.overlap != "allow"
        return not (intent.gather is not None or slotted or trigger.budget is not None or trigger.shares)

    async def _plain(self, wishes: Sequence[Wish]) -> list[Verdict]:
        rows = [self._row(wish, HELD if wish.intent.hold else READY, wish.intent.hold) for wish in wishes]
        taken = await insert_runs(self._books, rows, self._holder)
        return [
            self._inserted(wish, row)
            if row.seq in taken
            else _duplicate(self._books.trigger(wish.intent.trigger), row.id)
            for wish, row in zip(wishes, rows, strict=True)
        ]

    def _row(self, wish: Wish, state: int, hold: str, slot: bytes | None = None) -> NewRow:
        books, intent = self._books, wish.intent
        trigger = books.trigger(intent.trigger)
        due = micros(intent.due_at)
        begin, end = (None, None) if intent.quiet is None else (micros(intent.quiet.start), micros(intent.quiet.end))
        if begin is not None and end is not None and begin <= books.now < end:
            due = max(due, end)
        hands = state == READY and due <= books.now and self._rooms[self._owners[wish.place]] > 0
        if hands:
            self._rooms[self._owners[wish.place]] -= 1
        # fmt: off
        return NewRow(
            wish.seq, run_id_of(books.seal, intent.trigger, intent.epoch, intent.run_key), trigger.id,
            intent.workflow_rev, RUNNING if hands else state, intent.priority, due, intent.max_attempts, wish.event_id,
            books.seal.shut(intent.input) if intent.input else None, slot, intent.overlap if slot else None, None,
            hold or None, begin, end, trigger.budget is not None and not hands,
        )
        # fmt: on

    def _inserted(self, wish: Wish, row: NewRow) -> Verdict:
        trigger = self._books.trigger(wish.intent.trigger)
        self._fired[trigger.id] += 1
        if row.state == RUNNING:
            self.handed.append((wish, row.id))
        elif row.state == READY:
            self._books.wakes = True
        if row.hold:
            reason = HOLD_REASONS[row.hold]
            return Verdict(trigger=trigger.name, outcome="held", reason=reason, run_id=row.id.hex())
        return Verdict(trigger=trigger.name, outcome="fired", reason=wish.intent.reason, run_id=row.id.hex())

    async def _one(self, wish: Wish) -> Verdict:
        books, intent = self._books, wish.intent
        trigger = books.trigger(intent.trigger)
        if intent.gather is not None:
            return await self._gather(trigger, wish, intent.gather)
        run_id = run_id_of(books.seal, intent.trigger, intent.epoch, intent.run_key)
        shared = await self._gathered_before(trigger, intent.run_key) if trigger.shares else None
        if shared is not None:
            # it was old when it was found first, and looks young now that a sibling's reset shows it again
            return _duplicate(trigger, shared)
        state, hold = (HELD if intent.hold else READY), str(intent.hold)
        slot = books.seal.name(intent.slot) if intent.slot and intent.overlap != "allow" else None
        if slot is not None and not hold:
            if await books.value("SELECT 1 FROM runs WHERE id=$1", run_id):
                return _duplicate(trigger, run_id)
            taken = await take_slot(books, slot, intent.overlap, wish.seq)
            if taken is None:
                return Verdict(trigger=trigger.name, outcome="skipped", reason=NOT_OVER)
            state = READY if taken else BLOCKED
        if trigger.budget is not None and state == READY and await self._over_budget(trigger, intent):
            state, hold = HELD, "budget"
        row = self._row(wish, state, hold, slot)
        if not await insert_runs(self._books, [row], self._holder):
            return _duplicate(trigger, run_id)
        if row.state == RUNNING and trigger.budget is not None:
            await spend(books, trigger.id, "runs", 1)
        return self._inserted(wish, row)

    async def _over_budget(self, trigger: TriggerRow, intent: Intent) -> bool:
        """It would start now, and nothing is left, or others have waited for longer."""
        books, budget = self._books, trigger.budget
        quiet = intent.quiet is not None and micros(intent.quiet.start) <= books.now < micros(intent.quiet.end)
        if budget is None or quiet or micros(intent.due_at) > books.now:
            return False
        await lock_budget(books, trigger.id)
        waiting = f"SELECT 1 FROM runs WHERE state={HELD} AND hold='budget' AND trigger=$1 LIMIT 1"
        return bool(await books.value(waiting, trigger.id)) or not await has_room(books, trigger.id, budget)

    async def _gather(self, trigger: TriggerRow, wish: Wish, into: GatherInto) -> Verdict:
        books, intent = self._books, wish.intent
        alone = run_id_of(books.seal, intent.trigger, intent.epoch, intent.run_key)
        # it may have had a run of its own when it was younger, or before somebody edited the trigger
        known = await books.value("SELECT 1 FROM runs WHERE id=$1", alone)
        earlier = alone if known else await self._gathered_before(trigger, intent.run_key)
        if earlier is not None:
            return _duplicate(trigger, earlier)
        key = books.seal.name(f"gather\0{into.key}")
        seq, run_id, gathered = await self._join(trigger, wish, into, key)
        if not seq:
            return _duplicate(trigger, run_id)
        self._gathered[trigger.id, intent.run_key] = run_id
        await books.do("INSERT INTO run_events (run, event) VALUES ($1, $2) ON CONFLICT DO NOTHING", seq, wish.event_id)
        if into.max and gathered >= into.max:
            await close_gathering(books, seq)
        reason = gathered_as(gathered, intent.reason)
        return Verdict(trigger=trigger.name, outcome="gathered", reason=reason, run_id=run_id.hex())

    async def _join(self, trigger: TriggerRow, wish: Wish, into: GatherInto, key: bytes) -> tuple[int, bytes, int]:
        """Join the open run of the key or open it: its seq, its id and how many it has; seq 0 for a run that was."""
        books, intent = self._books, wish.intent
        run_id = run_id_of(books.seal, intent.trigger, intent.epoch, f"gather\0{into.key}\0{intent.run_key}")
        while True:
            row = await books.row(
                f"""SELECT seq, id, gathered, due_at FROM runs WHERE trigger=$1 AND gather=$2 AND state={GATHERING}
                FOR UPDATE""",
                trigger.id,
                key,
            )
            if row is not None and row[3] > books.now:
                due = max(row[3], micros(into.due_at)) if into.extends else row[3]
                await self._joined(trigger, intent, row[0], row[2] + 1, due)
                return row[0], row[1], row[2] + 1
            if row is not None:
                # its window is over although nobody has claimed it yet
                await close_gathering(books, row[0])
            if await self._open_window(trigger, wish, into, key, run_id):
                return wish.seq, run_id, 1
            if await books.value("SELECT 1 FROM runs WHERE id=$1", run_id):
                return 0, run_id, 0
            # another replica opened the window between the two statements

    async def _joined(self, trigger: TriggerRow, intent: Intent, seq: int, gathered: int, due: int) -> None:
        quiet = (None, None) if intent.quiet is None else (micros(intent.quiet.start), micros(intent.quiet.end))
        await self._books.do(
            """UPDATE runs SET gathered=$1, due_at=$2, quiet_from=coalesce($3, quiet_from),
            quiet_until=coalesce($4, quiet_until), budgeted=$5 WHERE seq=$6""",
            gathered,
            due,
            *quiet,
            trigger.budget is not None,
            seq,
        )

    async def _open_window(self, trigger: TriggerRow, wish: Wish, into: GatherInto, key: bytes, run_id: bytes) -> bool:
        books, intent = self._books, wish.intent
        slot = books.seal.name(intent.slot) if intent.slot and intent.overlap != "allow" else None
        row = self._row(wish, GATHERING, intent.hold, slot)
        fresh = row._replace(id=run_id, due_at=micros(into.due_at), event=None, gather=key)
        # somebody else may have opened a window for the same key, which is a conflict too
        if not await insert_runs(self._books, [fresh], self._holder, which=""):
            return False
        self._fired[trigger.id] += 1
        books.wakes = True
        return True

    async def _gathered_before(self, trigger: TriggerRow, run_key: str) -> bytes | None:
        """The run that has this occurrence already since the last reset; a gathering run's id names only its first."""
        books = self._books
        if (trigger.id, run_key) in self._gathered:
            return self._gathered[trigger.id, run_key]
        rows = await books.rows(
            "SELECT verdicts FROM events WHERE kid=$1 AND id>=(SELECT epoch_event FROM triggers WHERE id=$2)",
            books.seal.name(run_key),
            trigger.id,
        )
        for (sealed,) in rows:
            for verdict in decode_verdicts(books.seal.open(sealed)):
                if verdict.trigger == trigger.name and verdict.outcome == "gathered":
                    return bytes.fromhex(verdict.run_id)
        return None


def _duplicate(trigger: TriggerRow, run_id: bytes) -> Verdict:
    return Verdict(trigger=trigger.name, outcome="duplicate", reason=HAS_ITS_RUN, run_id=run_id.hex())
