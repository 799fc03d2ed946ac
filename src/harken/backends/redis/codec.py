"""How values become bytes in Redis and arguments for Lua, and bytes become values again.

Lua never looks into a text: it gets names (16 bytes each), opaque texts, and instructions in msgpack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from struct import Struct
from typing import Any, Literal

import msgspec

from harken.backends.codec import micros
from harken.backends.encryption import Seal
from harken.backends.run_states_ids_and_reasons import (
    ANSWERED,
    DROPPED,
    ENDED,
    HAS_ITS_RUN,
    HOLD_REASONS,
    MISSED,
    NOT_OVER,
    REPLACED,
    SAME_VALUE,
    TOO_EARLY,
    delayed_reason,
    gathered_reason,
    throttled_reason,
)
from harken.backends.verdicts import MANY, decode_verdicts, encode_verdicts
from harken.errors import HarkenError, LeaseLost, NotFound
from harken.event import Event, Known, Outcome, Recorded, Verdict
from harken.runs import BY_HAND, StepRecord
from harken.store.gathering_rules import decode_parts, encode_parts, keeps_incomplete, pack_times, unpack_times

__all__ = [
    "ABSENT",
    "ABSENT_STATE",
    "BUCKET",
    "DOCUMENT",
    "END_REASONS",
    "EVENT_HEAD",
    "GROUPED_VERDICTS",
    "MEMORY",
    "NEVER",
    "NO_STATE",
    "OUTCOMES",
    "PLAIN_STATE",
    "RESULTS",
    "SEALED_STATE",
    "STAMP",
    "STORED_VERDICT",
    "TICK",
    "VERDICT_FRAME",
    "Arguments",
    "Row",
    "coverage_spans",
    "decode_audit",
    "decode_body",
    "decode_letter",
    "decode_text",
    "encode_body",
    "encode_frames",
    "encode_group",
    "encode_letter",
    "encode_msgpack",
    "encode_state",
    "encode_text",
    "encode_verdict",
    "event_body",
    "event_fields",
    "fields_of_reply",
    "grouped_in",
    "hash_fields",
    "known_of",
    "mark_value",
    "micros_or_false",
    "moment",
    "moment_or_none",
    "parts_of",
    "parts_text",
    "read_mark",
    "recorded",
    "refusal",
    "state_argument",
    "step_charge",
    "verdicts_of",
]

Row = Mapping[str, bytes]
"""The hash of a feed, trigger or run."""

BUCKET = 1000
"""Events and runs are stored in hashes, each for so many numbers."""

NEVER = 2**53
"""The due time of a run that only an answer can wake. Lua's numbers are exact up to here."""

STAMP = Struct(">Q")
"""A time in microseconds, or a number, that sorts as text."""

DOCUMENT = Struct(">IQ")
"""Revision and time in front of a document."""

TICK = Struct(">QQIBIId")
"""Start, end, count, result, seen, new and seconds in front of a tick's error."""

MEMORY = Struct(">QQQIBH")
"""First seen, last seen, event, number of changes, kind of state, size of the mark; mark and state follow."""

EVENT_HEAD = Struct(">Q16sH")
"""Time, name of the key and size of the feed's name; the name and the verdicts follow."""

VERDICT_FRAME = Struct(">BHBII")
"""Outcome, sizes of trigger, run and reason, and a number; trigger, run and reason follow."""

STORED_VERDICT = 0xFFFFFFFF
"""The number of a frame whose reason is the whole verdict, as matching or another store made it."""

GROUPED_VERDICTS = 0xFFFFFFFE
"""The number of the first frame of an event that matching decided for many triggers: its reason is all these verdicts,
and its trigger is empty. Scripts never change it. A frame that has one of its triggers takes the place of the verdict.
"""

OUTCOMES: tuple[Outcome, ...] = (
    "fired",
    "filtered",
    "duplicate",
    "before_start",
    "gathered",
    "held",
    "skipped",
    "error",
    "unmatched",
)
"""The order is part of the stored format, also that of RESULTS."""

Result = Literal["nothing_new", "events", "unchanged", "error", "rate_limited", "changed"]
RESULTS: tuple[Result, ...] = ("nothing_new", "events", "unchanged", "error", "rate_limited", "changed")

END_REASONS = {
    b"replaced": REPLACED,
    b"overlap": NOT_OVER,
    b"cancelled": BY_HAND,
    b"dropped": DROPPED,
    b"missed": MISSED,
    b"ended": ENDED,
}
"""Why a script ended a run. It stores the word, because it cannot encrypt the sentence."""

NO_STATE, PLAIN_STATE, ABSENT_STATE, SEALED_STATE = range(4)
"""Kinds of a subject's state. A plain one is its own mark; a sealed one has the name of the state as its mark."""

