"""Values to stored bytes and back, the same in every store: times, texts, JSON; and the values made from them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from harken.backends.encryption import Seal
from harken.circuit_breaker import Health
from harken.event import Event, Recorded, Span
from harken.feed import Feed, Trigger
from harken.runs import Claimed, Run, StepRecord
from harken.store import DeadLetter, Intent

__all__ = [
    "SealedTexts",
    "as_recorded",
    "clock_micros",
    "dead_run",
    "decode_feed",
    "decode_health",
    "decode_json",
    "decode_spans",
    "decode_steps",
    "decode_trigger",
    "first_claim",
    "micros",
    "micros_or_none",
    "moment",
    "moment_or_none",
    "refused_event",
]


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(instant: datetime) -> int:
    """Microseconds since 1970, without the error of a float product."""
    since = instant - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def clock_micros(seconds: float) -> int:
    """Microseconds since 1970 of `clock.time()`, rounded as `clock.now()` is: a run that is due now is due at once."""
    fraction, whole = math.modf(seconds)
    return int(whole) * 1_000_000 + round(fraction * 1_000_000)


def micros_or_none(instant: datetime | None) -> int | None:
    return None if instant is None else micros(instant)


def moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def moment_or_none(us: int | None) -> datetime | None:
    return None if us is None else moment(us)


# create decoders at import: msgspec crashes when two threads use a type for the first time
decode_feed = msgspec.json.Decoder(Feed).decode
decode_trigger = msgspec.json.Decoder(Trigger).decode
decode_health = msgspec.json.Decoder(Health).decode
decode_spans = msgspec.json.Decoder(list[Span]).decode
decode_json = msgspec.json.Decoder().decode
_decode_step = msgspec.json.Decoder(StepRecord).decode


class SealedTexts:
    """Encrypts and decrypts texts and JSON by the store's seal. An absent text reads as empty, absent JSON as None."""

    seal: Seal

    def text(self, sealed: bytes | None) -> str:
        return "" if sealed is None else self.seal.open(sealed).decode("utf-8", "surrogatepass")

    def shut(self, text: str) -> bytes:
        return self.seal.shut(text.encode("utf-8", "surrogatepass"))

    def shut_json(self, value: Any) -> bytes:
        return self.seal.shut(msgspec.json.encode(value))

    def json(self, sealed: bytes | None) -> Any:
        return None if sealed is None else decode_json(self.seal.open(sealed))


def decode_steps(records: Iterable[bytes]) -> tuple[StepRecord, ...]:
    """Decode a journal. Equal records are one: a worker that lost the reply to its write repeats the record."""
    return tuple(_decode_step(record) for record in dict.fromkeys(records))


def dead_run(found: Run) -> DeadLetter:
    return DeadLetter(
        id=found.id,
        what="run",
        trigger=found.trigger,
        key=", ".join(found.event_keys),
        reason=found.error,
        at=found.finished_at or found.created_at,
    )


def refused_event(number: int, feed: str, key: str, reason: str, at: datetime) -> DeadLetter:
    return DeadLetter(id=f"event-{number}", what="event", trigger=feed, key=key, reason=reason, at=at)


def as_recorded(event: Event, event_id: int, feed: str, now: datetime) -> Recorded:
    """The event as a claim would read it from the store: without its verdicts."""
    return Recorded(
        id=event_id,
        feed=feed,
        key=event.key,
        subject=event.subject,
        state=event.state,
        type=event.type,
        occurred_at=event.occurred_at,
        recorded_at=now,
        data=event.data,
    )


def first_claim(intent: Intent, run_id: bytes, trigger: str, recorded: Recorded) -> Claimed:
    """The claim of a run that its commit hands to the caller at once."""
    return Claimed(
        id=run_id.hex(),
        token=1,
        trigger=trigger,
        workflow_rev=intent.workflow_rev,
        attempt=1,
        max_attempts=intent.max_attempts,
        events=(recorded,),
        input=msgspec.json.decode(intent.input) if intent.input else None,
        created_at=recorded.recorded_at,
        alone=not intent.slot,
    )
