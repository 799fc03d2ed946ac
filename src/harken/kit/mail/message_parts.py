"""A mail as a tree of parts, whichever service parsed it, and the fields of its event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from harken.kit.html import html_to_text
from harken.kit.mail.field_patterns import LONGEST, extract_fields
from harken.kit.mail.sender_address import domain_of, sender_of
from harken.kit.mail.text_decoding import charset_text, header_text
from harken.kit.message_text import cut, one_line
from harken.kit.safe_text import clean_text
from harken.kit.values_from_payload import instant

__all__ = ["DEEPEST", "MailMessage", "Part", "body_text", "mail_fields"]

# levels of nested parts that are read
DEEPEST = 30
MOST_ATTACHMENTS = 100
LONGEST_SNIPPET = 200
# bytes that are decoded of one part: enough for the longest body, also at four bytes a character
LARGEST = 1_000_000


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part. `size` is None where it is unknown; `attached`: it is an attachment, no part of the text."""

    mime: str = "text/plain"
    charset: str = ""
    filename: str = ""
    size: int | None = 0
    data: bytes = b""
    attached: bool = False
    parts: tuple[Part, ...] = ()


class MailMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Header names are in lower case, their values raw and in order.

    `utf8`: texts may have been converted to UTF-8, whatever charset a part names.
    """

    headers: Mapping[str, Sequence[str]]
    root: Part
    received: datetime | None = None
    snippet: str = ""
    utf8: bool = False

    def first(self, name: str) -> str:
        return next(iter(self.headers.get(name, ())), "")


def mail_fields(message: MailMessage, extract: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of an event, with what the expressions find in the mail."""
    body = cut(body_text(message.root, utf8=message.utf8), LONGEST, len)
    snippet = message.snippet or one_line(body[: 2 * LONGEST_SNIPPET])[:LONGEST_SNIPPET]
    sender = sender_of(message.headers.get("from", ()))
    return {
        "message_id": header_text(message.first("message-id")),
        "subject": header_text(message.first("subject")),
        "from": header_text(message.first("from")),
        "sender": sender,
        "sender_domain": domain_of(sender),
        "to": header_text(", ".join(message.headers.get("to", ()))),
        "cc": header_text(", ".join(message.headers.get("cc", ()))),
        "date": _date(message),
        "snippet": snippet,
        "body": body,
        "attachments": _attachments(message.root),
        **extract_fields(extract, (body, snippet)),
    }


def _date(message: MailMessage) -> str:
    """The Date header, or when the mail was received."""
    sent = instant(message.first("date")) or message.received
    return sent.astimezone(UTC).isoformat().replace("+00:00", "Z") if sent else ""


def body_text(part: Part, *, utf8: bool = False) -> str:
    """Return the text of a mail: its plain text where it has one, else the text of its HTML."""
    return _text(part, utf8, DEEPEST).strip()


def _text(part: Part, utf8: bool, depth: int) -> str:
    if part.attached or not depth:
        return ""
    if part.parts and part.mime == "multipart/alternative":
        # RFC 2046: the plainest first, the richest last
        plainest = sorted(reversed(part.parts), key=lambda one: one.mime != "text/plain")
        return next((text for one in plainest if (text := _text(one, utf8, depth - 1)).strip()), "")
    if part.parts:
        texts = [_text(one, utf8, depth - 1).strip() for one in part.parts]
        return "\n\n".join(text for text in texts if text)
    if part.mime not in ("text/plain", "text/html"):
        return ""
    text = charset_text(part.data[:LARGEST], part.charset, utf8_first=utf8)
    return html_to_text(text) if part.mime == "text/html" else clean_text(text)


def _attachments(part: Part) -> list[dict[str, Any]]:
    found = [one for one in _walk(part, DEEPEST) if one.attached or one.filename]
    return [
        {"name": header_text(one.filename) or "unnamed", "type": one.mime, "size": one.size}
        for one in found[:MOST_ATTACHMENTS]
    ]


def _walk(part: Part, depth: int) -> Iterator[Part]:
    yield part
    if depth and not part.attached:
        for one in part.parts:
            yield from _walk(one, depth - 1)
