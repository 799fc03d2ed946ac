"""Intents become runs: inserted, gathered, held, or blocked behind a slot, and counted against budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from harken.backends.budgets import left, window
from harken.backends.codec import decode_verdicts, micros
from harken.backends.postgres.statements import Spread
from harken.backends.postgres.transaction import Transaction, TriggerRow
from harken.backends.run_states import (
    BLOCKED,
    CANCELLED,
    DROPPED,
    GATHERING,
    HAS_ITS_RUN,
    HELD,
    HOLD_REASONS,
    NOT_OVER,
    READY,
    REPLACED,
    RUNNING,
    WAITING,
    gathered_as,
    run_id_of,
)
from harken.event import Verdict
from harken.feed import Budget
from harken.runs import StepRecord
from harken.store import GatherInto, Intent

__all__ = [
    "NewRow",
    "Resolver",
    "Share",
    "Wish",
    "admit",
    "charge",
    "close_gathering",
    "count_run",
    "free_slot",
    "has_room",
    "insert_runs",
    "let_go",
    "lock_budget",
    "lock_slot",
    "release_flood",
    "room",
    "spend",
    "take_slot",
]


SPEND = """INSERT INTO spent AS s (trigger, what, since, amount) VALUES ($1, $2, $3, $4)
ON CONFLICT (trigger, what) DO UPDATE SET since=excluded.since,
amount=CASE WHEN s.since=excluded.since THEN s.amount+excluded.amount ELSE excluded.amount END"""


async def spend(tx: Transaction, trigger: int, what: str, amount: float) -> None:
    await tx.do(SPEND, trigger, what, window(what, tx.now), float(amount))


async def count_run(tx: Transaction, seq: int, trigger: int) -> None:
    await spend(tx, trigger, "runs", 1)
    await tx.do("UPDATE runs SET budgeted=false WHERE seq=$1", seq)


async def charge(tx: Transaction, seq: int, record: StepRecord) -> None:
    """Count what a model took for this step, once: a record that is written again is not charged again."""
    payer = await _payer(tx, seq)
    if not payer:
        return
    if record.tokens:
        await spend(tx, payer, "tokens", record.tokens)
    if record.usd:
        await spend(tx, payer, "usd", record.usd)


async def _payer(tx: Transaction, seq: int) -> int:
    """The trigger behind a run; a sub-run spends the budget of whoever asked for it."""
    row = await tx.row("SELECT trigger, parent FROM runs WHERE seq=$1", seq)
    while row is not None and not row[0] and row[1] is not None:
        row = await tx.row("SELECT trigger, parent FROM runs WHERE id=$1", row[1])
    return int(row[0]) if row is not None else 0


async def lock_budget(tx: Transaction, trigger: int) -> None:
    await tx.value("SELECT 1 FROM triggers WHERE id=$1 FOR NO KEY UPDATE", trigger)


async def has_room(tx: Transaction, trigger: int, budget: Budget) -> bool:
    return await room(tx, trigger, budget) > 0


async def room(tx: Transaction, trigger: int, budget: Budget) -> float:
    """How many runs may start now."""
    rows = await tx.rows("SELECT what, since, amount FROM spent WHERE trigger=$1", trigger)
    return left(budget, rows, tx.now)


async def take_slot(tx: Transaction, slot: bytes, overlap: str, seq: int) -> bool | None:
    """True: the slot is ours. False: wait behind it. None: give way."""
    while True:
        taken = "INSERT INTO slots (key, run) VALUES ($1, $2) ON CONFLICT DO NOTHING"
        if await tx.do(taken, slot, seq):
            return True
        current = await lock_slot(tx, slot)
        if current == seq:
            return True
        if current is not None:
            break
        # it was freed between the two statements
    if overlap == "skip":
        return None
    if overlap == "cancel_previous":
        return await _push_out(tx, slot, current, seq)
    return False


async def lock_slot(tx: Transaction, slot: bytes) -> int | None:
    """The run that has the slot. Nobody else takes or frees it until we are done."""
    found: int | None = await tx.value("SELECT run FROM slots WHERE key=$1 FOR UPDATE", slot)
    return found


async def _push_out(tx: Transaction, slot: bytes, current: int, seq: int) -> bool:
    reason = tx.shut(REPLACED)
    cancel = f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2"
    await tx.do(f"{cancel} WHERE state={BLOCKED} AND slot=$3", tx.now, reason, slot)
    before = f"state IN ({HELD}, {READY}, {WAITING})"
    if await tx.do(f"{cancel} WHERE seq=$3 AND {before}", tx.now, reason, current):
        await tx.do("UPDATE slots SET run=$1 WHERE key=$2", seq, slot)
        return True
    await tx.do("UPDATE runs SET cancel_requested=true WHERE seq=$1", current)
    return False


async def free_slot(tx: Transaction, slot: bytes, seq: int) -> None:
    """The holder is over: the next blocked run of the slot becomes ready."""
    if await lock_slot(tx, slot) != seq:
        return
    following = await tx.value(
        f"""SELECT seq FROM runs WHERE state={BLOCKED} AND slot=$1 ORDER BY priority DESC, due_at, seq LIMIT 1
        FOR UPDATE""",
        slot,
    )
    if following is None:
        await tx.do("DELETE FROM slots WHERE key=$1", slot)
        return
    await tx.do("UPDATE slots SET run=$1 WHERE key=$2", following, slot)
    await tx.do(f"UPDATE runs SET state={READY} WHERE seq=$1", following)
    tx.wakes = True


async def admit(tx: Transaction, seq: int, due: int | None = None) -> None:
    """Make a run ready, or blocked behind its slot; one that may not overlap and comes second is cancelled."""
    slot, overlap, due_at = await tx.row("SELECT slot, overlap, due_at FROM runs WHERE seq=$1", seq)
    state: int = READY
    if slot is not None:
        taken = await take_slot(tx, slot, overlap, seq)
        if taken is None:
            reason = tx.shut(NOT_OVER)
            await tx.do(
                f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2, hold=NULL WHERE seq=$3",
                tx.now,
                reason,
                seq,
            )
            return
        state = READY if taken else BLOCKED
    when = due if due is not None else min(due_at, tx.now)
    await tx.do("UPDATE runs SET state=$1, due_at=$2, hold=NULL WHERE seq=$3", state, when, seq)
    tx.wakes = True


CLAIM_US = 60_000_000

ROWS = Spread(
    seq="bigint",
    id="bytea",
    trigger="int",
    workflow_rev="text",
    state="smallint",
    priority="int",
    due_at="bigint",
    max_attempts="int",
    event="bigint",
    input="bytea",
    slot="bytea",
    overlap="text",
    gather="bytea",
    hold="text",
    quiet_from="bigint",
    quiet_until="bigint",
    budgeted="boolean",
)

INSERT_RUNS = f"""INSERT INTO runs (seq, id, trigger, workflow_rev, state, priority, due_at, max_attempts, event, input,
slot, overlap, gather, hold, quiet_from, quiet_until, budgeted, token, lease_until, holder, started_at, created_at)
SELECT u.*, CASE WHEN u.state={RUNNING} THEN 1 ELSE 0 END, CASE WHEN u.state={RUNNING} THEN $1::bigint + {CLAIM_US} END,
CASE WHEN u.state={RUNNING} THEN $2::text END, CASE WHEN u.state={RUNNING} THEN $1 END, $1 FROM ({{rows}}) u
ON CONFLICT {{which}} DO NOTHING RETURNING seq"""


class NewRow(NamedTuple):
    """A run to be inserted, in the order of ROWS."""

    seq: int
    id: bytes
    trigger: int
    workflow_rev: str
    state: int
    priority: int
    due_at: int
    max_attempts: int
    event: int | None
    input: bytes | None
    slot: bytes | None
    overlap: str | None
    gather: bytes | None
    hold: str | None
    quiet_from: int | None
    quiet_until: int | None
    budgeted: bool


async def insert_runs(tx: Transaction, rows: Sequence[NewRow], holder: str, which: str = "(id)") -> set[int]:
    """Those that are new, by seq. Runs that are handed over are claimed by `holder`."""
    await _know_priorities(tx, {row.priority for row in rows})
    text, values = ROWS.of(rows, fixed=2)
    found = await tx.rows(INSERT_RUNS.format(rows=text, which=which), tx.now, holder, *values)
    return {row[0] for row in found}


async def _know_priorities(tx: Transaction, wanted: set[int]) -> None:
    shelf = tx.shelf
    new = wanted - shelf.priorities
    if new:
        sql = "INSERT INTO priorities SELECT * FROM unnest($1::int[]) ON CONFLICT DO NOTHING"
        await tx.do(sql, sorted(new))
        tx.afterwards.append(lambda: shelf.priorities.update(new))


async def close_gathering(tx: Transaction, seq: int) -> None:
    """The window is over or full: the run is due, unless it is held."""
    if await tx.value("SELECT hold FROM runs WHERE seq=$1", seq):
        await tx.do(f"UPDATE runs SET state={HELD}, due_at=$1 WHERE seq=$2", tx.now, seq)
    else:
        await admit(tx, seq)


async def release_flood(tx: Transaction, trigger: int, limit: int) -> None:
    """The first read is complete: few enough held runs go, too many wait for a person."""
    held = await tx.value(
        f"SELECT count(*) FROM runs WHERE trigger=$1 AND state IN ({HELD}, {GATHERING}) AND hold='flood'", trigger
    )
    if 0 < held <= limit:
        await let_go(tx, trigger, "flood")


async def let_go(tx: Transaction, trigger: int, hold: str, *, drop: bool = False) -> int:
    """Release (or cancel) the trigger's held runs, oldest first; how many."""
    which = "AND ($2='' OR hold=$2)"
    if not drop:
        await tx.do(f"UPDATE runs SET hold=NULL WHERE trigger=$1 AND state={GATHERING} {which}", trigger, hold)
    held = await tx.rows(
        f"SELECT seq, due_at, slot FROM runs WHERE trigger=$1 AND state={HELD} {which} ORDER BY due_at, seq FOR UPDATE",
        trigger,
        hold,
    )
    for seq, due, slot in held:
        if drop:
            await _drop(tx, seq, slot)
        else:
            await admit(tx, seq, due=due)
    return len(held)


