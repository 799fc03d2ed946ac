"""A mail as it came over the wire, as an event. Whatever is broken in it, it is still one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email import message_from_bytes
from email.message import Message
from hashlib import blake2b

from harken.event import Event
from harken.kit.fields import instant
from harken.kit.mail import MailMessage, Part, mail_fields
from harken.kit.mail.message import DEEPEST
from harken.kit.mail.text import charset_text
from harken.services.imap.api import Raw

__all__ = ["came_at", "event_of", "letter_of"]

TYPE = "imap.message"
_NAMES = ("message-id", "date", "from", "subject")


def event_of(raw: Raw, folder: str, validity: int, extract: Mapping[str, str]) -> Event:
    letter = letter_of(raw)
    fields = mail_fields(letter, extract)
    name = _name(letter, raw)
    data = {
        "id": name,
        "uid": raw.uid,
        "uid_validity": validity,
        "folder": folder,
        **fields,
        # of no use to anybody: it says whether some program has looked into the folder
        "labels": [flag for flag in raw.flags if flag != "Recent"],
    }
    return Event(subject=name, type=TYPE, data=data, occurred_at=letter.received)


def came_at(raw: Raw) -> datetime | None:
    """When the server took it, which no sender can choose."""
    return instant(raw.came) if raw.came.strip() else None


def letter_of(raw: Raw) -> MailMessage:
    message = message_from_bytes(raw.data)
    headers: dict[str, list[str]] = {}
    for name, value in message.raw_items():
        headers.setdefault(name.lower(), []).append(_unescaped(value))
    return MailMessage(headers=headers, root=_part(message, DEEPEST, raw.size > len(raw.data)), received=came_at(raw))


def _name(letter: MailMessage, raw: Raw) -> str:
    """Its Message-ID, which outlives the numbers of a folder, and a digest: some programs give one id to all mails."""
    said = [" ".join(letter.first(name).split()) for name in _NAMES]
    digest = blake2b(
        "\0".join([*said, *([] if said[0] else [str(raw.size)])]).encode("utf-8", "replace"), digest_size=6
    )
    return f"{said[0].strip('<>')[:200] or 'no-id'}#{digest.hexdigest()}"


def _unescaped(value: object) -> str:
    """A header in which somebody wrote bytes that are no ASCII, although none are allowed."""
    text = str(value)
    return text if text.isascii() else charset_text(text.encode("utf-8", "surrogateescape"), "utf-8")


def _part(message: Message, depth: int, cut: bool) -> Part:
    mime = message.get_content_type()
    inner = message.get_payload() if message.is_multipart() and depth else None
    parts = [one for one in inner if isinstance(one, Message)] if isinstance(inner, list) else []
    data = b"" if message.is_multipart() else message.get_payload(decode=True)
    data = data if isinstance(data, bytes) else b""
    filename = _unescaped(message.get_filename() or "")
    return Part(
        mime=mime,
        charset=message.get_content_charset() or "",
        filename=filename,
        # the end of it was not asked for, if it is the last
        size=None if cut and not parts else len(data),
        data=data if mime.startswith("text/") else b"",
        attached=bool(filename) or message.get_content_disposition() == "attachment" or mime == "message/rfc822",
        parts=tuple(_part(one, depth - 1, cut and one is parts[-1]) for one in parts),
    )
