"""The commit as instructions for Lua, and what it answers as values. A page too long for one call goes in parts."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from harken.backends.codec import first_claim, just_recorded, micros
from harken.backends.encryption import Seal
from harken.backends.redis.codec import Ask, body_of, given, micros_or_false, moment, state_of, verdicts_of
from harken.backends.redis.transaction import Transaction
from harken.backends.run_states import repeated, run_id_of
from harken.event import Verdict
from harken.runs import Claimed
from harken.store import Commit, Committed, Entry, Intent, Stale, Tick

__all__ = ["RESULTS", "caused", "commit"]

LARGEST, BUSIEST, HEAVIEST = 200, 600, 1_000_000
"""Events, decisions about them, and their bytes in one call: nobody else is served while a script runs."""

Result = Literal["nothing_new", "events", "unchanged", "error", "rate_limited", "changed"]
RESULTS: tuple[Result, ...] = ("nothing_new", "events", "unchanged", "error", "rate_limited", "changed")
Part = tuple[str, bool]
Hands = dict[bytes, tuple[int, Intent]]


async def commit(tx: Transaction, wanted: Commit) -> Committed | Stale:
    """Write the page. Its cursor moves with the last part, so what was cut off in between is read again."""
    bodies = _bodies(tx, wanted)
    cuts = list(_cuts(wanted.entries, bodies))
    if len(cuts) == 1:
        return await _part(tx, wanted, bodies, None)
    page = secrets.token_hex(8)
    told: list[Committed] = []
    for begin, end in cuts:
        last = end == len(bodies)
        some = wanted.entries[begin:end]
        part = msgspec.structs.replace(wanted, entries=some) if last else _first_part(wanted, some)
        answer = await _part(tx, part, bodies[begin:end], (page, last))
        if isinstance(answer, Stale):
            return answer
        told.append(answer)
    return Committed(
        event_ids=[each for some in told for each in some.event_ids],
        verdicts=[each for some in told for each in some.verdicts],
        claimed=told[-1].claimed,
    )


def caused(tx: Transaction, ask: Ask, commits: Sequence[Commit]) -> list[Any]:
    """Commits that ride in another call."""
    return [_instructions(tx, ask, each, _bodies(tx, each), None, None) for each in commits]


def _bodies(tx: Transaction, wanted: Commit) -> list[bytes]:
    return [b"" if entry.again else body_of(entry.event, tx.seal) for entry in wanted.entries]


async def _part(tx: Transaction, wanted: Commit, bodies: Sequence[bytes], part: Part | None) -> Committed | Stale:
    ask = Ask(tx.seal)
    hands: Hands = {}
    instructions = _instructions(tx, ask, wanted, bodies, part, hands if wanted.claim else None)
    reply = await tx.connection.write("commit", ask, instructions)
    if reply[0] == b"stale":
        return Stale(reply[1])
    _, answers, handed, now = reply
    verdicts = [_decided(tx.seal, answer) for answer in answers]
    ids = [answer[0] for answer in answers]
    claimed = [_claimed(wanted, ids, verdicts, hands[run_id], run_id, moment(now)) for run_id in handed]
    return Committed(event_ids=ids, verdicts=verdicts, claimed=claimed)


def _instructions(
    tx: Transaction, ask: Ask, wanted: Commit, bodies: Sequence[bytes], part: Part | None, hands: Hands | None
) -> tuple[Any, ...]:
    return (
        wanted.feed,
        wanted.revision,
        False if wanted.token is None else wanted.token,
        [_entry(ask, at, entry, bodies[at], hands) for at, entry in enumerate(wanted.entries)],
        _advance(ask, wanted),
        list(wanted.release.items()),
        wanted.claim,
        wanted.holder,
        tx.life,
        list(wanted.backfilled),
        bool(wanted.backfilled or (wanted.entries and wanted.entries[0].again)),
        part or False,
    )


def _entry(ask: Ask, at: int, entry: Entry, body: bytes, hands: Hands | None) -> tuple[Any, ...]:
    decisions = [
        (0, ask.text(given(ask.seal, decision)), decision.trigger)
        if isinstance(decision, Verdict)
        else _intent(ask, at, decision, hands)
        for decision in entry.decisions
    ]
    if entry.again:
        return entry.again, False, 0, 0, 0, False, False, 0, 0, decisions
    return (
        False,
        ask.name(entry.memory_id) if entry.memory_id else False,
        entry.expect,
        entry.seq,
        *state_of(ask, entry.event.state),
        ask.name(entry.event.key),
        ask.text(body),
        decisions,
    )


def _intent(ask: Ask, at: int, intent: Intent, hands: Hands | None) -> tuple[Any, ...]:
    run_id = run_id_of(ask.seal, intent.trigger, intent.epoch, intent.run_key)
    if hands is not None:
        hands[run_id] = (at, intent)
    quiet = intent.quiet
    return (
        intent.trigger,
        ask.named(run_id),
        intent.workflow_rev,
        micros(intent.due_at),
        ask.text(ask.seal.shut(intent.input)) if intent.input else False,
        ask.name(intent.slot) if intent.slot and intent.overlap != "allow" else False,
        intent.overlap,
        intent.hold,
        intent.priority,
        intent.max_attempts,
        micros(quiet.start) if quiet else False,
        micros(quiet.end) if quiet else False,
        ask.shut(intent.reason) if intent.reason else False,
        ask.name(intent.run_key),
        _gather(ask, intent) if intent.gather else False,
    )


def _decided(seal: Seal, answer: Sequence[Any]) -> tuple[Verdict, ...]:
    verdicts = verdicts_of(seal, answer[2])
    if answer[1] == b"n":
        return verdicts
    # the same occurrence as an earlier event: whatever was wanted has its run there
    return repeated(answer[0], verdicts, map(bytes.decode, answer[3]))


def _claimed(
    wanted: Commit,
    ids: Sequence[int],
    verdicts: Sequence[tuple[Verdict, ...]],
    hand: tuple[int, Intent],
    run_id: bytes,
    now: datetime,
) -> Claimed:
    at, intent = hand
    trigger = next(verdict.trigger for verdict in verdicts[at] if verdict.run_id == run_id.hex())
    recorded = just_recorded(wanted.entries[at].event, ids[at], wanted.feed, now, verdicts[at])
    return first_claim(intent, run_id, trigger, recorded)


def _cuts(entries: Sequence[Entry], bodies: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Where a page is cut, so that no part is too long or too heavy."""
    begin, work, weight = 0, 0, 0
    for at, (entry, body) in enumerate(zip(entries, bodies, strict=True)):
        work += len(entry.decisions)
        weight += len(body)
        if at > begin and (at - begin >= LARGEST or work > BUSIEST or weight > HEAVIEST):
            yield begin, at
            begin, work, weight = at, len(entry.decisions), len(body)
    yield begin, len(bodies)


