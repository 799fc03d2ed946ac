"""How an intent becomes a run: inserted, gathered, held, or blocked behind a slot; and how a held run is released.

A slot is the right to run for a concurrency key. It is given when a run is inserted or admitted and passed on when its
run ends, so claiming need not look at slots.
"""

from __future__ import annotations

from typing import Any

import msgspec

from harken.backends.codec import micros, moment
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
from harken.backends.sqlite.transaction_with_row_cache import Transaction, TriggerRow
from harken.backends.sqlite.watched_run_changes import watch
from harken.backends.verdicts import decode_verdicts
from harken.event import Verdict
from harken.feed import Budget
from harken.runs import StepRecord
from harken.store import Distinct, EarlyEnd, GatherInto, Intent, JoinPart, RateLimit
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
    "INSERT_RUN",
    "Starting",
    "admit",
    "charge",
    "close_gathering",
    "free_slot",
    "has_room",
    "hold_gathering",
    "release_flood",
    "release_held",
    "resolve",
    "room",
    "spend",
]

CLAIM_US = 60_000_000
"""How long a run is claimed that its commit hands over."""

INSERT_RUN = """INSERT OR IGNORE INTO runs (seq, id, trigger, workflow_rev, state, priority, due_at, max_attempts,
token, lease_until, holder, event, input, slot, overlap, gather, gathered, hold, created_at, started_at)
VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"""

INSERT_OVER = """INSERT OR IGNORE INTO runs (seq, id, trigger, workflow_rev, state, priority, due_at, max_attempts,
token, event, input, output, gathered, created_at, started_at, finished_at) VALUES (?,?,?,?,?,?,?,?,1,?,?,?,1,?,?,?)"""
INSERT_RECORD = "INSERT INTO journal (run, n, record) VALUES (?,?,?)"

SET_MARK = "INSERT OR REPLACE INTO marks (trigger, key, until, run, times) VALUES (?,?,?,?,?)"

SPEND = """INSERT INTO spent (trigger, what, since, amount) VALUES (?,?,?,?) ON CONFLICT DO UPDATE SET
amount=CASE WHEN since=excluded.since THEN amount+excluded.amount ELSE excluded.amount END, since=excluded.since"""


class Starting:
    """The runs of one event that start with its commit: `claimed` by `holder`, at most `room`, or `over` already."""

    __slots__ = ("claimed", "holder", "over", "room")

    def __init__(self, holder: str, room: int) -> None:
        self.holder = holder
        self.room = room
        self.claimed: list[tuple[bytes, Intent]] = []
        self.over: list[tuple[bytes, Intent]] = []


def resolve(tx: Transaction, intent: Intent, event_id: int, now: int, starting: Starting | None) -> Verdict:
    """Turn an intent into a verdict: insert its run, add the event to a gathering run, or skip it.

    With `starting`, a run that is due is inserted as claimed or as over, and appended there.
    """
    trigger = tx.trigger(intent.trigger)
    if intent.distinct is None and intent.rate is None:
        return _start(tx, trigger, intent, event_id, now, starting)
    limited = _limit(tx, trigger, intent, now)
    if isinstance(limited, Verdict):
        return limited
    verdict = _start(tx, trigger, limited, event_id, now, starting)
    if intent.distinct is not None and verdict.outcome in ("fired", "held", "gathered"):
        key = mark_name(tx.seal, "dedupe", intent.epoch, intent.distinct.key)
        until = now + round(intent.distinct.seconds * 1_000_000)
        tx.execute(SET_MARK, (trigger.id, key, until, bytes.fromhex(verdict.run_id), None))
    return verdict


