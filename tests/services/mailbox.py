"""A fake mailbox in Gmail, and how it is read."""

from __future__ import annotations

from typing import Any

from harken.event import Event
from harken.services.gmail import Mailbox, Query
from harken.services.google.api import GoogleAccount
from harken.source import Host
from harken.testing.fakes.gmail import FakeGmail
from tests.services.reading import events, read

DAY = 86_400.0


def mailbox(gmail: FakeGmail, host: Host, query: str = "is:unread", **more: Any) -> Mailbox:
    account = GoogleAccount.model_validate(gmail.account())
    return Mailbox(Query.model_validate({"query": query, **more}), account, host)


async def one(gmail: FakeGmail, host: Host, **query: Any) -> Event:
    """The only mail there is."""
    (event,) = events(await read(mailbox(gmail, host, **query)))
    return event
