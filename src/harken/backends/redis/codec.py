"""How values become bytes for Redis, and bytes become values again.

Lua never looks into a text: it gets names (16 bytes each), opaque texts, and instructions in msgpack.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from struct import Struct
from typing import Any

import msgspec

from harken.backends.codec import micros
from harken.backends.encryption import Seal
from harken.backends.run_states import HAS_ITS_RUN, HOLD_REASONS, NOT_OVER, gathered_as
from harken.errors import HarkenError, LeaseLost, NotFound
from harken.event import Event, Known, Outcome, Recorded, Verdict

__all__ = [
    "BUCKET",
    "FRAME",
    "Ask",
    "body_of",
    "event_fields",
    "fields",
    "given",
    "known_of",
    "micros_or_false",
    "moment",
    "moment_or_none",
    "recorded",
    "refusal",
    "state_of",
    "verdicts_of",
]

BUCKET = 1000
"""Events and runs are kept in hashes of so many numbers."""

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
GIVEN = 0xFFFFFFFF
"""The number of a verdict that matching gave: its reason is the whole of it."""

FRAME = Struct(">BHBII")
_MEMORY = Struct(">QQQIBH")
_HEAD = Struct(">Q16sH")
SHORT_STATE = 32

_encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode
_decode_verdict = msgspec.json.Decoder(Verdict).decode
_decode_body = msgspec.msgpack.Decoder(tuple[bytes, bytes, bytes | None, str, int | None, bytes]).decode
_decode_data = msgspec.json.Decoder().decode


class Ask:
    """What goes along with the instructions of one call: names and texts, told to Lua by their place."""

    __slots__ = ("names", "seal", "texts")

    def __init__(self, seal: Seal) -> None:
        self.seal = seal
        self.names: list[bytes] = []
        self.texts: list[bytes] = []

    def name(self, plain: str) -> int:
        return self.named(self.seal.name(plain))

    def named(self, name: bytes) -> int:
        self.names.append(name)
        return len(self.names)

    def run(self, run_id: str) -> int:
        """The place of a run's id; that of a run which nobody has, for what is no id."""
        try:
            found = bytes.fromhex(run_id)
        except ValueError:
            found = b""
        return self.named(found if len(found) == 16 else bytes(16))

    def text(self, opaque: bytes) -> int:
        self.texts.append(opaque)
        return len(self.texts)

    def shut(self, plain: str) -> int:
        return self.text(self.seal.shut(plain.encode("utf-8", "surrogatepass")))

    def shut_json(self, value: Any) -> int:
        return self.text(self.seal.shut(_encode_json(value)))

    def arguments(self, instructions: Any) -> list[bytes]:
        return [_encode(instructions), b"".join(self.names), *self.texts]


def micros_or_false(instant: datetime | None) -> int | bool:
    return False if instant is None else micros(instant)


def moment(us: int | bytes) -> datetime:
    return datetime.fromtimestamp(int(us) / 1_000_000, UTC)


def moment_or_none(us: bytes | None) -> datetime | None:
    return moment(us) if us else None


def fields(flat: Sequence[bytes]) -> dict[str, bytes]:
    """A hash as Redis answers it from Lua: field and value in turn."""
    pairs = iter(flat)
    return {field.decode(): value for field, value in zip(pairs, pairs, strict=True)}


def body_of(event: Event, seal: Seal) -> bytes:
    """An event as it is kept, but for when it was recorded and what was decided."""
    state = None if event.state is None else event.state.encode("utf-8", "surrogatepass")
    at = None if event.occurred_at is None else micros(event.occurred_at)
    key, subject = event.key.encode("utf-8", "surrogatepass"), event.subject.encode("utf-8", "surrogatepass")
    return seal.shut(_encode((key, subject, state, event.type, at, event.payload())))


def recorded(seal: Seal, event_id: int, row: Sequence[bytes | None]) -> Recorded | None:
    """The event of a row: its body, its head with the verdicts, its repeats. None when it is gone."""
    body, head, repeats = row
    if body is None or head is None:
        return None
    key, subject, state, kind, at, data = _decode_body(seal.open(body))
    recorded_at, _, size = _HEAD.unpack_from(head)
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
        verdicts=verdicts_of(seal, head[26 + size :]),
        repeats=int(times),
        last_repeat_at=moment_or_none(last),
    )


def given(seal: Seal, verdict: Verdict) -> bytes:
    """The frame of a verdict that matching gave."""
    trigger = verdict.trigger.encode()
    reason = seal.shut(_encode_json(verdict))
    return FRAME.pack(OUTCOMES.index(verdict.outcome), len(trigger), 0, len(reason), GIVEN) + trigger + reason


def verdicts_of(seal: Seal, frames: bytes) -> tuple[Verdict, ...]:
    found: list[Verdict] = []
    at, end = 0, len(frames)
    while at < end:
        outcome, trigger_size, run_size, reason_size, number = FRAME.unpack_from(frames, at)
        at += FRAME.size
        trigger, at = frames[at : at + trigger_size].decode(), at + trigger_size
        run, at = frames[at : at + run_size].hex(), at + run_size
        reason, at = frames[at : at + reason_size], at + reason_size
        if number == GIVEN:
            found.append(_decode_verdict(seal.open(reason)))
        else:
            why = _reason(seal, OUTCOMES[outcome], reason, number)
            found.append(Verdict(trigger=trigger, outcome=OUTCOMES[outcome], reason=why, run_id=run))
    return tuple(found)


def _reason(seal: Seal, outcome: Outcome, reason: bytes, number: int) -> str:
    if outcome == "held":
        return HOLD_REASONS[reason.decode()]
    if outcome == "duplicate":
        return HAS_ITS_RUN
    if outcome == "skipped":
        return NOT_OVER
    said = seal.open(reason).decode("utf-8", "surrogatepass") if reason else ""
    if outcome == "gathered":
        return gathered_as(number, said)
    return said


NO_STATE, PLAIN_STATE, ABSENT_STATE, SEALED_STATE = range(4)
ABSENT = "\0absent"
"""The state of a subject that its source no longer lists."""


def state_of(ask: Ask, state: str | None) -> tuple[int, int | bool, int | bool]:
    """A subject's state for memory: of which kind it is, the mark that equal ones share, and what it is."""
    if state is None:
        return NO_STATE, False, False
    plain = state.encode("utf-8", "surrogatepass")
    if not ask.seal.encrypted and len(plain) <= SHORT_STATE:
        return PLAIN_STATE, ask.text(plain), False
    return SEALED_STATE, ask.text(ask.seal.name(state)), ask.text(ask.seal.shut(plain))


def known_of(seal: Seal, value: bytes) -> tuple[Known, int, int]:
    """What is remembered, and when it was seen first and last."""
    first, last, _, seq, kind, size = _MEMORY.unpack_from(value)
    if kind in (NO_STATE, ABSENT_STATE):
        return Known(None if kind == NO_STATE else ABSENT, seq), first, last
    mark, rest = value[_MEMORY.size : _MEMORY.size + size], value[_MEMORY.size + size :]
    state = mark if kind == PLAIN_STATE else seal.open(rest)
    return Known(state.decode("utf-8", "surrogatepass"), seq), first, last


def refusal(reply: Any) -> HarkenError | None:
    """The error that a script answered, if it did."""
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


def event_fields(event_id: int) -> tuple[str, str, str]:
    return str(event_id), f"v{event_id}", f"r{event_id}"