def _start(
    tx: Transaction, trigger: TriggerRow, intent: Intent, event_id: int, now: int, starting: Starting | None
) -> Verdict:
    if intent.gather is not None:
        return _gather(tx, trigger, intent, intent.gather, event_id, now)
    run_id = run_id_of(tx.seal, intent.trigger, intent.epoch, intent.run_key)
    shared = _gathered_before(tx, trigger, intent.run_key) if trigger.shares else None
    if shared is not None:
        # it exceeded max_age when it was found first; after a reset of another trigger it is found again as a new one
        return _duplicate(trigger, shared)
    state = HELD if intent.hold else READY
    seq = tx.next_run
    slot: bytes | None = None
    if intent.slot and intent.overlap != "allow":
        slot = tx.seal.name(intent.slot)
        if not intent.hold:
            if tx.value("SELECT 1 FROM runs WHERE id=?", (run_id,)):
                return _duplicate(trigger, run_id)
            taken = _take_slot(tx, slot, intent.overlap, seq, now)
            if taken is None:
                return Verdict(trigger=trigger.name, outcome="skipped", reason=NOT_OVER)
            state = READY if taken else BLOCKED
    due = micros(intent.due_at)
    if intent.quiet is not None and micros(intent.quiet.start) <= now < micros(intent.quiet.end):
        due = max(due, micros(intent.quiet.end))
    hold = intent.hold
    if trigger.budget is not None and state == READY and due <= now and _is_over_budget(tx, trigger, now):
        state, hold = HELD, "budget"
    starts = starting is not None and state == READY and due <= now
    if starting is not None and starts and intent.end is not None and slot is None and not intent.watched:
        return _insert_over(tx, trigger, intent, intent.end, run_id, event_id, due, now, starting)
    claim = starting is not None and starts and len(starting.claimed) < starting.room
    holder = starting.holder if starting is not None else ""
    # fmt: off
    row = (
        seq, run_id, trigger.id, intent.workflow_rev, RUNNING if claim else state, intent.priority, due,
        intent.max_attempts, 1 if claim else 0, now + CLAIM_US if claim else None, holder if claim else None, event_id,
        tx.seal.shut(intent.input) if intent.input else None, slot, intent.overlap if slot else None, None, 1,
        hold or None, now, now if claim else None,
    )
    # fmt: on
    tx.write(INSERT_RUN, row)
    if not tx.connection.changes():
        return _duplicate(trigger, run_id)
    if intent.quiet is not None or trigger.budget is not None:
        _set_limits(tx, trigger, intent, seq, now, starts=claim)
    if intent.watched:
        watch(tx, seq)
    tx.next_run = seq + 1
    tx.priorities.add(intent.priority)
    tx.count_fired(trigger)
    if starting is not None and claim:
        starting.claimed.append((run_id, intent))
    if hold:
        return Verdict(trigger=trigger.name, outcome="held", reason=HOLD_REASONS[hold], run_id=run_id.hex())
    return Verdict(trigger=trigger.name, outcome="fired", reason=intent.reason, run_id=run_id.hex())


def _insert_over(
    tx: Transaction,
    trigger: TriggerRow,
    intent: Intent,
    end: EarlyEnd,
    run_id: bytes,
    event_id: int,
    due: int,
    now: int,
    starting: Starting,
) -> Verdict:
    """Insert the run as done, with the journal of its steps: nobody claims it."""
    seq, shut = tx.next_run, tx.seal.shut
    # fmt: off
    row = (
        seq, run_id, trigger.id, intent.workflow_rev, DONE, intent.priority, due, intent.max_attempts, event_id,
        shut(intent.input) if intent.input else None, shut(end.output) if end.output else None, now, now, now,
    )
    # fmt: on
    tx.write(INSERT_OVER, row)
    if not tx.connection.changes():
        return _duplicate(trigger, run_id)
    for number, record in enumerate(end.records, start=1):
        tx.write(INSERT_RECORD, (seq, number, shut(record)))
    if trigger.budget is not None:
        spend(tx, trigger.id, "runs", 1, now)
    tx.next_run = seq + 1
    tx.count_fired(trigger, done=not end.filtered)
    starting.over.append((run_id, intent))
    return Verdict(trigger=trigger.name, outcome="fired", reason=intent.reason, run_id=run_id.hex())


def _is_over_budget(tx: Transaction, trigger: TriggerRow, now: int) -> bool:
    """The budget is spent, or earlier runs wait for it."""
    assert trigger.budget is not None
    tx.load_over_budget()
    if trigger.id in tx.over_budget or not has_room(tx, trigger.id, trigger.budget, now):
        tx.over_budget.add(trigger.id)
        return True
    return False


def _set_limits(tx: Transaction, trigger: TriggerRow, intent: Intent, seq: int, now: int, *, starts: bool) -> None:
    """Store the run's quiet span and whether it still counts against the budget; a claimed run is counted now.

    An event that joins a gathering run may come without a span, for example after an edit: the run keeps its own."""
    quiet = (None, None) if intent.quiet is None else (micros(intent.quiet.start), micros(intent.quiet.end))
    counts = trigger.budget is not None and not starts
    tx.execute(
        """UPDATE runs SET quiet_from=coalesce(?, quiet_from), quiet_until=coalesce(?, quiet_until), budgeted=?
        WHERE seq=?""",
        (*quiet, counts, seq),
    )
    if trigger.budget is not None and starts:
        spend(tx, trigger.id, "runs", 1, now)