async def _drop(tx: Transaction, seq: int, slot: bytes | None) -> None:
    if slot is not None:
        await lock_slot(tx, slot)
    reason = tx.shut(DROPPED)
    await tx.do(f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2 WHERE seq=$3", tx.now, reason, seq)
    if slot is not None:
        await free_slot(tx, slot, seq)


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

    def __init__(self, tx: Transaction, shares: Sequence[Share], holder: str) -> None:
        self.handed: list[tuple[Wish, bytes]] = []
        self._tx = tx
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
        trigger = self._tx.trigger(intent.trigger)
        slotted = intent.slot and intent.overlap != "allow"
        return not (intent.gather is not None or slotted or trigger.budget is not None or trigger.shares)

    async def _plain(self, wishes: Sequence[Wish]) -> list[Verdict]:
        rows = [self._row(wish, HELD if wish.intent.hold else READY, wish.intent.hold) for wish in wishes]
        taken = await insert_runs(self._tx, rows, self._holder)
        return [
            self._inserted(wish, row) if row.seq in taken else _duplicate(self._tx.trigger(wish.intent.trigger), row.id)
            for wish, row in zip(wishes, rows, strict=True)
        ]

    def _row(self, wish: Wish, state: int, hold: str, slot: bytes | None = None) -> NewRow:
        tx, intent = self._tx, wish.intent
        trigger = tx.trigger(intent.trigger)
        due = micros(intent.due_at)
        begin, end = (None, None) if intent.quiet is None else (micros(intent.quiet.start), micros(intent.quiet.end))
        if begin is not None and end is not None and begin <= tx.now < end:
            due = max(due, end)
        hands = state == READY and due <= tx.now and self._rooms[self._owners[wish.place]] > 0
        if hands:
            self._rooms[self._owners[wish.place]] -= 1
        # fmt: off
        return NewRow(
            wish.seq, run_id_of(tx.seal, intent.trigger, intent.epoch, intent.run_key), trigger.id,
            intent.workflow_rev, RUNNING if hands else state, intent.priority, due, intent.max_attempts, wish.event_id,
            tx.seal.shut(intent.input) if intent.input else None, slot, intent.overlap if slot else None, None,
            hold or None, begin, end, trigger.budget is not None and not hands,
        )
        # fmt: on

    def _inserted(self, wish: Wish, row: NewRow) -> Verdict:
        trigger = self._tx.trigger(wish.intent.trigger)
        self._fired[trigger.id] += 1
        if row.state == RUNNING:
            self.handed.append((wish, row.id))
        elif row.state == READY:
            self._tx.wakes = True
        if row.hold:
            reason = HOLD_REASONS[row.hold]
            return Verdict(trigger=trigger.name, outcome="held", reason=reason, run_id=row.id.hex())
        return Verdict(trigger=trigger.name, outcome="fired", reason=wish.intent.reason, run_id=row.id.hex())

    async def _one(self, wish: Wish) -> Verdict:
        tx, intent = self._tx, wish.intent
        trigger = tx.trigger(intent.trigger)
        if intent.gather is not None:
            return await self._gather(trigger, wish, intent.gather)
        run_id = run_id_of(tx.seal, intent.trigger, intent.epoch, intent.run_key)
        shared = await self._gathered_before(trigger, intent.run_key) if trigger.shares else None
        if shared is not None:
            # it was old when it was found first, and looks young now that a sibling's reset shows it again
            return _duplicate(trigger, shared)
        state, hold = (HELD if intent.hold else READY), str(intent.hold)
        slot = tx.seal.name(intent.slot) if intent.slot and intent.overlap != "allow" else None
        if slot is not None and not hold:
            if await tx.value("SELECT 1 FROM runs WHERE id=$1", run_id):
                return _duplicate(trigger, run_id)
            taken = await take_slot(tx, slot, intent.overlap, wish.seq)
            if taken is None:
                return Verdict(trigger=trigger.name, outcome="skipped", reason=NOT_OVER)
            state = READY if taken else BLOCKED
        if trigger.budget is not None and state == READY and await self._over_budget(trigger, intent):
            state, hold = HELD, "budget"
        row = self._row(wish, state, hold, slot)
        if not await insert_runs(self._tx, [row], self._holder):
            return _duplicate(trigger, run_id)
        if row.state == RUNNING and trigger.budget is not None:
            await spend(tx, trigger.id, "runs", 1)
        return self._inserted(wish, row)

    async def _over_budget(self, trigger: TriggerRow, intent: Intent) -> bool:
        """It would start now, and nothing is left, or others have waited for longer."""
        tx, budget = self._tx, trigger.budget
        quiet = intent.quiet is not None and micros(intent.quiet.start) <= tx.now < micros(intent.quiet.end)
        if budget is None or quiet or micros(intent.due_at) > tx.now:
            return False
        await lock_budget(tx, trigger.id)
        waiting = f"SELECT 1 FROM runs WHERE state={HELD} AND hold='budget' AND trigger=$1 LIMIT 1"
        return bool(await tx.value(waiting, trigger.id)) or not await has_room(tx, trigger.id, budget)

    async def _gather(self, trigger: TriggerRow, wish: Wish, into: GatherInto) -> Verdict:
        tx, intent = self._tx, wish.intent
        alone = run_id_of(tx.seal, intent.trigger, intent.epoch, intent.run_key)
        # it may have had a run of its own when it was younger, or before somebody edited the trigger
        known = await tx.value("SELECT 1 FROM runs WHERE id=$1", alone)
        earlier = alone if known else await self._gathered_before(trigger, intent.run_key)
        if earlier is not None:
            return _duplicate(trigger, earlier)
        key = tx.seal.name(f"gather\0{into.key}")
        seq, run_id, gathered = await self._join(trigger, wish, into, key)
        if not seq:
            return _duplicate(trigger, run_id)
        self._gathered[trigger.id, intent.run_key] = run_id
        await tx.do("INSERT INTO run_events (run, event) VALUES ($1, $2) ON CONFLICT DO NOTHING", seq, wish.event_id)
        if into.max and gathered >= into.max:
            await close_gathering(tx, seq)
        reason = gathered_as(gathered, intent.reason)
        return Verdict(trigger=trigger.name, outcome="gathered", reason=reason, run_id=run_id.hex())

    async def _join(self, trigger: TriggerRow, wish: Wish, into: GatherInto, key: bytes) -> tuple[int, bytes, int]:
        """Join the open run of the key or open it: its seq, its id and how many it has; seq 0 for a run that was."""
        tx, intent = self._tx, wish.intent
        run_id = run_id_of(tx.seal, intent.trigger, intent.epoch, f"gather\0{into.key}\0{intent.run_key}")
        while True:
            row = await tx.row(
                f"""SELECT seq, id, gathered, due_at FROM runs WHERE trigger=$1 AND gather=$2 AND state={GATHERING}
                FOR UPDATE""",
                trigger.id,
                key,
            )
            if row is not None and row[3] > tx.now:
                due = max(row[3], micros(into.due_at)) if into.extends else row[3]
                await self._joined(trigger, intent, row[0], row[2] + 1, due)
                return row[0], row[1], row[2] + 1
            if row is not None:
                # its window is over although nobody has claimed it yet
                await close_gathering(tx, row[0])
            if await self._open_window(trigger, wish, into, key, run_id):
                return wish.seq, run_id, 1
            if await tx.value("SELECT 1 FROM runs WHERE id=$1", run_id):
                return 0, run_id, 0
            # another replica opened the window between the two statements

    async def _joined(self, trigger: TriggerRow, intent: Intent, seq: int, gathered: int, due: int) -> None:
        quiet = (None, None) if intent.quiet is None else (micros(intent.quiet.start), micros(intent.quiet.end))
        await self._tx.do(
            """UPDATE runs SET gathered=$1, due_at=$2, quiet_from=coalesce($3, quiet_from),
            quiet_until=coalesce($4, quiet_until), budgeted=$5 WHERE seq=$6""",
            gathered,
            due,
            *quiet,
            trigger.budget is not None,
            seq,
        )

    async def _open_window(self, trigger: TriggerRow, wish: Wish, into: GatherInto, key: bytes, run_id: bytes) -> bool:
        tx, intent = self._tx, wish.intent
        slot = tx.seal.name(intent.slot) if intent.slot and intent.overlap != "allow" else None
        row = self._row(wish, GATHERING, intent.hold, slot)
        fresh = row._replace(id=run_id, due_at=micros(into.due_at), event=None, gather=key)
        # somebody else may have opened a window for the same key, which is a conflict too
        if not await insert_runs(self._tx, [fresh], self._holder, which=""):
            return False
        self._fired[trigger.id] += 1
        tx.wakes = True
        return True

    async def _gathered_before(self, trigger: TriggerRow, run_key: str) -> bytes | None:
        """The run that has this occurrence already since the last reset; a gathering run's id names only its first."""
        tx = self._tx
        if (trigger.id, run_key) in self._gathered:
            return self._gathered[trigger.id, run_key]
        rows = await tx.rows(
            "SELECT verdicts FROM events WHERE kid=$1 AND id>=(SELECT epoch_event FROM triggers WHERE id=$2)",
            tx.seal.name(run_key),
            trigger.id,
        )
        for (sealed,) in rows:
            for verdict in decode_verdicts(tx.seal.open(sealed)):
                if verdict.trigger == trigger.name and verdict.outcome == "gathered":
                    return bytes.fromhex(verdict.run_id)
        return None


def _duplicate(trigger: TriggerRow, run_id: bytes) -> Verdict:
    return Verdict(trigger=trigger.name, outcome="duplicate", reason=HAS_ITS_RUN, run_id=run_id.hex())
