"""Events: what happened according to a source, and what was decided about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

__all__ = ["Event", "Identity", "Known", "Outcome", "Recorded", "Span", "Verdict"]

Identity = Literal["once", "change", "transition"]
"""What makes an occurrence new: a new subject, a new version of a subject, or each change of its state."""

Outcome = Literal["fired", "filtered", "duplicate", "before_start", "gathered", "held", "skipped", "error", "unmatched"]


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One occurrence. `subject` names the object, `state` its version or status, `key` the occurrence.

    An undated item (`occurred_at` is None) counts as having happened when it was read.
    `raw` may hold the JSON of `data` as it was received; it is stored unchanged.
    """

    subject: str
    type: str
    data: Mapping[str, Any]
    key: str = ""
    state: str | None = None
    occurred_at: datetime | None = None
    raw: bytes = b""

    def payload(self) -> bytes:
        """The JSON bytes that the store keeps."""
        return self.raw or msgspec.json.encode(self.data)


class Known(msgspec.Struct, frozen=True, gc=False):
    """What a feed remembers of a subject: its last state, and how many states it has had."""

    state: str | None
    seq: int


BANK_LISTS: Mapping[Outcome, str] = {
    "fired": "fired",
    "gathered": "fired",
    "held": "fired",
    "filtered": "filtered",
    "error": "error",
}
"""In which list of the event bank an event is by its verdict. What was gathered or held has started a run as well."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What was decided for one event and one trigger, and why."""

    trigger: str
    outcome: Outcome
    reason: str = ""
    run_id: str = ""


class Span(msgspec.Struct, frozen=True, gc=False):
    """A span of a source's time that has been read completely."""

    start: datetime
    end: datetime


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An event as the store holds it, with its verdicts."""

    id: int
    feed: str
    key: str
    subject: str
    state: str | None
    type: str
    occurred_at: datetime | None
    recorded_at: datetime
    data: Any
    verdicts: tuple[Verdict, ...] = ()
    repeats: int = 0
    last_repeat_at: datetime | None = None