def _limit(tx: Transaction, trigger: TriggerRow, intent: Intent, now: int) -> Verdict | Intent:
    """Apply dedupe and throttle: the verdict that no run starts, or the intent with the time when it does."""
    known = _known_run(tx, trigger, intent)
    if known is not None:
        return _duplicate(trigger, known)
    if _would_skip(tx, intent):
        # what is skipped must not count
        return Verdict(trigger=trigger.name, outcome="skipped", reason=NOT_OVER)
    first = _first_with(tx, trigger, intent, intent.distinct, now) if intent.distinct else None
    if first is not None:
        return Verdict(trigger=trigger.name, outcome="duplicate", reason=SAME_VALUE, run_id=first.hex())
    start = _take_start(tx, trigger, intent, intent.rate, now) if intent.rate else None
    if start is None or intent.rate is None:
        return intent
    if intent.rate.drops:
        return Verdict(trigger=trigger.name, outcome="skipped", reason=throttled_reason(start // 1_000_000))
    reason = delayed_reason(start // 1_000_000, intent.reason)
    return msgspec.structs.replace(intent, due_at=moment(start), reason=reason)


def _would_skip(tx: Transaction, intent: Intent) -> bool:
    if intent.overlap != "skip" or not intent.slot or intent.hold or intent.gather is not None:
        return False
    return tx.value("SELECT 1 FROM slots WHERE key=?", (tx.seal.name(intent.slot),)) is not None


def _known_run(tx: Transaction, trigger: TriggerRow, intent: Intent) -> bytes | None:
    """The run that has this occurrence already."""
    alone = run_id_of(tx.seal, intent.trigger, intent.epoch, intent.run_key)
    if tx.value("SELECT 1 FROM runs WHERE id=?", (alone,)):
        return alone
    return _gathered_before(tx, trigger, intent.run_key) if intent.gather or trigger.shares else None


def _first_with(tx: Transaction, trigger: TriggerRow, intent: Intent, distinct: Distinct, now: int) -> bytes | None:
    key = mark_name(tx.seal, "dedupe", intent.epoch, distinct.key)
    found: bytes | None = tx.value(
        "SELECT run FROM marks WHERE trigger=? AND key=? AND until>?", (trigger.id, key, now)
    )
    return found


def _take_start(tx: Transaction, trigger: TriggerRow, intent: Intent, rate: RateLimit, now: int) -> int | None:
    """None: the run may start when it is due, which counts now. Otherwise when the throttle allows it."""
    key = mark_name(tx.seal, "throttle", intent.epoch, rate.key)
    packed = tx.value("SELECT times FROM marks WHERE trigger=? AND key=?", (trigger.id, key))
    times = unpack_times(packed) if packed else []
    wanted = max(micros(intent.due_at), now)
    start = start_within(times, wanted, rate)
    if start == wanted or not rate.drops:
        kept = with_start(times, start, rate)
        until = kept[-1] + round(rate.seconds * 1_000_000)
        tx.execute(SET_MARK, (trigger.id, key, until, None, pack_times(kept)))
    return None if start == wanted else start


def _duplicate(trigger: TriggerRow, run_id: bytes) -> Verdict:
    return Verdict(trigger=trigger.name, outcome="duplicate", reason=HAS_ITS_RUN, run_id=run_id.hex())


def _gather(tx: Transaction, trigger: TriggerRow, intent: Intent, into: GatherInto, event_id: int, now: int) -> Verdict:
    alone = run_id_of(tx.seal, intent.trigger, intent.epoch, intent.run_key)
    # the event may have got its own run while it was newer than max_age, or before the trigger was edited
    known = tx.value("SELECT 1 FROM runs WHERE id=?", (alone,))
    earlier = alone if known else _gathered_before(tx, trigger, intent.run_key)
    if earlier is not None:
        return _duplicate(trigger, earlier)
    if into.part is not None and into.part.ends:
        return _end_join(tx, trigger, intent, into, into.part, now)
    key = tx.seal.name(f"gather\0{into.key}")
    row = tx.row(
        f"""SELECT seq, id, gathered, due_at, created_at, parts FROM runs
        WHERE trigger=? AND gather=? AND state={GATHERING}""",
        (trigger.id, key),
    )
    if row is not None and row[3] <= now:
        # its window ended, though no claim has closed it yet
        close_gathering(tx, row[0], now)
        row = None
    parts: list[Gathered] = []
    if into.part is not None:
        if _is_answered(tx, trigger, intent, into, into.part, now):
            return Verdict(trigger=trigger.name, outcome="skipped", reason=ANSWERED)
        at = micros(into.part.at)
        parts = decode_parts(row[5]) if row is not None and row[5] else []
        if row is not None and parts and not fits(parts, at, into.part.span):
            if at < min(time for _, time in parts):
                return Verdict(trigger=trigger.name, outcome="skipped", reason=TOO_EARLY)
            close_gathering(tx, row[0], now)
            row, parts = None, []
        parts.append(part_of(into.part, at))
    if row is None:
        seq, gathered = tx.next_run, 1
        run_id = run_id_of(tx.seal, intent.trigger, intent.epoch, f"gather\0{into.key}\0{intent.run_key}")
        slot = tx.seal.name(intent.slot) if intent.slot and intent.overlap != "allow" else None
        # fmt: off
        fresh = (
            seq, run_id, trigger.id, intent.workflow_rev, GATHERING, intent.priority, micros(into.due_at),
            intent.max_attempts, 0, None, None, None, tx.seal.shut(intent.input) if intent.input else None, slot,
            intent.overlap if slot else None, key, 1,
            intent.hold or None, now, None,
        )
        # fmt: on
        tx.write(INSERT_RUN, fresh)
        if not tx.connection.changes():
            return _duplicate(trigger, run_id)
        tx.next_run = seq + 1
        tx.priorities.add(intent.priority)
        tx.count_fired(trigger)
    else:
        seq, run_id, gathered = row[0], row[1], row[2] + 1
        due = postponed(row[3], row[4], micros(into.due_at), into)
        tx.execute("UPDATE runs SET gathered=?, due_at=? WHERE seq=?", (gathered, due, seq))
    if intent.quiet is not None or trigger.budget is not None:
        _set_limits(tx, trigger, intent, seq, now, starts=False)
    if intent.watched:
        watch(tx, seq)
    tx.execute("INSERT OR IGNORE INTO run_events (run, event) VALUES (?,?)", (seq, event_id))
    if into.part is not None:
        _join(tx, seq, parts, into.part, now)
    elif into.max and gathered >= into.max:
        close_gathering(tx, seq, now)
    reason = gathered_reason(gathered, intent.reason)
    return Verdict(trigger=trigger.name, outcome="gathered", reason=reason, run_id=run_id.hex())


def _join(tx: Transaction, seq: int, parts: list[Gathered], part: JoinPart, now: int) -> None:
    """Store the parts of a join. If they are complete its run is due, unless the join is without some part."""
    encoded = encode_parts(parts, keeps=runs_when_over(parts, part))
    tx.execute("UPDATE runs SET parts=? WHERE seq=?", (encoded, seq))
    if not part.waits and is_complete(parts, part):
        close_gathering(tx, seq, now)


def _is_answered(
    tx: Transaction, trigger: TriggerRow, intent: Intent, into: GatherInto, part: JoinPart, now: int
) -> bool:
    """Whether a part that the join is without happened after this one, although it came before it."""
    if not part.waits:
        return False
    key = mark_name(tx.seal, "none", intent.epoch, into.key)
    packed = tx.value("SELECT times FROM marks WHERE trigger=? AND key=? AND until>?", (trigger.id, key, now))
    at = micros(part.at)
    return packed is not None and any(answered_by(at, at, answer, part.span) for answer in unpack_times(packed))


def _end_join(
    tx: Transaction, trigger: TriggerRow, intent: Intent, into: GatherInto, part: JoinPart, now: int
) -> Verdict:
    """A part that the join is without: it ends the run that waits, and what happened before it and comes later."""
    at, key = micros(part.at), mark_name(tx.seal, "none", intent.epoch, into.key)
    packed = tx.value("SELECT times FROM marks WHERE trigger=? AND key=?", (trigger.id, key))
    answers = with_answer(unpack_times(packed) if packed else (), at, part.span)
    tx.execute(SET_MARK, (trigger.id, key, now + round(part.span * 1_000_000), None, pack_times(answers)))
    row = tx.row(
        f"SELECT seq, id, parts, slot FROM runs WHERE trigger=? AND gather=? AND state={GATHERING} AND due_at>?",
        (trigger.id, tx.seal.name(f"gather\0{into.key}"), now),
    )
    times = [time for _, time in decode_parts(row[2])] if row is not None and row[2] else []
    if row is None or not times or not answered_by(max(times), min(times), at, part.span):
        reason = gathered_reason(0, intent.reason, has_run=False)
        return Verdict(trigger=trigger.name, outcome="gathered", reason=reason)
    _cancel_gathering(tx, row[0], ENDED, now)
    reason = gathered_reason(0, intent.reason)
    return Verdict(trigger=trigger.name, outcome="gathered", reason=reason, run_id=row[1].hex())


def _cancel_gathering(tx: Transaction, seq: int, reason: str, now: int) -> None:
    tx.execute(
        "UPDATE runs SET state=?, finished_at=?, error=?, hold=NULL WHERE seq=?",
        (CANCELLED, now, tx.shut(reason), seq),
    )


def _gathered_before(tx: Transaction, trigger: TriggerRow, run_key: str) -> bytes | None:
    """The gathered run that has this event since the last reset; its id is made from its first event only."""
    rows = tx.execute(
        "SELECT verdicts FROM events WHERE kid=? AND id>=(SELECT epoch_event FROM triggers WHERE id=?)",
        (tx.seal.name(run_key), trigger.id),
    ).fetchall()
    for (sealed,) in rows:
        for verdict in decode_verdicts(tx.seal.open(sealed)):
            if verdict.trigger == trigger.name and verdict.outcome == "gathered":
                return bytes.fromhex(verdict.run_id)
    return None


def close_gathering(tx: Transaction, seq: int, now: int) -> None:
    """Make the run due, or held if it has a hold: its window is over or full. A join that missed a part is dropped."""
    row = tx.row("SELECT hold, parts FROM runs WHERE seq=?", (seq,))
    assert row is not None
    hold, parts = row
    if not keeps_incomplete(parts):
        _cancel_gathering(tx, seq, MISSED, now)
    elif hold:
        tx.execute("UPDATE runs SET state=?1, since=?2, due_at=?2 WHERE seq=?3", (HELD, now, seq))
    else:
        admit(tx, seq, now)


def admit(tx: Transaction, seq: int, now: int, due: int | None = None) -> None:
    """Make a run ready, or blocked if its slot is taken; with overlap `skip` a second run is cancelled."""
    row = tx.row("SELECT slot, overlap, due_at FROM runs WHERE seq=?", (seq,))
    assert row is not None
    slot, overlap, due_at = row
    state: int = READY
    if slot is not None:
        taken = _take_slot(tx, slot, overlap, seq, now)
        if taken is None:
            reason = tx.shut(NOT_OVER)
            tx.execute(
                "UPDATE runs SET state=?, finished_at=?, error=?, hold=NULL WHERE seq=?", (CANCELLED, now, reason, seq)
            )
            return
        state = READY if taken else BLOCKED
    when = due if due is not None else min(due_at, now)
    tx.execute("UPDATE runs SET state=?, since=?, due_at=?, hold=NULL WHERE seq=?", (state, now, when, seq))


def _take_slot(tx: Transaction, slot: bytes, overlap: str, seq: int, now: int) -> bool | None:
    """True: the run has the slot. False: it has to wait for it. None: skip the run."""
    current = tx.value("SELECT run FROM slots WHERE key=?", (slot,))
    if current is None or current == seq:
        tx.execute("INSERT OR IGNORE INTO slots (key, run) VALUES (?,?)", (slot, seq))
        return True
    if overlap == "skip":
        return None
    if overlap == "cancel_previous":
        return _replace_holder(tx, slot, current, seq, now)
    return False


def _replace_holder(tx: Transaction, slot: bytes, current: int, seq: int, now: int) -> bool:
    reason = tx.shut(REPLACED)
    tx.execute(
        f"UPDATE runs SET state=?, finished_at=?, error=? WHERE state={BLOCKED} AND slot=?",
        (CANCELLED, now, reason, slot),
    )
    tx.execute(
        "UPDATE runs SET state=?, finished_at=?, error=? WHERE seq=? AND state IN (?,?,?)",
        (CANCELLED, now, reason, current, HELD, READY, WAITING),
    )
    if tx.connection.changes():
        tx.execute("UPDATE slots SET run=? WHERE key=?", (seq, slot))
        return True
    request_stop(tx, current, REPLACED)
    return False


def request_stop(tx: Transaction, seq: int, reason: str) -> None:
    """Request a running run to stop, for this reason unless it was requested before."""
    stop = "UPDATE runs SET error=CASE WHEN cancel_requested THEN error ELSE ? END, cancel_requested=1 WHERE seq=?"
    tx.execute(stop, (tx.shut(reason), seq))


def free_slot(tx: Transaction, slot: bytes, seq: int) -> None:
    """Pass the slot of a run that ended to the next blocked run, which becomes ready."""
    if tx.value("SELECT run FROM slots WHERE key=?", (slot,)) != seq:
        return
    following = tx.value(
        f"SELECT seq FROM runs WHERE state={BLOCKED} AND slot=? ORDER BY priority DESC, due_at, seq LIMIT 1", (slot,)
    )
    if following is None:
        tx.execute("DELETE FROM slots WHERE key=?", (slot,))
        return
    tx.execute("UPDATE slots SET run=? WHERE key=?", (following, slot))
    tx.execute("UPDATE runs SET state=?, since=? WHERE seq=?", (READY, tx.now(), following))


def release_flood(tx: Transaction, trigger: TriggerRow, limit: int, now: int) -> None:
    """Release the runs that the first read held, unless they are more than `limit`: then a person decides."""
    held = tx.value(
        "SELECT count(*) FROM runs WHERE trigger=? AND state IN (?,?) AND hold='flood'", (trigger.id, HELD, GATHERING)
    )
    if 0 < held <= limit:
        release_held(tx, trigger, "flood", now)


def hold_gathering(tx: Transaction, trigger: int) -> None:
    """The trigger is paused: what gathers goes on to do so, and is held when its window is over or full."""
    tx.execute(f"UPDATE runs SET hold='paused' WHERE trigger=? AND state={GATHERING} AND hold IS NULL", (trigger,))


def release_held(tx: Transaction, trigger: TriggerRow, hold: str, now: int, *, drop: bool = False) -> int:
    """Release (or cancel) the trigger's held runs, oldest first. Return how many."""
    which, bindings = ("AND hold=?", [hold]) if hold else ("", [])
    held: list[Any] = tx.execute(
        f"SELECT seq, due_at, slot FROM runs WHERE trigger=? AND state={HELD} {which} ORDER BY due_at, seq",
        [trigger.id, *bindings],
    ).fetchall()
    if not drop:
        tx.execute(f"UPDATE runs SET hold=NULL WHERE trigger=? AND state={GATHERING} {which}", [trigger.id, *bindings])
    for seq, due, slot in held:
        if drop:
            reason = tx.shut(DROPPED)
            tx.execute("UPDATE runs SET state=?, finished_at=?, error=? WHERE seq=?", (CANCELLED, now, reason, seq))
            if slot is not None:
                free_slot(tx, slot, seq)
        else:
            admit(tx, seq, now, due=due)
    return len(held)


def spend(tx: Transaction, trigger: int, what: str, amount: float, now: int) -> None:
    tx.execute(SPEND, (trigger, what, window(what, now), amount))


def charge(tx: Transaction, seq: int, record: StepRecord) -> None:
    """Count the tokens and money that a step used against its trigger's budget."""
    payer = _payer(tx, seq)
    if not payer:
        return
    now = tx.now()
    if record.tokens:
        spend(tx, payer, "tokens", record.tokens, now)
    if record.usd:
        spend(tx, payer, "usd", record.usd, now)


def _payer(tx: Transaction, seq: int) -> int:
    """The trigger of a run, 0 for none. A sub-run spends the budget of its parent's trigger."""
    row = tx.row("SELECT trigger, parent FROM runs WHERE seq=?", (seq,))
    while row is not None and not row[0] and row[1] is not None:
        row = tx.row("SELECT trigger, parent FROM runs WHERE id=?", (row[1],))
    return int(row[0]) if row is not None else 0


def has_room(tx: Transaction, trigger: int, budget: Budget, now: int) -> bool:
    return room(tx, trigger, budget, now) > 0


def room(tx: Transaction, trigger: int, budget: Budget, now: int) -> float:
    """How many runs may start now."""
    return budget_room(budget, tx.execute("SELECT what, since, amount FROM spent WHERE trigger=?", (trigger,)), now)
