"""A fake GitLab, and the source that reads it."""

from __future__ import annotations

from typing import Any

from harken.event import Identity
from harken.services.gitlab import Account, Issues, Query
from harken.source import Host
from harken.testing.fakes.gitlab import GitLab

SHOP = "acme/web/shop"


def account(lab: GitLab, token: str = "glpat-full") -> Account:
    return Account.model_validate({"token": token, "base_url": f"{lab.url}/api/v4/"})


def source(
    lab: GitLab, host: Host, token: str = "glpat-full", /, *, identity: Identity = "once", **query: Any
) -> Issues:
    here = Host(
        http=host.http, clock=host.clock, random=host.random, allow_private=host.allow_private, identity=identity
    )
    return Issues(Query.model_validate({"projects": SHOP, **query}), account(lab, token), here)
