"""E-mail by SMTP: any mail server that lets us in. What is said to it is in `smtp`, what is written in `letter`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.services.email.api import Account, attempt, greet, send
from harken.services.email.message import recipients, written
from harken.source import Host, Message, Plugin

__all__ = ["Account", "Mail", "plugin"]


class Mail:
    """Sends letters, to all who are named or to nobody. Every try has the same Message-ID: mailboxes show it once."""

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._host = host

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        to = recipients(message.to)
        letter = written(message, to, self._account, self._host)
        await attempt(self._account, self._host.allow_private, lambda smtp: send(smtp, self._account, to, letter))
        return {"message_id": str(letter["Message-ID"]), "to": to}


def _destination(query: object, account: Account, host: Host) -> Mail:
    return Mail(account, host)


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """Sign in, and go again."""
    await attempt(account, host.allow_private, greet)
    return {"server": account.host, "from": account.sender, "user": account.username}


plugin = Plugin(
    kind="email",
    summary="E-mail by SMTP",
    docs="reference/services/email.md",
    account=Account,
    destination=_destination,
    whoami=whoami,
    environment={
        "SMTP_HOST": "host",
        "SMTP_FROM": "sender",
        "SMTP_PORT": "port",
        "SMTP_SECURITY": "security",
        "SMTP_USERNAME": "username",
        "SMTP_PASSWORD": "password",
    },
)
