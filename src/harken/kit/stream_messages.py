"""Messages of brokers: how one becomes an event, or is rejected with a reason. Every stream has the same settings."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec
from pydantic import Field

from harken.event import Event
from harken.kit.models import QueryModel
from harken.kit.values_from_payload import instant, text_of
from harken.language.dotted_paths import lookup
from harken.source import Rejected

__all__ = ["MessageQuery", "MessageReader"]

METADATA = "_message"
"""Where an event has what the broker says about its message, with `metadata: true`."""
LONGEST_NAME = 1_000
MOST_HEADERS = 65_536
SHOWN_BYTES = 65_536
"""So much of a rejected message is kept with its dead letter."""

_decode = msgspec.json.Decoder().decode


class MessageQuery(QueryModel):
    """How messages become events, and how many are taken at once."""

    format: Literal["json", "text", "binary"] = Field(
        "json", description="what messages are; text and binary become the field `text` or `base64`"
    )
    id_field: str = Field("", description="dotted path of an id in the message; else the broker's own name for it")
    type: str = Field("", description="type of events that do not name one")
    type_field: str = Field("", description="dotted path of the type in the message")
    subject_field: str = Field("", description="dotted path of what it is about; else the message's key, or its id")
    time_field: str = Field("", description="dotted path of when it happened; else the broker's time")
    metadata: bool = Field(False, description=f"add headers and position as the field `{METADATA}`")
    max_bytes: int = Field(1_000_000, gt=0, le=100_000_000, description="larger messages are rejected")
    max_in_flight: int = Field(1_000, ge=1, le=100_000, description="most messages taken and not yet acknowledged")
    batch: int = Field(200, ge=1, le=10_000, description="most messages in one commit")


class MessageReader:
    """Makes events of messages. `type` is the type of an event whose message names none."""

    def __init__(self, query: MessageQuery, type: str) -> None:
        self._query = query
        self._type = query.type or type

    def read(
        self,
        name: str,
        body: bytes,
        *,
        about: str = "",
        type: str = "",
        at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Event | Rejected:
        """`name` is the broker's own name for this message, the same when it is delivered again; `about` its key.

        `type` is what the broker calls its type, if it does.
        """
        try:
            return self._read(name, body, about, type, at, metadata or {})
        except _Unreadable as error:
            return self.reject(name, body, str(error), at=at)

    def reject(self, name: str, body: bytes, reason: str, *, at: datetime | None = None) -> Rejected:
        """A dead letter with the beginning of the message."""
        data = {"size": len(body), "base64": b64encode(body[:SHOWN_BYTES]).decode()}
        event = Event(subject=name, key=name, type=self._type, data=data, occurred_at=at)
        return Rejected(event=event, reason=reason)

    def _read(
        self, name: str, body: bytes, about: str, type_name: str, at: datetime | None, metadata: Mapping[str, Any]
    ) -> Event | Rejected:
        query = self._query
        if len(body) > query.max_bytes:
            raise _Unreadable(f"it is larger than {query.max_bytes:,} bytes (max_bytes)")
        data, raw = self._data(body)
        if query.metadata:
            data, raw = {**data, METADATA: _limited(metadata)}, b""
        key = self._id(data) or name
        subject = _named(text_of(data, query.subject_field) if query.subject_field else about, "its subject") or key
        kind = _named((text_of(data, query.type_field) if query.type_field else None) or type_name, "its type")
        happened = instant(lookup(data, query.time_field)) if query.time_field else None
        return Event(
            subject=subject,
            # several messages may be about the same thing: their names tell them apart
            state=key if subject != key else None,
            type=kind or self._type,
            data=data,
            key=key,
            occurred_at=happened or at,
            raw=raw,
        )

    def _data(self, body: bytes) -> tuple[dict[str, Any], bytes]:
        """The message as an object, and its JSON where that is what was sent."""
        if self._query.format == "binary":
            return {"base64": b64encode(body).decode()}, b""
        try:
            if self._query.format == "text":
                return {"text": body.decode()}, b""
            value = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            wanted = "JSON" if self._query.format == "json" else "UTF-8"
            raise _Unreadable(f"it is not {wanted}; format: says what messages are") from None
        except RecursionError:
            raise _Unreadable("its JSON is nested too deeply") from None
        return (value, body) if type(value) is dict else ({"value": value}, b"")

    def _id(self, data: Mapping[str, Any]) -> str:
        if not self._query.id_field:
            return ""
        found = _named(text_of(data, self._query.id_field), "its id")
        if not found:
            raise _Unreadable(f"it has no id at {self._query.id_field!r} (id_field)")
        return found


class _Unreadable(Exception):
    """Why a message cannot become an event."""


def _named(text: str | None, what: str) -> str:
    if text and len(text) > LONGEST_NAME:
        raise _Unreadable(f"{what} is longer than {LONGEST_NAME:,} characters")
    return text or ""


def _limited(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(msgspec.json.encode(metadata)) > MOST_HEADERS:
        raise _Unreadable(f"its headers are larger than {MOST_HEADERS:,} bytes")
    return metadata
