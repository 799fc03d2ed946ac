"""A fake GitLab, and the source that reads it."""

from __future__ import annotations

from typing import Any

from harken.event import Identity
from harken.services import gitlab
from harken.services.gitlab import Account, Query
from harken.source import Host, PollSource
from harken.testing.fakes.gitlab import GitLab

SHOP = "acme/web/shop"


def account(lab: GitLab, token: str = "glpat-full") -> Account:
    return Account.model_validate({"token": token, "base_url": f"{lab.url}/api/v4/"})


def source(
    lab: GitLab, host: Host, token: str = "glpat-full", /, *, identity: Identity = "once", **query: Any
) -> PollSource:
    here = Host(
        http=host.http, clock=host.clock, random=host.random, allow_private=host.allow_private, identity=identity
    )
    return gitlab.source(Query.model_validate({"projects": SHOP, **query}), account(lab, token), here)
