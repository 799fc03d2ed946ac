"""A fake Jira to read from, and short words for reading it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from harken.event import Identity
from harken.services.jira import Account, Issues, Query
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.jira import TOKEN, Jira


def account(jira: Jira, **changes: Any) -> Account:
    """The account of `me`, signed in as this kind of Jira wants it."""
    signed = {"email": "me@example.com", "token": TOKEN} if jira.cloud else {"token": TOKEN}
    return Account.model_validate({"base_url": jira.url, **signed, **changes})


def source(jira: Jira, host: Host, *, identity: Identity = "once", **query: Any) -> Issues:
    return Issues(Query.model_validate(query), account(jira), replace(host, identity=identity))


@asynccontextmanager
async def serving(clock: HandClock, **options: Any) -> AsyncIterator[Jira]:
    jira = Jira(clock, **options)
    async with jira.serve():
        yield jira
