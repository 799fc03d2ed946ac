"""The destination: a message as an e-mail. Text from outside cannot add headers or recipients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any

from harken.errors import NeedsAttention
from harken.kit.message_text import cut, message_mark, one_line, title_and_text
from harken.services.email.api import Account, parse_address, run_session, send
from harken.source import Host, Message

__all__ = ["EmailDestination", "destination"]

SUBJECT = 150
MOST_RECIPIENTS = 50


class EmailDestination:
    """Sends a mail to all recipients or to none. Every try has the same Message-ID, so mailboxes show it once."""

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._host = host

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        to = recipients(message.to)
        mail = compose(message, to, self._account, self._host)
        await run_session(self._account, self._host.allow_private, lambda smtp: send(smtp, self._account, to, mail))
        return {"message_id": str(mail["Message-ID"]), "to": to}


def destination(query: object, account: Account, host: Host) -> EmailDestination:
    return EmailDestination(account, host)


def recipients(to: str) -> list[str]:
    """The plain addresses in `to`, which are separated by commas; each once."""
    parts = [part for part in re.split(r"[,;]", to) if part.strip()]
    if not parts or len(parts) > MOST_RECIPIENTS:
        what = f"`to` has more than {MOST_RECIPIENTS} addresses" if parts else "`to` has no address"
        raise NeedsAttention(what, fix="Write addresses, separated by commas")
    return list(dict.fromkeys(parse_address(part).addr_spec for part in parts))


def compose(message: Message, to: list[str], account: Account, host: Host) -> EmailMessage:
    """The mail, with a Message-ID that is the same for every try."""
    sender = parse_address(account.sender)
    mail = EmailMessage(policy=SMTP)
    mail["From"] = sender
    mail["To"] = tuple(parse_address(one) for one in to)
    whole = title_and_text(message)
    mail["Subject"] = cut(one_line(whole.strip().splitlines()[0]), SUBJECT)
    mail["Date"] = format_datetime(host.clock.now())
    mail["Message-ID"] = f"<{message_mark(message, host)}@{sender.domain}>"
    # suppresses out-of-office replies
    mail["Auto-Submitted"] = "auto-generated"
    text = title_and_text(replace(message, title="")) if message.text.strip() else whole
    mail.set_content(text, cte="base64")
    return mail