ABSENT = "\0absent"
"""The state of a subject that its source no longer lists."""

SHORT_STATE = 32
"""Longer states are stored by a mark of 16 bytes, so that comparing them is cheap."""

encode_msgpack = msgspec.msgpack.Encoder().encode
decode_body = msgspec.msgpack.Decoder(tuple[bytes, bytes, bytes | None, str, int | None, bytes]).decode
"""Key, subject, state, type, time and data of an event."""
decode_letter = msgspec.msgpack.Decoder(tuple[bytes, bytes, bytes, bytes]).decode
"""Feed, key, reason and payload of an event that the store refused."""
decode_audit = msgspec.msgpack.Decoder(tuple[str, str, str, bytes]).decode
"""Who, did, what and the sealed detail of an audit entry."""
_decode_group = msgspec.msgpack.Decoder(tuple[list[int], bytes]).decode
"""The places of the frames that follow among all verdicts, and the verdicts of the group."""
_encode_json = msgspec.json.Encoder().encode
_decode_verdict = msgspec.json.Decoder(Verdict).decode
_decode_data = msgspec.json.Decoder().decode


class Arguments:
    """Names and texts of one script call. A method adds one and returns its position, for use in the instructions."""

    __slots__ = ("names", "seal", "texts")

    def __init__(self, seal: Seal) -> None:
        self.seal = seal
        self.names: list[bytes] = []
        self.texts: list[bytes] = []

    def name(self, plain: str) -> int:
        return self.raw_name(self.seal.name(plain))

    def raw_name(self, name: bytes) -> int:
        self.names.append(name)
        return len(self.names)

    def run(self, run_id: str) -> int:
        """Add the id of a run; an id that no run has if `run_id` is not one."""
        try:
            found = bytes.fromhex(run_id)
        except ValueError:
            found = b""
        return self.raw_name(found if len(found) == 16 else bytes(16))

    def text(self, opaque: bytes) -> int:
        self.texts.append(opaque)
        return len(self.texts)

    def shut(self, plain: str) -> int:
        return self.text(self.seal.shut(plain.encode("utf-8", "surrogatepass")))

    def shut_json(self, value: Any) -> int:
        return self.text(self.seal.shut(_encode_json(value)))

    def encode(self, instructions: Sequence[Any]) -> list[bytes]:
        """The arguments as the script gets them."""
        return [encode_msgpack(instructions), b"".join(self.names), *self.texts]


def refusal(reply: Any) -> HarkenError | None:
    """The error that a script returned, if it did."""
    if not isinstance(reply, list) or not reply or reply[0] != b"!":
        return None
    what, about = reply[1].decode(), reply[2].decode() if len(reply) > 2 else ""
    if what == "lease":
        return LeaseLost("another process reads these feeds now")
    if what == "lost":
        return LeaseLost("the run is no longer ours")
    if what == "uid":
        return NotFound(f"there is no trigger with uid {about!r}")
    return NotFound(f"there is no {what} {about!r}" if about else f"there is no such {what}")


def micros_or_false(instant: datetime | None) -> int | bool:
    return False if instant is None else micros(instant)


# a trigger begins, reads and was made at one moment, and so are many that were stored together
@lru_cache(maxsize=4096)
def moment(us: int | bytes) -> datetime:
    return datetime.fromtimestamp(int(us) / 1_000_000, UTC)


def moment_or_none(us: bytes | None) -> datetime | None:
    return moment(us) if us else None


def encode_text(plain: str) -> bytes:
    return plain.encode("utf-8", "surrogatepass")


def decode_text(plain: bytes) -> str:
    return plain.decode("utf-8", "surrogatepass")


def hash_fields(reply: Mapping[bytes, bytes]) -> Row:
    """A hash as the driver returns it."""
    return {field.decode(): value for field, value in reply.items()}


def fields_of_reply(flat: Sequence[bytes]) -> Row:
    """A hash as Lua returns it: fields and values in turn."""
    return dict(zip(map(_field_name, flat[::2]), flat[1::2], strict=True))


# most hashes have the same fields
_field_name = lru_cache(maxsize=4096)(bytes.decode)


def event_fields(event_id: int) -> tuple[str, str, str]:
    """The fields of an event in the hash of its bucket: body, head with verdicts, repeats."""
    return str(event_id), f"v{event_id}", f"r{event_id}"


def event_body(event: Event, seal: Seal) -> bytes:
    """An event as it is stored, without the time it was recorded at and its verdicts."""
    at = None if event.occurred_at is None else micros(event.occurred_at)
    return encode_body(seal, event.key, event.subject, event.state, event.type, at, event.payload())


