"""Asks services whether what a query names is there, so that a typo is found by a test and not by silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from harken.errors import HarkenError, NeedsAttention, RetryLater, addressed
from harken.feed import Feed
from harken.http.redact import hush, scrub
from harken.source import Checked, Host, Plugin

if TYPE_CHECKING:
    from harken.config.loaded import Account, Loaded

__all__ = ["asked", "checked"]

T = TypeVar("T")

PATIENCE_SECONDS = 30.0


async def checked(
    feed: Feed, loaded: Loaded, plugins: Mapping[str, Plugin], lend: Callable[[Account], Host]
) -> Checked | None:
    """What the service says about the names in the feed's query; None where it cannot be asked."""
    plugin = plugins.get(feed.kind)
    account = loaded.integrations.get(feed.integration)
    query = loaded.queries.get(feed.name)
    if plugin is None or plugin.check is None or account is None or query is None or feed.way != "poll":
        return None
    answer = plugin.check(query, account.model, lend(account))
    said = await asked(answer, loaded, f"the check of {feed.name}", account)
    return Checked(found=scrub(dict(said.found), loaded.secrets), unknown=scrub(list(said.unknown), loaded.secrets))


async def asked(
    answer: Awaitable[T], loaded: Loaded, what: str, account: Account, *, seconds: float = PATIENCE_SECONDS
) -> T:
    """The service's answer, within a time limit; its errors tell nothing secret."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except HarkenError as error:
        raise hush(addressed(error, account.kind, account.name), loaded.secrets) from None
    except TimeoutError:
        raise RetryLater(f"{what} took longer than {seconds:.0f} s", reason="timeout") from None
    except Exception as error:
        # its text may quote anything
        message = f"{what} broke with {type(error).__name__}"
        raise NeedsAttention(message, fix="This is a fault of the service's plugin: tell its author") from None
