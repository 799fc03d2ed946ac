"""How the intents of a commit become runs: inserted, gathered, held, or blocked behind a slot.

A run's way to `ready`: a gathering run waits for its window to close, a held one for a person, the end of a first read
or its trigger's budget, a blocked one for the run that has its slot. What ends such a wait calls `admit`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from harken.backends.codec import micros, moment
from harken.backends.postgres.statement_builder import UnnestRows
from harken.backends.postgres.transaction_with_row_cache import Overtaken, Transaction, TriggerRow
from harken.backends.postgres.watched_run_changes import watch
from harken.backends.remaining_budget import budget_room, window
from harken.backends.run_states_ids_and_reasons import (
    ANSWERED,
    BLOCKED,
    CANCELLED,
    DONE,
    DROPPED,
    ENDED,
    GATHERING,
    HAS_ITS_RUN,
    HELD,
    HOLD_REASONS,
    MISSED,
    NOT_OVER,
    READY,
    REPLACED,
    RUNNING,
    SAME_VALUE,
    TOO_EARLY,
    WAITING,
    delayed_reason,
    gathered_reason,
    mark_name,
    run_id_of,
    throttled_reason,
)
from harken.backends.verdicts import decode_verdicts
from harken.event import Verdict
from harken.feed import Budget
from harken.runs import StepRecord
from harken.store import Distinct, GatherInto, Intent, JoinPart, RateLimit
from harken.store.gathering_rules import (
    Gathered,
    answered_by,
    decode_parts,
    encode_parts,
    fits,
    is_complete,
    keeps_incomplete,
    pack_times,
    part_of,
    postponed,
    runs_when_over,
    start_within,
    unpack_times,
    with_answer,
    with_start,
)

__all__ = [
    "CommitShare",
    "Resolver",
    "RunRequest",
    "admit",
    "charge_step",
    "close_gathering",
    "count_run",
    "free_slot",
    "hold_gathering",
    "lock_budget",
    "lock_slot",
    "release_flood",
    "release_held",
    "runs_left",
]

CLAIM_US = 60_000_000
"""How long a run is claimed that is claimed by the commit which inserts it."""

RUN_ROWS = UnnestRows(
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
    output="bytea",
)
INSERT_RUNS = f"""INSERT INTO runs (seq, id, trigger, workflow_rev, state, priority, due_at, max_attempts, event, input,
slot, overlap, gather, hold, quiet_from, quiet_until, budgeted, output, token, lease_until, holder, started_at,
finished_at, created_at)
SELECT u.*, CASE WHEN u.state IN ({RUNNING}, {DONE}) THEN 1 ELSE 0 END,
CASE WHEN u.state={RUNNING} THEN $1::bigint + {CLAIM_US} END, CASE WHEN u.state={RUNNING} THEN $2::text END,
CASE WHEN u.state IN ({RUNNING}, {DONE}) THEN $1 END, CASE WHEN u.state={DONE} THEN $1 END, $1 FROM ({{rows}}) u
ON CONFLICT {{conflict}} DO NOTHING RETURNING seq"""
RECORD_ROWS = UnnestRows(run="bigint", n="int", record="bytea")

SET_MARK = """INSERT INTO marks (trigger, key, until, run, times) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (trigger, key) DO UPDATE SET until=excluded.until, run=excluded.run, times=excluded.times"""

SPEND = """INSERT INTO spent AS s (trigger, what, since, amount) VALUES ($1, $2, $3, $4)
ON CONFLICT (trigger, what) DO UPDATE SET since=excluded.since,
amount=CASE WHEN s.since=excluded.since THEN s.amount+excluded.amount ELSE excluded.amount END"""


class CommitShare(NamedTuple):
    """One of the commits that are written together: how many entries it has and how many runs it may claim."""

    entries: int
    claims: int


class RunRequest(NamedTuple):
    """An intent of the entry at `position` of its page. `seq` is the number of its run, if it becomes one."""

    position: int
    intent: Intent
    event_id: int
    seq: int


class RunRow(NamedTuple):
    """A run to insert, in the order of RUN_ROWS."""

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
    output: bytes | None = None


class Resolver:
    """Turns the intents of one commit into runs and verdicts.

    Runs that are due at once are claimed for `holder`, as many as each share allows: `claimed` has their requests
    and run ids. `over` has those of the runs that were inserted as over.
    """

    def __init__(self, tx: Transaction, shares: Sequence[CommitShare], holder: str) -> None:
        self.claimed: list[tuple[RunRequest, bytes]] = []
        self.over: list[tuple[RunRequest, bytes]] = []
        self._tx = tx
        self._share_of = [number for number, share in enumerate(shares) for _ in range(share.entries)]
        self._claims_left = [share.claims for share in shares]
        self._holder = holder
        self._fired: Counter[int] = Counter()
        self._done: Counter[int] = Counter()
        self._ends_early = True
        self._records: list[tuple[int, int, bytes]] = []
        self._gathered: dict[tuple[int, str], bytes] = {}
        self._watched: list[int] = []

    async def resolve(self, requests: Sequence[RunRequest], *, claim: bool = True) -> list[Verdict]:
        """A verdict for each request, in the same order. Without `claim` no run starts with the commit from now on."""
        if not claim:
            self._claims_left = [0] * len(self._claims_left)
            self._ends_early = False
        verdicts: dict[int, Verdict] = {}
        plain = [request for request in requests if self._is_plain(request.intent)]
        if plain:
            verdicts.update(zip((request.seq for request in plain), await self._insert_plain(plain), strict=True))
        for request in requests:
            if request.seq not in verdicts:
                verdicts[request.seq] = await self._resolve_one(request)
        if self._watched:
            watched, self._watched = self._watched, []
            await watch(self._tx, watched)
        if self._records:
            records, self._records = self._records, []
            query, values = RECORD_ROWS.select(records, after=0)
            await self._tx.do(f"INSERT INTO journal (run, n, record) {query}", *values)
        return [verdicts[request.seq] for request in requests]

    def take_tallies(self) -> tuple[list[int], list[int], list[int]]:
        """Triggers, how often each has fired since the last call, and how many of its runs were over at once."""
        fired, done = self._fired, self._done
        self._fired, self._done = Counter(), Counter()
        return list(fired), list(fired.values()), [done[trigger] for trigger in fired]

    def _is_plain(self, intent: Intent) -> bool:
        """Whether its run depends on no other run and on no budget."""
        if intent.distinct is not None or intent.rate is not None:
            return False
        trigger = self._tx.trigger(intent.trigger)
        has_slot = intent.slot and intent.overlap != "allow"
        return not (intent.gather is not None or has_slot or trigger.budget is not None or trigger.gathers_old)

    async def _insert_plain(self, requests: Sequence[RunRequest]) -> list[Verdict]:
        rows = [
            self._run_row(request, HELD if request.intent.hold else READY, request.intent.hold) for request in requests
        ]
        inserted = await _insert_runs(self._tx, rows, self._holder)
        return [
            self._verdict(request, row)
            if row.seq in inserted
            else _duplicate(self._tx.trigger(request.intent.trigger), row.id)
            for request, row in zip(requests, rows, strict=True)
        ]

    async def _resolve_one(self, request: RunRequest) -> Verdict:
        intent = request.intent
        trigger = self._tx.trigger(intent.trigger)
        if intent.distinct is None and intent.rate is None:
            return await self._start(trigger, request)
        # replicas take turns, so that all of them see the same marks
        await lock_budget(self._tx, trigger.id)
        limited = await self._limit(trigger, intent)
        if isinstance(limited, Verdict):
            return limited
        verdict = await self._start(trigger, request._replace(intent=limited))
        if verdict.outcome == "skipped" and intent.gather is None:
            # another replica took the slot meanwhile, and what is skipped must not count
            raise Overtaken
        if intent.distinct is not None and verdict.outcome in ("fired", "held", "gathered"):
            until = self._tx.now + round(intent.distinct.seconds * 1_000_000)
            key = mark_name(self._tx.seal, "dedupe", intent.epoch, intent.distinct.key)
            await self._tx.do(SET_MARK, trigger.id, key, until, bytes.fromhex(verdict.run_id), None)
        return verdict

    async def _limit(self, trigger: TriggerRow, intent: Intent) -> Verdict | Intent:
        """Apply dedupe and throttle: the verdict that no run starts, or the intent with the time when it does."""
        known = await self._known_run(trigger, intent)
        if known is not None:
            return _duplicate(trigger, known)
        slot = _slot_of(self._tx, intent) if not intent.hold and intent.gather is None else None
        if slot is not None and intent.overlap == "skip" and await lock_slot(self._tx, slot) is not None:
            # what is skipped must not count
            return Verdict(trigger=trigger.name, outcome="skipped", reason=NOT_OVER)
        first = await self._first_with(trigger, intent, intent.distinct) if intent.distinct else None
        if first is not None:
            return Verdict(trigger=trigger.name, outcome="duplicate", reason=SAME_VALUE, run_id=first.hex())
        start = await self._take_start(trigger, intent, intent.rate) if intent.rate else None
        if start is None or intent.rate is None:
            return intent
        if intent.rate.drops:
            return Verdict(trigger=trigger.name, outcome="skipped", reason=throttled_reason(start // 1_000_000))
        reason = delayed_reason(start // 1_000_000, intent.reason)
        return msgspec.structs.replace(intent, due_at=moment(start), reason=reason)

    async def _known_run(self, trigger: TriggerRow, intent: Intent) -> bytes | None:
        """The run that has this occurrence already."""
        alone = run_id_of(self._tx.seal, intent.trigger, intent.epoch, intent.run_key)
        if await self._tx.value("SELECT 1 FROM runs WHERE id=$1", alone):
            return alone
        return await self._gathered_before(trigger, intent.run_key) if intent.gather or trigger.gathers_old else None

    async def _first_with(self, trigger: TriggerRow, intent: Intent, distinct: Distinct) -> bytes | None:
        key = mark_name(self._tx.seal, "dedupe", intent.epoch, distinct.key)
        found: bytes | None = await self._tx.value(
            "SELECT run FROM marks WHERE trigger=$1 AND key=$2 AND until>$3", trigger.id, key, self._tx.now
        )
        return found

    async def _take_start(self, trigger: TriggerRow, intent: Intent, rate: RateLimit) -> int | None:
        """None: the run may start when it is due, which counts now. Otherwise when the throttle allows it."""
        tx, key = self._tx, mark_name(self._tx.seal, "throttle", intent.epoch, rate.key)
        packed = await tx.value("SELECT times FROM marks WHERE trigger=$1 AND key=$2", trigger.id, key)
        times = unpack_times(packed) if packed else []
        wanted = max(micros(intent.due_at), tx.now)
        start = start_within(times, wanted, rate)
        if start == wanted or not rate.drops:
            kept = with_start(times, start, rate)
            until = kept[-1] + round(rate.seconds * 1_000_000)
            await tx.do(SET_MARK, trigger.id, key, until, None, pack_times(kept))
        return None if start == wanted else start

    async def _start(self, trigger: TriggerRow, request: RunRequest) -> Verdict:
        tx, intent = self._tx, request.intent
        if intent.gather is not None:
            return await self._gather(trigger, request, intent.gather)
        run_id = run_id_of(tx.seal, intent.trigger, intent.epoch, intent.run_key)
        gathered = await self._gathered_before(trigger, intent.run_key) if trigger.gathers_old else None
        if gathered is not None:
            # the event was older than `max_age` when it was found first; a sibling's reset has shown it again as new
            return _duplicate(trigger, gathered)
        state, hold = (HELD if intent.hold else READY), str(intent.hold)
        slot = _slot_of(tx, intent)
        if slot is not None and not hold:
            if await tx.value("SELECT 1 FROM runs WHERE id=$1", run_id):
                return _duplicate(trigger, run_id)
            taken = await _take_slot(tx, slot, intent.overlap, request.seq)
            if taken is None:
                if await tx.value("SELECT 1 FROM runs WHERE id=$1", run_id):
                    # it has the slot itself: another replica inserted it while we waited
                    return _duplicate(trigger, run_id)
                return Verdict(trigger=trigger.name, outcome="skipped", reason=NOT_OVER)
            state = READY if taken else BLOCKED
        if trigger.budget is not None and state == READY and await self._is_over_budget(trigger, intent):
            state, hold = HELD, "budget"
        row = self._run_row(request, state, hold, slot)
        if not await _insert_runs(tx, [row], self._holder):
            if slot is not None and not intent.hold:
                # another replica inserted it while we waited for the slot, which we may have taken from it meanwhile
                raise Overtaken
            return _duplicate(trigger, run_id)
        if row.state in (RUNNING, DONE) and trigger.budget is not None:
            await _spend(tx, trigger.id, "runs", 1)
        return self._verdict(request, row)

    async def _is_over_budget(self, trigger: TriggerRow, intent: Intent) -> bool:
        """Whether it would start now although the budget is used up or earlier runs are held for it."""
        tx, budget = self._tx, trigger.budget
        quiet = intent.quiet is not None and micros(intent.quiet.start) <= tx.now < micros(intent.quiet.end)
        if budget is None or quiet or micros(intent.due_at) > tx.now:
            return False
        await lock_budget(tx, trigger.id)
        held = f"SELECT 1 FROM runs WHERE state={HELD} AND hold='budget' AND trigger=$1 LIMIT 1"
        return bool(await tx.value(held, trigger.id)) or await runs_left(tx, trigger.id, budget) <= 0

    def _run_row(self, request: RunRequest, state: int, hold: str, slot: bytes | None = None) -> RunRow:
        tx, intent = self._tx, request.intent
        trigger = tx.trigger(intent.trigger)
        due = micros(intent.due_at)
        quiet_from, quiet_until = _quiet_span(intent)
        if quiet_from is not None and quiet_until is not None and quiet_from <= tx.now < quiet_until:
            due = max(due, quiet_until)
        starts = state == READY and due <= tx.now
        end = intent.end if starts and self._ends_early and slot is None and not intent.watched else None
        share = self._share_of[request.position]
        claims = starts and end is None and self._claims_left[share] > 0
        if claims:
            self._claims_left[share] -= 1
        if starts and (claims or end is not None):
            state = RUNNING if claims else DONE
        # fmt: off
        return RunRow(
            request.seq, run_id_of(tx.seal, intent.trigger, intent.epoch, intent.run_key), trigger.id,
            intent.workflow_rev, state, intent.priority, due, intent.max_attempts,
            request.event_id, tx.seal.shut(intent.input) if intent.input else None, slot,
            intent.overlap if slot else None, None, hold or None, quiet_from, quiet_until,
            trigger.budget is not None and state not in (RUNNING, DONE),
            tx.seal.shut(end.output) if end is not None and end.output else None,
        )
        # fmt: on

    def _verdict(self, request: RunRequest, row: RunRow) -> Verdict:
        """The verdict for a run that was inserted, which counts as fired."""
        trigger = self._tx.trigger(request.intent.trigger)
        self._fired[trigger.id] += 1
        if request.intent.watched:
            self._watched.append(row.seq)
        if row.state == RUNNING:
            self.claimed.append((request, row.id))
        elif row.state == DONE:
            self._note_over(request, row)
        elif row.state == READY:
            self._tx.made_ready = True
        if row.hold:
            reason = HOLD_REASONS[row.hold]
            return Verdict(trigger=trigger.name, outcome="held", reason=reason, run_id=row.id.hex())
        return Verdict(trigger=trigger.name, outcome="fired", reason=request.intent.reason, run_id=row.id.hex())

    def _note_over(self, request: RunRequest, row: RunRow) -> None:
        end = request.intent.end
        assert end is not None
        self.over.append((request, row.id))
        self._done[row.trigger] += not end.filtered
        shut = self._tx.seal.shut
        self._records += [(row.seq, number, shut(record)) for number, record in enumerate(end.records, start=1)]

    async def _gather(self, trigger: TriggerRow, request: RunRequest, into: GatherInto) -> Verdict:
        tx, intent = self._tx, request.intent
        own_id = run_id_of(tx.seal, intent.trigger, intent.epoch, intent.run_key)
        # the event can have a run of its own from when it was younger than `max_age`, or from before an edit
        has_own = await tx.value("SELECT 1 FROM runs WHERE id=$1", own_id)
        earlier = own_id if has_own else await self._gathered_before(trigger, intent.run_key)
        if earlier is not None:
            return _duplicate(trigger, earlier)
        if into.part is not None:
            # the parts come from several feeds: replicas take turns, so that none misses what the other one adds
            await lock_budget(tx, trigger.id)
            if into.part.ends:
                return await self._end_join(trigger, intent, into, into.part)
            if await self._is_answered(trigger, intent, into, into.part):
                return Verdict(trigger=trigger.name, outcome="skipped", reason=ANSWERED)
        key = tx.seal.name(f"gather\0{into.key}")
        opened = await self._gather_into(trigger, request, into, key)
        if isinstance(opened, Verdict):
            return opened
        seq, run_id, gathered, parts = opened
        self._gathered[trigger.id, intent.run_key] = run_id
        if intent.watched:
            self._watched.append(seq)
        await tx.do("INSERT INTO run_events (run, event) VALUES ($1, $2) ON CONFLICT DO NOTHING", seq, request.event_id)
        if into.part is not None:
            await self._join(seq, parts, into.part)
        elif into.max and gathered >= into.max:
            await close_gathering(tx, seq)
        reason = gathered_reason(gathered, intent.reason)
        return Verdict(trigger=trigger.name, outcome="gathered", reason=reason, run_id=run_id.hex())

    async def _join(self, seq: int, parts: list[Gathered], part: JoinPart) -> None:
        """Store the parts of a join. If they are complete its run is due, unless the join is without some part."""
        encoded = encode_parts(parts, keeps=runs_when_over(parts, part))
        await self._tx.do("UPDATE runs SET parts=$1 WHERE seq=$2", encoded, seq)
        if not part.waits and is_complete(parts, part):
            await close_gathering(self._tx, seq)

    async def _is_answered(self, trigger: TriggerRow, intent: Intent, into: GatherInto, part: JoinPart) -> bool:
        """Whether a part that the join is without happened after this one, although it came before it."""
        if not part.waits:
            return False
        tx, key = self._tx, mark_name(self._tx.seal, "none", intent.epoch, into.key)
        sql = "SELECT times FROM marks WHERE trigger=$1 AND key=$2 AND until>$3"
        packed = await tx.value(sql, trigger.id, key, tx.now)
        at = micros(part.at)
        return packed is not None and any(answered_by(at, at, answer, part.span) for answer in unpack_times(packed))

    async def _end_join(self, trigger: TriggerRow, intent: Intent, into: GatherInto, part: JoinPart) -> Verdict:
        """A part that the join is without: it ends the run that waits, and what happened before it and comes later."""
        tx = self._tx
        at, key = micros(part.at), mark_name(tx.seal, "none", intent.epoch, into.key)
        packed = await tx.value("SELECT times FROM marks WHERE trigger=$1 AND key=$2", trigger.id, key)
        answers = with_answer(unpack_times(packed) if packed else (), at, part.span)
        until = tx.now + round(part.span * 1_000_000)
        await tx.do(SET_MARK, trigger.id, key, until, None, pack_times(answers))
        row = await tx.row(
            f"""SELECT seq, id, parts FROM runs WHERE trigger=$1 AND gather=$2 AND state={GATHERING} AND due_at>$3
            FOR UPDATE""",
            trigger.id,
            tx.seal.name(f"gather\0{into.key}"),
            tx.now,
        )
        times = [time for _, time in decode_parts(row[2])] if row is not None and row[2] else []
        if row is None or not times or not answered_by(max(times), min(times), at, part.span):
            self._gathered[trigger.id, intent.run_key] = b""
            reason = gathered_reason(0, intent.reason, has_run=False)
            return Verdict(trigger=trigger.name, outcome="gathered", reason=reason)
        await _cancel_gathering(tx, row[0], ENDED)
        self._gathered[trigger.id, intent.run_key] = row[1]
        reason = gathered_reason(0, intent.reason)
        return Verdict(trigger=trigger.name, outcome="gathered", reason=reason, run_id=row[1].hex())

    async def _gathered_before(self, trigger: TriggerRow, run_key: str) -> bytes | None:
        """The run that gathered this occurrence since the last reset.

        It is found by verdicts, since the id of a gathering run is made from its first event only.
        """
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

    async def _gather_into(
        self, trigger: TriggerRow, request: RunRequest, into: GatherInto, key: bytes
    ) -> tuple[int, bytes, int, list[Gathered]] | Verdict:
        """Add the event to the gathering run of the key, or insert that run.

        Return its seq, its id, its number of events and its parts; or the verdict that the event is in no run.
        """
        tx, intent = self._tx, request.intent
        run_id = run_id_of(tx.seal, intent.trigger, intent.epoch, f"gather\0{into.key}\0{intent.run_key}")
        own = [part_of(into.part, micros(into.part.at))] if into.part is not None else []
        while True:
            row = await tx.row(
                f"""SELECT seq, id, gathered, due_at, created_at, parts FROM runs
                WHERE trigger=$1 AND gather=$2 AND state={GATHERING} FOR UPDATE""",
                trigger.id,
                key,
            )
            parts = decode_parts(row[5]) if row is not None and row[5] else []
            fitting = into.part is None or not parts or fits(parts, own[0][1], into.part.span)
            if row is not None and row[3] > tx.now and fitting:
                due = postponed(row[3], row[4], micros(into.due_at), into)
                await self._update_gathering(trigger, intent, row[0], row[2] + 1, due)
                return row[0], row[1], row[2] + 1, [*parts, *own]
            if row is not None:
                if row[3] > tx.now and own[0][1] < min(time for _, time in parts):
                    return Verdict(trigger=trigger.name, outcome="skipped", reason=TOO_EARLY)
                # its window is over although nobody has claimed it yet, or the event is too late for its parts
                await close_gathering(tx, row[0])
            if await self._insert_gathering(trigger, request, into, key, run_id):
                return request.seq, run_id, 1, own
            if await tx.value("SELECT 1 FROM runs WHERE id=$1", run_id):
                return _duplicate(trigger, run_id)
            # another replica inserted a gathering run between the two statements: join that one

    async def _update_gathering(self, trigger: TriggerRow, intent: Intent, seq: int, gathered: int, due: int) -> None:
        await self._tx.do(
            """UPDATE runs SET gathered=$1, due_at=$2, quiet_from=coalesce($3, quiet_from),
            quiet_until=coalesce($4, quiet_until), budgeted=$5 WHERE seq=$6""",
            gathered,
            due,
            *_quiet_span(intent),
            trigger.budget is not None,
            seq,
        )

    async def _insert_gathering(
        self, trigger: TriggerRow, request: RunRequest, into: GatherInto, key: bytes, run_id: bytes
    ) -> bool:
        tx, intent = self._tx, request.intent
        row = self._run_row(request, GATHERING, intent.hold, _slot_of(tx, intent))
        gathering = row._replace(id=run_id, due_at=micros(into.due_at), event=None, gather=key)
        # a gathering run of the same key is a conflict too
        if not await _insert_runs(tx, [gathering], self._holder, conflict=""):
            return False
        self._fired[trigger.id] += 1
        tx.made_ready = True
        return True


def _duplicate(trigger: TriggerRow, run_id: bytes) -> Verdict:
    return Verdict(trigger=trigger.name, outcome="duplicate", reason=HAS_ITS_RUN, run_id=run_id.hex())


def _slot_of(tx: Transaction, intent: Intent) -> bytes | None:
    return tx.seal.name(intent.slot) if intent.slot and intent.overlap != "allow" else None


def _quiet_span(intent: Intent) -> tuple[int, int] | tuple[None, None]:
    return (None, None) if intent.quiet is None else (micros(intent.quiet.start), micros(intent.quiet.end))


async def _insert_runs(tx: Transaction, rows: Sequence[RunRow], holder: str, conflict: str = "(id)") -> set[int]:
    """Return the seqs of those that were new. Those in state RUNNING are claimed by `holder`."""
    await _add_priorities(tx, {row.priority for row in rows})
    query, values = RUN_ROWS.select(rows, after=2)
    inserted = await tx.rows(INSERT_RUNS.format(rows=query, conflict=conflict), tx.now, holder, *values)
    return {row[0] for row in inserted}


async def _add_priorities(tx: Transaction, wanted: set[int]) -> None:
    cache = tx.cache
    new = wanted - cache.priorities
    if new:
        sql = "INSERT INTO priorities SELECT * FROM unnest($1::int[]) ON CONFLICT DO NOTHING"
        await tx.do(sql, sorted(new))
        tx.on_commit.append(lambda: cache.priorities.update(new))


async def close_gathering(tx: Transaction, seq: int) -> None:
    """The window of a gathering run is over or full: admit it, unless it is held. An incomplete join is dropped."""
    hold, parts = await tx.row("SELECT hold, parts FROM runs WHERE seq=$1", seq)
    if not keeps_incomplete(parts):
        await _cancel_gathering(tx, seq, MISSED)
    elif hold:
        await tx.do(f"UPDATE runs SET state={HELD}, since=$1, due_at=$1 WHERE seq=$2", tx.now, seq)
    else:
        await admit(tx, seq)


async def _cancel_gathering(tx: Transaction, seq: int, reason: str) -> None:
    cancel = f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2, hold=NULL WHERE seq=$3"
    await tx.do(cancel, tx.now, tx.shut(reason), seq)


async def admit(tx: Transaction, seq: int, due: int | None = None) -> None:
    """Make a run ready, or blocked behind its slot. With overlap `skip` and a slot that is taken it is cancelled."""
    slot, overlap, due_at = await tx.row("SELECT slot, overlap, due_at FROM runs WHERE seq=$1", seq)
    state: int = READY
    if slot is not None:
        taken = await _take_slot(tx, slot, overlap, seq)
        if taken is None:
            cancel = f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2, hold=NULL WHERE seq=$3"
            await tx.do(cancel, tx.now, tx.shut(NOT_OVER), seq)
            return
        state = READY if taken else BLOCKED
    when = due if due is not None else min(due_at, tx.now)
    await tx.do("UPDATE runs SET state=$1, since=$2, due_at=$3, hold=NULL WHERE seq=$4", state, tx.now, when, seq)
    tx.made_ready = True


async def _take_slot(tx: Transaction, slot: bytes, overlap: str, seq: int) -> bool | None:
    """True: the run has the slot. False: it must wait for it. None: it must not run at all."""
    while True:
        take = "INSERT INTO slots (key, run) VALUES ($1, $2) ON CONFLICT DO NOTHING"
        if await tx.do(take, slot, seq):
            return True
        current = await lock_slot(tx, slot)
        if current == seq:
            return True
        if current is not None:
            break
        # the slot was freed between the two statements
    if overlap == "skip":
        return None
    if overlap == "cancel_previous":
        return await _replace_in_slot(tx, slot, current, seq)
    return False


async def lock_slot(tx: Transaction, slot: bytes) -> int | None:
    """Return the run that has the slot. No other transaction takes or frees it until this one ends."""
    found: int | None = await tx.value("SELECT run FROM slots WHERE key=$1 FOR UPDATE", slot)
    return found


async def _replace_in_slot(tx: Transaction, slot: bytes, current: int, seq: int) -> bool:
    """Cancel the runs of the slot that have not begun; ask one that is running to stop, and return False."""
    reason = tx.shut(REPLACED)
    cancel = f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2"
    await tx.do(f"{cancel} WHERE state={BLOCKED} AND slot=$3", tx.now, reason, slot)
    idle = f"state IN ({HELD}, {READY}, {WAITING})"
    if await tx.do(f"{cancel} WHERE seq=$3 AND {idle}", tx.now, reason, current):
        await tx.do("UPDATE slots SET run=$1 WHERE key=$2", seq, slot)
        return True
    await request_stop(tx, current, REPLACED)
    return False


async def request_stop(tx: Transaction, seq: int, reason: str) -> None:
    """Request a running run to stop, for this reason unless it was requested before."""
    await tx.do(
        "UPDATE runs SET error=CASE WHEN cancel_requested THEN error ELSE $2 END, cancel_requested=true WHERE seq=$1",
        seq,
        tx.shut(reason),
    )


async def free_slot(tx: Transaction, slot: bytes, seq: int) -> None:
    """The run that has the slot is over: make the next blocked run of the slot ready."""
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
    await tx.do(f"UPDATE runs SET state={READY}, since=$2 WHERE seq=$1", following, tx.now)
    tx.made_ready = True


async def release_flood(tx: Transaction, trigger: int, limit: int) -> None:
    """The first read is complete: release its held runs if they are at most `limit`; more wait for a person."""
    held = await tx.value(
        f"SELECT count(*) FROM runs WHERE trigger=$1 AND state IN ({HELD}, {GATHERING}) AND hold='flood'", trigger
    )
    if 0 < held <= limit:
        await release_held(tx, trigger, "flood")


async def hold_gathering(tx: Transaction, trigger: int) -> None:
    """The trigger is paused: what gathers goes on to do so, and is held when its window is over or full."""
    await tx.do(f"UPDATE runs SET hold='paused' WHERE trigger=$1 AND state={GATHERING} AND hold IS NULL", trigger)


async def release_held(tx: Transaction, trigger: int, hold: str, *, drop: bool = False) -> int:
    """Admit the trigger's held runs, oldest first, or cancel them with `drop`. Return how many.

    `hold` selects those that are held for this reason; empty selects all.
    """
    matches = "AND ($2='' OR hold=$2)"
    if not drop:
        await tx.do(f"UPDATE runs SET hold=NULL WHERE trigger=$1 AND state={GATHERING} {matches}", trigger, hold)
    held = await tx.rows(
        f"""SELECT seq, due_at, slot FROM runs WHERE trigger=$1 AND state={HELD} {matches}
        ORDER BY due_at, seq FOR UPDATE""",
        trigger,
        hold,
    )
    for seq, due, slot in held:
        if drop:
            await _drop_held(tx, seq, slot)
        else:
            await admit(tx, seq, due=due)
    return len(held)


async def _drop_held(tx: Transaction, seq: int, slot: bytes | None) -> None:
    if slot is not None:
        await lock_slot(tx, slot)
    reason = tx.shut(DROPPED)
    await tx.do(f"UPDATE runs SET state={CANCELLED}, finished_at=$1, error=$2 WHERE seq=$3", tx.now, reason, seq)
    if slot is not None:
        await free_slot(tx, slot, seq)


async def lock_budget(tx: Transaction, trigger: int) -> None:
    await tx.value("SELECT 1 FROM triggers WHERE id=$1 FOR NO KEY UPDATE", trigger)


async def runs_left(tx: Transaction, trigger: int, budget: Budget) -> float:
    """How many runs may start now."""
    rows = await tx.rows("SELECT what, since, amount FROM spent WHERE trigger=$1", trigger)
    return budget_room(budget, rows, tx.now)


async def count_run(tx: Transaction, seq: int, trigger: int) -> None:
    """Count a run against its trigger's budget, once."""
    await _spend(tx, trigger, "runs", 1)
    await tx.do("UPDATE runs SET budgeted=false WHERE seq=$1", seq)


async def charge_step(tx: Transaction, seq: int, record: StepRecord) -> None:
    """Count the tokens and the money of a step. The caller sees to it that a record is charged once."""
    payer = await _payer(tx, seq)
    if not payer:
        return
    if record.tokens:
        await _spend(tx, payer, "tokens", record.tokens)
    if record.usd:
        await _spend(tx, payer, "usd", record.usd)


async def _payer(tx: Transaction, seq: int) -> int:
    """The trigger of a run; a sub-run spends the budget of the run that started it. 0 if there is none."""
    row = await tx.row("SELECT trigger, parent FROM runs WHERE seq=$1", seq)
    while row is not None and not row[0] and row[1] is not None:
        row = await tx.row("SELECT trigger, parent FROM runs WHERE id=$1", row[1])
    return int(row[0]) if row is not None else 0


async def _spend(tx: Transaction, trigger: int, what: str, amount: float) -> None:
    await tx.do(SPEND, trigger, what, window(what, tx.now), float(amount))
