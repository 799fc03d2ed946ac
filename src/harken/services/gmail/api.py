"""The calls of Gmail's API that we use: https://developers.google.com/workspace/gmail/api/reference/rest"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from harken.errors import Deferred, RetryLater
from harken.kit.values_from_payload import text_of
from harken.services.google.api import GMAIL, GMAIL_READONLY, GoogleAccount, GoogleClient, expect_object
from harken.source import Host

__all__ = ["Gmail"]

PAGE = 500
CONCURRENT = 5
LARGEST_FULL = 10_000_000
LABELS_SECONDS = 3_600.0
_UNREAD = "UNREAD"
_SEARCH = "Check the search, as you would type it into Gmail's own field"


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """One page of ids, newest first; `following` is empty on the last. `stale`: Gmail refused the page token."""

    ids: tuple[str, ...] = ()
    following: str = ""
    stale: bool = False


class Gmail:
    """The mailbox of one account."""

    def __init__(self, account: GoogleAccount, host: Host) -> None:
        self._client = GoogleClient.of(account, host)
        self._clock = host.clock
        self._url = f"{account.gmail_url}/users/me"
        self._names: dict[str, str] = {}
        self._named_at = float("-inf")

    async def search(self, query: str, page: str = "", most: int = PAGE) -> Listing:
        """One page of the ids that a search finds."""
        params: dict[str, str | int] = {"q": query, "maxResults": most, **({"pageToken": page} if page else {})}
        reply = await self._client.request("GET", f"{self._url}/messages", params=params, scope=GMAIL_READONLY)
        if reply.status == 400 and page:
            return Listing(stale=True)
        document = expect_object(reply, fix=_SEARCH)
        rows = document.get("messages")
        ids = [text_of(row, "id") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        return Listing(ids=tuple(id for id in ids if id), following=text_of(document, "nextPageToken") or "")

    async def get_all(self, ids: Sequence[str], *, texts: bool = True) -> list[tuple[str, dict[str, Any]]]:
        """The mails with these ids, in their order, without those deleted meanwhile; a few requests at a time."""
        fetched: list[tuple[str, dict[str, Any]]] = []
        for start in range(0, len(ids), CONCURRENT):
            some = ids[start : start + CONCURRENT]
            found = await _gather([self._full(id) if texts else self.get(id, "metadata") for id in some])
            fetched += [(id, message) for id, message in zip(some, found, strict=True) if message is not None]
        return fetched

    async def get(self, id: str, format: str = "full") -> dict[str, Any] | None:
        """One mail; None if it does not exist."""
        url = f"{self._url}/messages/{quote(id, safe='')}"
        reply = await self._client.request("GET", url, params={"format": format}, scope=GMAIL_READONLY)
        return None if reply.status == 404 else expect_object(reply)

    async def _full(self, id: str) -> dict[str, Any] | None:
        try:
            return await self.get(id)
        except Deferred:
            raise
        except RetryLater as error:
            if error.reason == "rate_limited":
                raise
            # a mail that is too large to fetch must not stop all that come after it: take its headers
            short = await self.get(id, "minimal")
            if short is not None and _size(short) <= LARGEST_FULL:
                raise
            return short and await self.get(id, "metadata")

    async def mark(self, id: str, *, unread: bool) -> dict[str, Any] | None:
        """Mark a mail as read or unread; None if it does not exist."""
        url = f"{self._url}/messages/{quote(id, safe='')}/modify"
        change = {"addLabelIds" if unread else "removeLabelIds": [_UNREAD]}
        reply = await self._client.request("POST", url, json=change, scope=GMAIL)
        if reply.status == 404:
            return None
        labels = expect_object(reply).get("labelIds")
        return {"id": id, "unread": _UNREAD in labels if isinstance(labels, list) else unread}

    async def labels(self) -> list[dict[str, Any]]:
        document = expect_object(await self._client.request("GET", f"{self._url}/labels", scope=GMAIL_READONLY))
        rows = document.get("labels")
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    async def label_names(self, wanted: Sequence[str]) -> Mapping[str, str]:
        """The names of labels by id, cached; fetched if a wanted one is unknown, or after an hour."""
        old = self._clock.monotonic() - self._named_at > LABELS_SECONDS
        if any(id not in self._names for id in wanted) if not old else wanted:
            rows = await self.labels()
            self._names = {str(row.get("id")): text_of(row, "name") or str(row.get("id")) for row in rows}
            self._named_at = self._clock.monotonic()
        return self._names


def _size(message: Mapping[str, Any]) -> int:
    size = message.get("sizeEstimate")
    return size if isinstance(size, int) else 0


async def _gather(requests: Sequence[Any]) -> list[Any]:
    tasks = [asyncio.ensure_future(one) for one in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
