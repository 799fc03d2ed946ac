"""The commit of a page of a feed: its instructions for Lua, and the reply as values."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.backends.codec import as_recorded, first_claim, micros
from harken.backends.encryption import Seal
from harken.backends.redis.codec import (
    BUCKET,
    RESULTS,
    Arguments,
    encode_group,
    encode_verdict,
    event_body,
    grouped_in,
    micros_or_false,
    moment,
    state_argument,
    verdicts_of,
)
from harken.backends.redis.connection_and_name_cache import Session, UsesSession
from harken.backends.redis.notify import leaves_runs
from harken.backends.run_states_ids_and_reasons import duplicate_verdicts, mark_name, run_id_of
from harken.backends.verdicts import MANY
from harken.event import Outcome, Verdict
from harken.runs import Claimed
from harken.store import Commit, Committed, EarlyEnd, Entry, Intent, JoinPart, Stale, Tick
from harken.store.gathering_rules import part_of

__all__ = ["RedisCommits", "caused_commits"]

MAX_EVENTS, MAX_DECISIONS, MAX_BYTES = 200, 600, 1_000_000
"""Of one script call: nobody else is served while a script runs."""

Part = tuple[str, bool]
"""The random id of a page that takes several calls, and whether this is the last of them."""

Handover = dict[bytes, tuple[int, Intent]]
"""The intents whose runs the commit may return as claimed or over, with the position of their entry, by run id."""


class RedisCommits(UsesSession):
    async def commit(self, wanted: Commit) -> Committed | Stale:
        """A page too long for one script is written in parts. Its cursor moves with the last one, so the rest of an
        interrupted page is read again."""
        session = await self._ready()
        wanted = await _without_decided(session, wanted)
        bodies = _bodies(session, wanted)
        cuts = list(_cuts(wanted.entries, bodies))
        if len(cuts) == 1:
            committed = await _write(session, wanted, bodies, None)
        else:
            committed = await _write_in_parts(session, wanted, bodies, cuts)
        if isinstance(committed, Committed) and leaves_runs(committed):
            self._hints.give()
        return committed


def caused_commits(session: Session, args: Arguments, commits: Sequence[Commit]) -> list[Any]:
    """Commits that are written by the script of another verb."""
    return [_instructions(session, args, each, _bodies(session, each), None, None) for each in commits]


async def _write_in_parts(
    session: Session, wanted: Commit, bodies: Sequence[bytes], cuts: Sequence[tuple[int, int]]
) -> Committed | Stale:
    page = secrets.token_hex(8)
    parts: list[Committed] = []
    for begin, end in cuts:
        last = end == len(bodies)
        some = wanted.entries[begin:end]
        part = msgspec.structs.replace(wanted, entries=some) if last else _first_part(wanted, some)
        committed = await _write(session, part, bodies[begin:end], (page, last))
        if isinstance(committed, Stale):
            return committed
        parts.append(committed)
    return Committed(
        event_ids=[each for part in parts for each in part.event_ids],
        verdicts=[each for part in parts for each in part.verdicts],
        claimed=parts[-1].claimed,
        over=[each for part in parts for each in part.over],
    )


def _cuts(entries: Sequence[Entry], bodies: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """The first and last entry of each part."""
    begin, decisions, size = 0, 0, 0
    for at, (entry, body) in enumerate(zip(entries, bodies, strict=True)):
        decisions += _weight(entry)
        more = len(body) + _size_of_ends(entry)
        size += more
        if at > begin and (at - begin >= MAX_EVENTS or decisions > MAX_DECISIONS or size > MAX_BYTES):
            yield begin, at
            begin, decisions, size = at, _weight(entry), more
    yield begin, len(bodies)


def _size_of_ends(entry: Entry) -> int:
    """Bytes of the runs that were executed before the commit."""
    ends = [one.end for one in entry.decisions if isinstance(one, Intent) and one.end is not None]
    return sum(len(end.output) + sum(map(len, end.records)) for end in ends)


def _weight(entry: Entry) -> int:
    """The number of decisions that the script gets."""
    return len(entry.decisions) - (len(_grouped(entry)) - 1 if _has_group(entry) else 0)


def _grouped(entry: Entry) -> list[Verdict]:
    return [decision for decision in entry.decisions if isinstance(decision, Verdict)]


def _has_group(entry: Entry) -> bool:
    """Whether the verdicts of matching are stored together. Those of a stored event are added to what it has."""
    return not entry.again and len(entry.decisions) >= MANY and len(_grouped(entry)) >= MANY


def _first_part(wanted: Commit, entries: Sequence[Entry]) -> Commit:
    """Events, memory and runs only. No run is handed over: a failure of a later part would lose it."""
    return Commit(feed=wanted.feed, revision=wanted.revision, token=wanted.token, entries=entries)


def _bodies(session: Session, wanted: Commit) -> list[bytes]:
    return [b"" if entry.again else event_body(entry.event, session.seal) for entry in wanted.entries]


async def _write(session: Session, wanted: Commit, bodies: Sequence[bytes], part: Part | None) -> Committed | Stale:
    args = session.arguments()
    handover: Handover = {}
    instructions = _instructions(session, args, wanted, bodies, part, handover)
    reply = await session.connection.write("commit.commit", args, (instructions,))
    if reply[0] == b"stale":
        return Stale(reply[1])
    _, answers, handed, ended, now = reply
    verdicts = [_verdicts(session.seal, entry, answer) for entry, answer in zip(wanted.entries, answers, strict=True)]
    ids = [answer[0] for answer in answers]
    started = {handover[run_id][0] for run_id in (*handed, *ended)}
    names = {verdict.run_id: verdict.trigger for at in started for verdict in verdicts[at]}

    def claim(run_id: bytes) -> Claimed:
        return _claimed(wanted, ids, handover[run_id], run_id, names[run_id.hex()], moment(now))

    over = [(claim(run_id), end) for run_id in ended if (end := handover[run_id][1].end) is not None]
    return Committed(event_ids=ids, verdicts=verdicts, claimed=[claim(run_id) for run_id in handed], over=over)


def _instructions(
    session: Session,
    args: Arguments,
    wanted: Commit,
    bodies: Sequence[bytes],
    part: Part | None,
    handover: Handover | None,
) -> dict[str, Any]:
    return {
        "feed": wanted.feed,
        "revision": wanted.revision,
        "token": False if wanted.token is None else wanted.token,
        "entries": [_entry(args, at, entry, bodies[at], handover) for at, entry in enumerate(wanted.entries)],
        "advance": _advance(args, wanted),
        "release": list(wanted.release.items()),
        "claim": wanted.claim,
        "holder": wanted.holder,
        "life": session.life,
        "backfilled": list(wanted.backfilled),
        "looks_back": bool(wanted.backfilled or (wanted.entries and wanted.entries[0].again)),
        "part": part or False,
    }


def _entry(args: Arguments, at: int, entry: Entry, body: bytes, handover: Handover | None) -> tuple[Any, ...]:
    decisions = _decisions(args, at, entry, handover)
    if entry.again:
        return entry.again, False, 0, 0, 0, False, False, 0, 0, decisions
    return (
        False,
        args.name(entry.memory_id) if entry.memory_id else False,
        entry.expect,
        entry.seq,
        *state_argument(args, entry.event.state),
        args.name(entry.event.key),
        args.text(body),
        decisions,
    )


def _decisions(args: Arguments, at: int, entry: Entry, handover: Handover | None) -> list[tuple[Any, ...]]:
    if not _has_group(entry):
        return [
            (0, args.text(encode_verdict(args.seal, decision)), decision.trigger)
            if isinstance(decision, Verdict)
            else _intent(args, at, decision, handover)
            for decision in entry.decisions
        ]
    intents = {place: one for place, one in enumerate(entry.decisions) if isinstance(one, Intent)}
    group = encode_group(args.seal, _grouped(entry), list(intents))
    return [(0, args.text(group), ""), *(_intent(args, at, intent, handover) for intent in intents.values())]


async def _without_decided(session: Session, wanted: Commit) -> Commit:
    """The commit without decisions on stored events for triggers whose verdict is in the event's group.

    A script cannot look into a group. It never changes, so that reading it before is as good. What was before the
    start of a trigger is decided again.
    """
    stored = [entry.again for entry in wanted.entries if entry.again]
    if not stored:
        return wanted
    rows = await session.connection.execute(
        *(("HGET", session.connection.key(f"e:{each // BUCKET}"), f"v{each}") for each in stored)
    )
    groups = {each: grouped_in(session.seal, head) for each, head in zip(stored, rows, strict=True) if head is not None}
    names = await _names(session, wanted) if any(groups.values()) else {}
    entries = [_undecided(entry, groups.get(entry.again, {}), names) for entry in wanted.entries]
    return msgspec.structs.replace(wanted, entries=entries)


async def _names(session: Session, wanted: Commit) -> dict[str, str]:
    """The names of the triggers that have an intent, by uid."""
    uids = {one.trigger for entry in wanted.entries for one in entry.decisions if isinstance(one, Intent)}
    await session.learn_names(uid.encode() for uid in uids)
    return {uid: session.trigger_name(uid.encode()) for uid in uids}


def _undecided(entry: Entry, group: Mapping[str, Outcome], names: Mapping[str, str]) -> Entry:
    def is_open(decision: Verdict | Intent) -> bool:
        trigger = decision.trigger if isinstance(decision, Verdict) else names[decision.trigger]
        return group.get(trigger, "before_start") == "before_start"

    if not group:
        return entry
    return msgspec.structs.replace(entry, decisions=tuple(filter(is_open, entry.decisions)))


def _intent(args: Arguments, at: int, intent: Intent, handover: Handover | None) -> tuple[Any, ...]:
    run_id = run_id_of(args.seal, intent.trigger, intent.epoch, intent.run_key)
    if handover is not None:
        handover[run_id] = (at, intent)
    quiet, distinct, rate = intent.quiet, intent.distinct, intent.rate
    return (
        intent.trigger,
        args.raw_name(run_id),
        intent.workflow_rev,
        micros(intent.due_at),
        args.text(args.seal.shut(intent.input)) if intent.input else False,
        args.name(intent.slot) if intent.slot and intent.overlap != "allow" else False,
        intent.overlap,
        intent.hold,
        intent.priority,
        intent.max_attempts,
        micros(quiet.start) if quiet else False,
        micros(quiet.end) if quiet else False,
        args.shut(intent.reason) if intent.reason else False,
        args.name(intent.run_key),
        _gather(args, intent) if intent.gather else False,
        intent.watched,
        (args.raw_name(mark_name(args.seal, "dedupe", intent.epoch, distinct.key)), _micros(distinct.seconds))
        if distinct
        else False,
        (
            args.raw_name(mark_name(args.seal, "throttle", intent.epoch, rate.key)),
            rate.most,
            _micros(rate.seconds),
            rate.drops,
        )
        if rate
        else False,
        _end(args, intent.end) if intent.end else False,
    )


def _end(args: Arguments, end: EarlyEnd) -> tuple[Any, ...]:
    shut = args.seal.shut
    records = [args.text(shut(record)) for record in end.records]
    return args.text(shut(end.output)) if end.output else False, records, not end.filtered


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _verdicts(seal: Seal, entry: Entry, answer: Sequence[Any]) -> tuple[Verdict, ...]:
    verdicts = verdicts_of(seal, answer[2])
    if answer[1] == b"n":
        return verdicts
    # the entry repeats an earlier event, which has the runs
    names = [name.decode() for name in answer[3]]
    if _has_group(entry):
        # the first name is that of the group, which has none
        others = iter(names[1:])
        names = [one.trigger if isinstance(one, Verdict) else next(others) for one in entry.decisions]
    return duplicate_verdicts(answer[0], verdicts, names)


def _claimed(
    wanted: Commit,
    ids: Sequence[int],
    handed: tuple[int, Intent],
    run_id: bytes,
    trigger: str,
    now: datetime,
) -> Claimed:
    at, intent = handed
    recorded = as_recorded(wanted.entries[at].event, ids[at], wanted.feed, now)
    return first_claim(intent, run_id, trigger, recorded)


def _gather(args: Arguments, intent: Intent) -> tuple[Any, ...]:
    into = intent.gather
    assert into is not None
    new_run = run_id_of(args.seal, intent.trigger, intent.epoch, f"gather\0{into.key}\0{intent.run_key}")
    return (
        args.name(f"gather\0{into.key}"),
        args.raw_name(new_run),
        micros(into.due_at),
        into.max,
        into.extends,
        _micros(into.wait),
        _part(args, intent, into.key, into.part) if into.part else False,
    )


def _part(args: Arguments, intent: Intent, key: str, part: JoinPart) -> tuple[Any, ...]:
    return (
        part_of(part, 0)[0],
        micros(part.at),
        _micros(part.span),
        part.needs,
        part.ordered,
        part.ends,
        part.waits,
        part.keeps,
        args.raw_name(mark_name(args.seal, "none", intent.epoch, key)),
    )


def _advance(args: Arguments, wanted: Commit) -> tuple[Any, ...]:
    due: int | bool = False
    if wanted.next_due is not None or wanted.done:
        due = -1 if wanted.next_due is None else micros(wanted.next_due)
    return (
        False if wanted.cursor is msgspec.UNSET else args.shut_json(wanted.cursor),
        micros_or_false(wanted.watermark),
        due,
        False if wanted.health is None else args.shut_json(wanted.health),
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