def encode_body(
    seal: Seal, key: str, subject: str, state: str | None, kind: str, occurred_at: int | None, data: bytes
) -> bytes:
    encoded = None if state is None else encode_text(state)
    return seal.shut(encode_msgpack((encode_text(key), encode_text(subject), encoded, kind, occurred_at, data)))


def recorded(seal: Seal, event_id: int, row: Sequence[bytes | None], *, with_verdicts: bool = True) -> Recorded | None:
    """The event of its three fields; None if it was deleted."""
    body, head, repeats = row
    if body is None or head is None:
        return None
    key, subject, state, kind, at, data = decode_body(seal.open(body))
    recorded_at, _, size = EVENT_HEAD.unpack_from(head)
    times, _, last = repeats.partition(b":") if repeats else (b"0", b"", b"")
    return Recorded(
        id=event_id,
        feed=head[26 : 26 + size].decode(),
        key=key.decode("utf-8", "surrogatepass"),
        subject=subject.decode("utf-8", "surrogatepass"),
        state=None if state is None else state.decode("utf-8", "surrogatepass"),
        type=kind,
        occurred_at=None if at is None else moment(at),
        recorded_at=moment(recorded_at),
        data=_decode_data(data),
        verdicts=verdicts_of(seal, head[26 + size :]) if with_verdicts else (),
        repeats=int(times),
        last_repeat_at=moment_or_none(last),
    )


def encode_verdict(seal: Seal, verdict: Verdict, run: bytes = b"") -> bytes:
    """The frame of a whole verdict. Scripts read its `run`, to know whether that has ended."""
    trigger = verdict.trigger.encode()
    reason = seal.shut(_encode_json(verdict))
    sizes = (OUTCOMES.index(verdict.outcome), len(trigger), len(run), len(reason), STORED_VERDICT)
    return VERDICT_FRAME.pack(*sizes) + trigger + run + reason


def encode_group(seal: Seal, verdicts: Sequence[Verdict], others: Sequence[int]) -> bytes:
    """The frame of verdicts that name no run. `others`: the places among all verdicts of the frames that follow it."""
    reason = seal.shut(encode_msgpack((others, encode_verdicts(verdicts))))
    return VERDICT_FRAME.pack(0, 0, 0, len(reason), GROUPED_VERDICTS) + reason


def encode_frames(seal: Seal, verdicts: Sequence[Verdict]) -> bytes:
    """Verdicts as another store has them."""
    grouped = [verdict for verdict in verdicts if not verdict.run_id]
    if len(grouped) < MANY:
        return b"".join(encode_verdict(seal, verdict, bytes.fromhex(verdict.run_id)) for verdict in verdicts)
    others = [at for at, verdict in enumerate(verdicts) if verdict.run_id]
    frames = (encode_verdict(seal, verdicts[at], bytes.fromhex(verdicts[at].run_id)) for at in others)
    return encode_group(seal, grouped, others) + b"".join(frames)


def verdicts_of(seal: Seal, frames: bytes) -> tuple[Verdict, ...]:
    group, others = _split_group(seal, frames)
    found = list(_read_frames(seal, frames))
    if not group:
        return tuple(found)
    # places are those of the moment when the event was recorded; what was decided later stands at the end
    first, later = found[: len(others)], {verdict.trigger: verdict for verdict in found[len(others) :]}
    placed = dict(zip(others, first, strict=False))
    members = iter(group)
    whole = [placed[at] if at in placed else next(members) for at in range(len(group) + len(placed))]
    whole = [later.pop(verdict.trigger, verdict) for verdict in whole]
    return (*whole, *later.values())


def grouped_in(seal: Seal, head: bytes) -> Mapping[str, Outcome]:
    """The outcomes of the group in an event's head, by trigger."""
    frames = head[EVENT_HEAD.size + EVENT_HEAD.unpack_from(head)[2] :]
    return {verdict.trigger: verdict.outcome for verdict in _split_group(seal, frames)[0]}


def _split_group(seal: Seal, frames: bytes) -> tuple[tuple[Verdict, ...], list[int]]:
    """The verdicts of the group, and the places of the others; nothing if there is no group."""
    if not frames:
        return (), []
    _, _, _, size, number = VERDICT_FRAME.unpack_from(frames)
    if number != GROUPED_VERDICTS:
        return (), []
    others, encoded = _decode_group(seal.open(frames[VERDICT_FRAME.size : VERDICT_FRAME.size + size]))
    return decode_verdicts(encoded), others


