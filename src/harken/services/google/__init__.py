"""A Google account, which Gmail and Google Calendar sign in with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.kit.values_from_payload import text_of
from harken.services.gmail.actions import ACTIONS
from harken.services.google.api import GoogleAccount, GoogleClient
from harken.services.google.consent import CONSENT
from harken.source import Host, Plugin

__all__ = ["GoogleAccount", "GoogleClient", "plugin", "whoami"]


async def whoami(account: GoogleAccount, host: Host) -> Mapping[str, Any]:
    """The user who gave the consent."""
    user = await GoogleClient.of(account, host).get(account.address("openidconnect.googleapis.com", "/v1/userinfo"))
    return {"email": text_of(user, "email") or "", "id": text_of(user, "sub") or ""}


plugin = Plugin(
    kind="google",
    summary="A Google account, for Gmail and Google Calendar",
    docs="reference/services/google.md",
    account=GoogleAccount,
    actions=ACTIONS,
    whoami=whoami,
    consent=CONSENT,
    environment={
        "GOOGLE_CLIENT_ID": "client_id",
        "GOOGLE_CLIENT_SECRET": "client_secret",
        "GOOGLE_REFRESH_TOKEN": "refresh_token",
    },
)
