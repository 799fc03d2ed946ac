"""A fake Azure DevOps, and the source that reads it."""

from __future__ import annotations

from typing import Any

from harken.event import Identity
from harken.services import azure_devops
from harken.services.azure_devops import Account, Query
from harken.source import Host, PollSource
from harken.testing.fakes.azure_devops import AzureDevOps

SHOP = "Shop"


def account(board: AzureDevOps, token: str = "reader", organization: str = "acme") -> Account:
    return Account.model_validate({"organization": organization, "token": token, "base_url": f"{board.url}/"})


def source(
    board: AzureDevOps, host: Host, token: str = "reader", /, *, identity: Identity = "once", **query: Any
) -> PollSource:
    asked = Query.model_validate({"projects": SHOP, **query})
    lent = Host(
        http=host.http, clock=host.clock, random=host.random, allow_private=host.allow_private, identity=identity
    )
    return azure_devops.source(asked, account(board, token), lent)


def histories(board: AzureDevOps) -> int:
    """How many requests for the history of a work item there were."""
    return sum(seen.path.endswith("/updates") for seen in board.seen)
