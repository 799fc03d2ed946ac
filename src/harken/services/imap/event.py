"""From a raw mail to an event. Malformed parts never prevent the event."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email import message_from_bytes
from email.message import Message
from hashlib import blake2b

from harken.event import Event
from harken.kit.mail import MailMessage, Part, mail_fields
from harken.kit.mail.message_parts import DEEPEST
from harken.kit.mail.text_decoding import charset_text
from harken.kit.values_from_payload import instant
from harken.services.imap.api import RawMail

__all__ = ["event_of", "received_at"]

TYPE = "imap.message"
_NAMES = ("message-id", "date", "from", "subject")


def event_of(mail: RawMail, folder: str, validity: int, extract: Mapping[str, str]) -> Event:
    letter = letter_of(mail)
    fields = mail_fields(letter, extract)
    name = _subject(letter, mail)
    data = {
        "id": name,
        "uid": mail.uid,
        "uid_validity": validity,
        "folder": folder,
        **fields,
        # \Recent only says whether a program has opened the folder since
        "labels": [flag for flag in mail.flags if flag != "Recent"],
    }
    return Event(subject=name, type=TYPE, data=data, occurred_at=letter.received)


def received_at(mail: RawMail) -> datetime | None:
    """When the server received it, which a sender cannot forge."""
    return instant(mail.came) if mail.came.strip() else None


def letter_of(mail: RawMail) -> MailMessage:
    message = message_from_bytes(mail.data)
    headers: dict[str, list[str]] = {}
    for name, value in message.raw_items():
        headers.setdefault(name.lower(), []).append(_decode_header(value))
    return MailMessage(
        headers=headers, root=_part(message, DEEPEST, mail.size > len(mail.data)), received=received_at(mail)
    )


def _subject(letter: MailMessage, mail: RawMail) -> str:
    """The Message-ID, which stays when uids change, and a digest: some programs give all mails the same id."""
    headers = [" ".join(letter.first(name).split()) for name in _NAMES]
    digest = blake2b(
        "\0".join([*headers, *([] if headers[0] else [str(mail.size)])]).encode("utf-8", "replace"), digest_size=6
    )
    return f"{headers[0].strip('<>')[:200] or 'no-id'}#{digest.hexdigest()}"


def _decode_header(value: object) -> str:
    """A header's text; bytes that are not ASCII are invalid there, but common."""
    text = str(value)
    return text if text.isascii() else charset_text(text.encode("utf-8", "surrogateescape"), "utf-8")


def _part(message: Message, depth: int, cut: bool) -> Part:
    mime = message.get_content_type()
    inner = message.get_payload() if message.is_multipart() and depth else None
    parts = [one for one in inner if isinstance(one, Message)] if isinstance(inner, list) else []
    data = b"" if message.is_multipart() else message.get_payload(decode=True)
    data = data if isinstance(data, bytes) else b""
    filename = _decode_header(message.get_filename() or "")
    return Part(
        mime=mime,
        charset=message.get_content_charset() or "",
        filename=filename,
        # if the mail is cut, the size of its last part is unknown
        size=None if cut and not parts else len(data),
        data=data if mime.startswith("text/") else b"",
        attached=bool(filename) or message.get_content_disposition() == "attachment" or mime == "message/rfc822",
        parts=tuple(_part(one, depth - 1, cut and one is parts[-1]) for one in parts),
    )
