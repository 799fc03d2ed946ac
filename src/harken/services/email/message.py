"""A message as a letter. No header has a line end that somebody else chose, and no address is taken half-understood."""

from __future__ import annotations

import re
from dataclasses import replace
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import TYPE_CHECKING

from harken.errors import NeedsAttention
from harken.kit.messages import cut, message_mark, one_line, title_and_text
from harken.source import Host, Message

if TYPE_CHECKING:
    from harken.services.email.api import Account

__all__ = ["address", "recipients", "written"]

SUBJECT = 150
MOST_RECIPIENTS = 50
# the parsers of the standard library make an address of almost anything
_WRITTEN = re.compile(r""""?(?P<name>[^"<>@,;]*)"? *<(?P<named>[^<>\s]+)>|(?P<plain>[^<>\s]+)""")
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")


def address(text: str) -> Address:
    """The one address in the text, with its name. NeedsAttention when it is none."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None or not text.strip().isprintable():
        raise _wrong()
    local, _, domain = (found["named"] or found["plain"]).rpartition("@")
    try:
        domain = domain.encode("idna").decode("ascii")
    except UnicodeError:
        raise _wrong() from None
    if not local.isascii():
        raise NeedsAttention("an address has letters before the @ that mail servers do not carry", fix="Use another")
    if not _LOCAL.fullmatch(local) or not _DOMAIN.fullmatch(domain) or len(local) > 64:
        raise _wrong()
    return Address(display_name=(found["name"] or "").strip(), username=local, domain=domain)


def recipients(to: str) -> list[str]:
    """The plain addresses in `to`, which are separated by commas; each once."""
    parts = [part for part in re.split(r"[,;]", to) if part.strip()]
    if not parts or len(parts) > MOST_RECIPIENTS:
        what = f"`to` has more than {MOST_RECIPIENTS} addresses" if parts else "`to` has no address"
        raise NeedsAttention(what, fix="Write addresses, separated by commas")
    return list(dict.fromkeys(address(part).addr_spec for part in parts))


def written(message: Message, to: list[str], account: Account, host: Host) -> EmailMessage:
    """The letter, with a Message-ID that is the same for every try."""
    sender = address(account.sender)
    letter = EmailMessage(policy=SMTP)
    letter["From"] = sender
    letter["To"] = tuple(address(one) for one in to)
    whole = title_and_text(message)
    letter["Subject"] = cut(one_line(whole.strip().splitlines()[0]), SUBJECT)
    letter["Date"] = format_datetime(host.clock.now())
    letter["Message-ID"] = f"<{message_mark(message, host)}@{sender.domain}>"
    # out-of-office replies to a machine help nobody
    letter["Auto-Submitted"] = "auto-generated"
    text = title_and_text(replace(message, title="")) if message.text.strip() else whole
    letter.set_content(text, cte="base64")
    return letter


def _wrong() -> NeedsAttention:
    return NeedsAttention("this is no e-mail address", fix="Write name@example.com, several separated by commas")
