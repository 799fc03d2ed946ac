"""From Singer's messages to events. Pure functions of a line and of the SCHEMA messages before it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec

from harken.errors import NeedsAttention, RetryLater
from harken.event import Event
from harken.kit.values_from_payload import instant

__all__ = ["Stream", "event_of", "parse_message", "stream_of"]

# fields that differ in every run although the row is the same; _sdc_deleted_at does not
_VOLATILE = frozenset(
    {
        "_sdc_batched_at",
        "_sdc_extracted_at",
        "_sdc_received_at",
        "_sdc_sequence",
        "_sdc_sync_started_at",
        "_sdc_table_version",
    }
)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a tap; which fields it has depends on its type."""

    type: str
    stream: str = ""
    record: dict[str, Any] | None = None
    value: Any = None
    key_properties: list[str] | None = None
    bookmark_properties: list[str] | str | None = None


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that identify a row of a stream, and the field that changes with it."""

    keys: tuple[str, ...] = ()
    bookmark: str = ""


def parse_message(line: bytes, name: str) -> Message:
    """The message in a line of stdout; raises for anything else."""
    try:
        return msgspec.json.decode(line, type=Message)
    except (msgspec.MsgspecError, RecursionError):
        fix = "Only messages belong on a tap's stdout: run it by hand and look"
        raise RetryLater(f"{name} wrote a line that is not a Singer message", fix=fix) from None


def stream_of(message: Message, keys: Mapping[str, Sequence[str]]) -> Stream:
    """The stream of a SCHEMA message; the query's `keys` have precedence."""
    marks = message.bookmark_properties or []
    bookmark = marks if isinstance(marks, str) else marks[0] if len(marks) == 1 else ""
    named = keys.get(message.stream) or message.key_properties or ()
    return Stream(keys=tuple(named), bookmark=bookmark)


def event_of(message: Message, stream: Stream, name: str) -> Event:
    """The event of a RECORD. Its state is the row's bookmark, or without one a digest of its content."""
    record = message.record
    if record is None or not message.stream:
        raise NeedsAttention(f"{name} wrote a RECORD without a stream or a record", fix="Tell the author of the tap")
    content = _digest({key: value for key, value in record.items() if key not in _VOLATILE})
    mark = record.get(stream.bookmark) if stream.bookmark else None
    return Event(
        subject=f"{message.stream}/{_key(record, stream.keys) or content}",
        type=message.stream,
        data={"_stream": message.stream, **record},
        state=content if mark is None else _text(mark),
        occurred_at=_when(mark),
    )


def _key(record: Mapping[str, Any], keys: Sequence[str]) -> str:
    values = [record.get(key) for key in keys]
    if not values or any(value is None for value in values):
        return ""
    # encoded as a list, so that "a/b" and "c" differ from "a" and "b/c"
    return _text(values[0]) if len(values) == 1 else msgspec.json.encode(values).decode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()


def _when(mark: Any) -> datetime | None:
    """When the row changed: only for a text with a zone. A number may mean anything."""
    return instant(mark) if isinstance(mark, str) and _TIME.fullmatch(mark) else None


def _digest(value: Any) -> str:
    return blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=12).hexdigest()