def _first_part(wanted: Commit, entries: Sequence[Entry]) -> Commit:
    """Events, memory and runs of a part. Nothing is handed over: the answer may be lost with a later part."""
    return Commit(feed=wanted.feed, revision=wanted.revision, token=wanted.token, entries=entries)


def _gather(ask: Ask, intent: Intent) -> tuple[Any, ...]:
    into = intent.gather
    assert into is not None
    opens = run_id_of(ask.seal, intent.trigger, intent.epoch, f"gather\0{into.key}\0{intent.run_key}")
    return ask.name(f"gather\0{into.key}"), ask.named(opens), micros(into.due_at), into.max, into.extends


def _advance(ask: Ask, wanted: Commit) -> tuple[Any, ...]:
    due: int | bool = False
    if wanted.next_due is not None or wanted.done:
        due = -1 if wanted.next_due is None else micros(wanted.next_due)
    return (
        False if wanted.cursor is msgspec.UNSET else ask.shut_json(wanted.cursor),
        micros_or_false(wanted.watermark),
        due,
        False if wanted.health is None else ask.shut_json(wanted.health),
        wanted.health is not None and wanted.health.clean,
        wanted.done,
        _tick(wanted.tick) if wanted.tick else False,
    )


def _tick(tick: Tick) -> tuple[Any, ...]:
    covered = tick.covered
    return (
        micros(tick.started_at),
        RESULTS.index(tick.result),
        tick.seen,
        tick.new,
        tick.seconds,
        micros(covered.start) if covered else False,
        micros(covered.end) if covered else False,
    )