def _read_frames(seal: Seal, frames: bytes) -> Iterable[Verdict]:
    """The verdicts that have a frame of their own."""
    at, end = 0, len(frames)
    while at < end:
        outcome, trigger_size, run_size, reason_size, number = VERDICT_FRAME.unpack_from(frames, at)
        at += VERDICT_FRAME.size
        trigger, at = frames[at : at + trigger_size].decode(), at + trigger_size
        run, at = frames[at : at + run_size].hex(), at + run_size
        reason, at = frames[at : at + reason_size], at + reason_size
        if number == STORED_VERDICT:
            yield _decode_verdict(seal.open(reason))
        elif number != GROUPED_VERDICTS:
            why = _reason(seal, OUTCOMES[outcome], reason, number, has_run=bool(run))
            yield Verdict(trigger=trigger, outcome=OUTCOMES[outcome], reason=why, run_id=run)


def _reason(seal: Seal, outcome: Outcome, reason: bytes, number: int, *, has_run: bool) -> str:
    """The reason of a verdict that a script made; resolve.lua says what the number means."""
    if outcome == "held":
        return HOLD_REASONS[reason.decode()]
    if outcome == "duplicate":
        return SAME_VALUE if number else HAS_ITS_RUN
    if outcome == "skipped":
        return _SKIPPED.get(number) or throttled_reason(number)
    plain = decode_text(seal.open(reason)) if reason else ""
    if outcome == "gathered":
        return gathered_reason(number, plain, has_run=has_run)
    return delayed_reason(number, plain) if number else plain


_SKIPPED = {0: NOT_OVER, 1: ANSWERED, 2: TOO_EARLY}


def parts_of(text: bytes) -> bytes:
    """The parts of a join as the SQL stores have them, from the text that scripts write."""
    keeps, *parts = text.decode().split(";")
    gathered = [(int(number), int(at)) for number, _, at in (part.partition(":") for part in parts)]
    return encode_parts(gathered, keeps=keeps == "1")


def parts_text(parts: bytes) -> str:
    """The parts of a join as scripts write them."""
    keeps = "1" if keeps_incomplete(parts) else "0"
    return ";".join([keeps, *(f"{number}:{at}" for number, at in decode_parts(parts))])


def read_mark(value: bytes) -> tuple[int, bytes, bytes]:
    """When a mark ends, its times (as the SQL stores have them) and its run; see gathering.lua."""
    until, times, run = value.split(b";", 2)
    return int(until), pack_times([int(time) for time in times.split(b",") if time]), run


def mark_value(until: int, times: bytes, run: bytes) -> bytes:
    listed = ",".join(str(time) for time in unpack_times(times))
    return f"{until};{listed};".encode() + run


def encode_state(seal: Seal, state: str | None) -> tuple[int, bytes, bytes]:
    """A subject's state for memory: its kind, the mark that equal states share, and the sealed state itself."""
    if state is None:
        return NO_STATE, b"", b""
    plain = state.encode("utf-8", "surrogatepass")
    if not seal.encrypted and len(plain) <= SHORT_STATE:
        return PLAIN_STATE, plain, b""
    return SEALED_STATE, seal.name(state), seal.shut(plain)


def state_argument(args: Arguments, state: str | None) -> tuple[int, int | bool, int | bool]:
    """The same for a script."""
    kind, mark, sealed = encode_state(args.seal, state)
    return kind, kind != NO_STATE and args.text(mark), kind == SEALED_STATE and args.text(sealed)


def known_of(seal: Seal, value: bytes) -> tuple[Known, int, int]:
    """What is remembered of a subject, and when it was seen first and last."""
    first, last, _, seq, kind, size = MEMORY.unpack_from(value)
    if kind in (NO_STATE, ABSENT_STATE):
        return Known(None if kind == NO_STATE else ABSENT, seq), first, last
    mark, sealed = value[MEMORY.size : MEMORY.size + size], value[MEMORY.size + size :]
    state = mark if kind == PLAIN_STATE else seal.open(sealed)
    return Known(state.decode("utf-8", "surrogatepass"), seq), first, last


def coverage_spans(row: Row) -> list[tuple[int, int]]:
    """What a feed has proven to have read. The newest span has fields of its own, older ones are joined in one."""
    older = [each.split(b"-") for each in row.get("coverage", b"").split(b",") if each]
    newest = [[row["cover_start"], row["cover_end"]]] if "cover_start" in row else []
    return [(int(begin), int(end)) for begin, end in [*older, *newest]]


def encode_letter(seal: Seal, feed: str, key: str, reason: str, payload: bytes) -> bytes:
    """An event that the store refused. Its texts may be what cannot be encoded, so they are escaped."""
    plain = [each.encode("utf-8", "backslashreplace") for each in (feed, key, reason)]
    return seal.shut(encode_msgpack((*plain, payload)))


def step_charge(args: Arguments, record: StepRecord, encoded: bytes) -> int | bool:
    """The name by which a step is charged once to its trigger's budget; False if it spent nothing."""
    if not (record.tokens or record.usd):
        return False
    return args.name(f"step\0{encoded.decode('utf-8', 'surrogateescape')}")
