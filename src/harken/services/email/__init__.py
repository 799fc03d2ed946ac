"""E-mail by SMTP, through any mail server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.services.email.actions import EmailDestination, destination
from harken.services.email.api import Account, run_session, verify_sign_in
from harken.source import Host, Plugin

__all__ = ["Account", "EmailDestination", "plugin", "whoami"]


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """Sign in, and sign out again."""
    await run_session(account, host.allow_private, verify_sign_in)
    return {"server": account.host, "from": account.sender, "user": account.username}


plugin = Plugin(
    kind="email",
    summary="E-mail by SMTP",
    docs="reference/services/email.md",
    account=Account,
    destination=destination,
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
