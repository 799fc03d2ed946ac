"""A fake PagerDuty account, and the source that reads it."""

from __future__ import annotations

from typing import Any

from harken.services.pagerduty import Account, Incidents, Query
from harken.source import Host
from harken.testing.fakes.pagerduty import PagerDuty

MINE: Any = {"user_id": "PME"}


def account(duty: PagerDuty, token: str = "personal-key", **more: Any) -> Account:
    return Account(token=token, base_url=f"{duty.url}/", **more)


def source(duty: PagerDuty, host: Host, token: str = "personal-key", /, **query: Any) -> Incidents:
    return Incidents(Query.model_validate(query), account(duty, token), host)
