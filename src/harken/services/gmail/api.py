"""Gmail's API as far as we use it: https://developers.google.com/workspace/gmail/api/reference/rest"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from harken.errors import Deferred, RetryLater
from harken.kit.fields import text_of
from harken.services.google.api import GMAIL, GMAIL_READONLY, GoogleAccount, GoogleClient, told
from harken.source import Host

__all__ = ["PAGE", "Gmail", "Listing"]

PAGE = 500
AT_ONCE = 5
HUGE = 10_000_000
LABELS_SECONDS = 3_600.0
_UNREAD = "UNREAD"
_SEARCH = "Check the search, as you would type it into Gmail's own field"


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """One page of ids, newest first; `following` is empty on the last. `stale`: Gmail forgot where the page began."""

    ids: tuple[str, ...] = ()
    following: str = ""
    stale: bool = False


class Gmail:
    """The mailbox of one account."""

    def __init__(self, account: GoogleAccount, host: Host) -> None:
        self._client = GoogleClient.of(account, host)
        self._clock = host.clock
        self._home = f"{account.gmail_url}/users/me"
        self._names: dict[str, str] = {}
        self._named_at = float("-inf")

    async def search(self, query: str, page: str = "", most: int = PAGE) -> Listing:
        """One page of what a search finds."""
        params: dict[str, str | int] = {"q": query, "maxResults": most, **({"pageToken": page} if page else {})}
        reply = await self._client.request("GET", f"{self._home}/messages", params=params, scope=GMAIL_READONLY)
        if reply.status == 400 and page:
            return Listing(stale=True)
        document = told(reply, fix=_SEARCH)
        rows = document.get("messages")
        ids = [text_of(row, "id") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        return Listing(ids=tuple(id for id in ids if id), following=text_of(document, "nextPageToken") or "")

    async def get_all(self, ids: Sequence[str], *, texts: bool = True) -> list[tuple[str, dict[str, Any]]]:
        """The mails with these ids, in their order, a few at a time; those that were deleted meanwhile are left out."""
        got: list[tuple[str, dict[str, Any]]] = []
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            found = await _together([self._full(id) if texts else self.get(id, "metadata") for id in some])
            got += [(id, message) for id, message in zip(some, found, strict=True) if message is not None]
        return got

    async def get(self, id: str, format: str = "full") -> dict[str, Any] | None:
        """One mail; None when it is not there."""
        url = f"{self._home}/messages/{quote(id, safe='')}"
        reply = await self._client.request("GET", url, params={"format": format}, scope=GMAIL_READONLY)
        return None if reply.status == 404 else told(reply)

    async def _full(self, id: str) -> dict[str, Any] | None:
        try:
            return await self.get(id)
        except Deferred:
            raise
        except RetryLater as error:
            if error.reason == "rate_limited":
                raise
            # one mail that is too large to be had must not stop all that come after it
            short = await self.get(id, "minimal")
            if short is not None and _size(short) <= HUGE:
                raise
            return short and await self.get(id, "metadata")

    async def mark(self, id: str, *, unread: bool) -> dict[str, Any] | None:
        """Mark a mail; doing it again changes nothing. None when it is not there."""
        url = f"{self._home}/messages/{quote(id, safe='')}/modify"
        change = {"addLabelIds" if unread else "removeLabelIds": [_UNREAD]}
        reply = await self._client.request("POST", url, json=change, scope=GMAIL)
        if reply.status == 404:
            return None
        labels = told(reply).get("labelIds")
        return {"id": id, "unread": _UNREAD in labels if isinstance(labels, list) else unread}

    async def labels(self) -> list[dict[str, Any]]:
        document = told(await self._client.request("GET", f"{self._home}/labels", scope=GMAIL_READONLY))
        rows = document.get("labels")
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    async def label_names(self, wanted: Sequence[str]) -> Mapping[str, str]:
        """The names of labels by their ids, asked for when there is one that is not known, or after an hour."""
        old = self._clock.monotonic() - self._named_at > LABELS_SECONDS
        if any(id not in self._names for id in wanted) if not old else wanted:
            rows = await self.labels()
            self._names = {str(row.get("id")): text_of(row, "name") or str(row.get("id")) for row in rows}
            self._named_at = self._clock.monotonic()
        return self._names


def _size(message: Mapping[str, Any]) -> int:
    size = message.get("sizeEstimate")
    return size if isinstance(size, int) else 0


async def _together(asked: Sequence[Any]) -> list[Any]:
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
