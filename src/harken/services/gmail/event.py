"""From a message of Gmail's API to an event. Missing or malformed parts never prevent the event."""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from harken.event import Event
from harken.kit.mail import MailMessage, Part, mail_fields
from harken.kit.mail.message_parts import DEEPEST
from harken.kit.message_text import one_line
from harken.kit.values_from_payload import text_of
from harken.language.dotted_paths import lookup

__all__ = ["event_of", "received_at"]

TYPE = "gmail.message"
_CHARSET = re.compile(r'charset\s*=\s*"?([\w.:+-]+)', re.IGNORECASE)
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9_-]")


def event_of(id: str, message: Mapping[str, Any], labels: Mapping[str, str], extract: Mapping[str, str]) -> Event:
    """The event of a message; `labels` has the names of the user's own labels by id."""
    named = [label for label in _list(message.get("labelIds")) if isinstance(label, str)]
    data = {
        "id": id,
        "thread_id": text_of(message, "threadId") or "",
        **mail_fields(letter_of(message), extract),
        "labels": [labels.get(label, label) for label in named],
    }
    return Event(subject=id, type=TYPE, data=data, occurred_at=received_at(message))


def received_at(message: Mapping[str, Any]) -> datetime | None:
    """When Google received it, which a sender cannot forge."""
    try:
        moment = datetime.fromtimestamp(int(text_of(message, "internalDate") or "") / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment


def letter_of(message: Mapping[str, Any]) -> MailMessage:
    payload = message.get("payload")
    payload = payload if isinstance(payload, dict) else {}
    return MailMessage(
        headers=_headers(payload),
        root=_part(payload, DEEPEST),
        received=received_at(message),
        # Gmail escapes the snippet as HTML
        snippet=one_line(html.unescape(text_of(message, "snippet") or "")),
        utf8=True,
    )


def _headers(payload: Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in _list(payload.get("headers")):
        name = text_of(entry, "name") if isinstance(entry, dict) else None
        if name:
            found.setdefault(name.lower(), []).append(text_of(entry, "value") or "")
    return found


def _part(payload: Mapping[str, Any], depth: int) -> Part:
    headers, mime = _headers(payload), (text_of(payload, "mimeType") or "text/plain").lower()
    filename = text_of(payload, "filename") or ""
    disposition = next(iter(headers.get("content-disposition", ())), "").strip().lower()
    charset = _CHARSET.search(next(iter(headers.get("content-type", ())), ""))
    inner = [one for one in _list(payload.get("parts")) if isinstance(one, dict)] if depth else []
    size = lookup(payload, "body.size")
    return Part(
        mime=mime,
        charset=charset[1] if charset else "",
        filename=filename,
        size=size if isinstance(size, int) else None,
        data=_decode(text_of(payload, "body.data") or "") if mime.startswith("text/") else b"",
        attached=bool(filename) or disposition.startswith("attachment") or mime == "message/rfc822",
        parts=tuple(_part(one, depth - 1) for one in inner),
    )


def _decode(data: str) -> bytes:
    clean = _NOT_BASE64.sub("", data.replace("+", "-").replace("/", "_"))
    try:
        return base64.urlsafe_b64decode(clean[: len(clean) - (len(clean) % 4 == 1)] + "=" * (-len(clean) % 4))
    except binascii.Error:
        return b""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
