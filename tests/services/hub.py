"""A fake GitHub, and the source that reads it."""

from __future__ import annotations

from typing import Any

from harken.event import Identity
from harken.services import github
from harken.services.github import Account, Query
from harken.source import Host, PollSource
from harken.testing.fakes.github import GitHub

SHOP = "acme/shop"


def account(hub: GitHub, token: str = "classic") -> Account:
    return Account.model_validate({"token": token, "base_url": f"{hub.url}/"})


def source(
    hub: GitHub, host: Host, token: str = "classic", /, *, identity: Identity = "once", **query: Any
) -> PollSource:
    asked = Query.model_validate({"repos": SHOP, **query})
    return github.source(asked, account(hub, token), _as(host, identity))


def histories(hub: GitHub) -> int:
    """How many requests for the history of an issue there were."""
    return sum(seen.path.endswith("/events") for seen in hub.seen)


def _as(host: Host, identity: Identity) -> Host:
    return Host(
        http=host.http, clock=host.clock, random=host.random, allow_private=host.allow_private, identity=identity
    )
