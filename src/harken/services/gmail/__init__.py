"""Gmail: each mail that a search finds, once, however long the search goes on finding it.

https://developers.google.com/workspace/gmail/api/guides/list-messages
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from harken.errors import RetryLater
from harken.event import Event
from harken.kit import dump_cursor, load_cursor
from harken.kit.mail import delivery as mail_delivery
from harken.services.gmail.api import Gmail
from harken.services.gmail.cursor import (
    MOST,
    Place,
    Reading,
    add_listed,
    begin,
    finish,
    ids_to_fetch,
    mark_fetched,
    restart_listing,
    shorten_overlap,
)
from harken.services.gmail.event import event_of, received_at
from harken.services.gmail.query import Query
from harken.services.gmail.search_label_check import check
from harken.services.gmail.tools import TOOLS
from harken.services.google.api import GoogleAccount
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Mailbox", "Query", "plugin"]

FETCH_SIZE = 20
"""Mails that one poll fetches."""
_OWN_LABEL = "Label_"


class Mailbox:
    """Lists all pages of ids, newest first, then fetches the mails that were not fetched before, oldest first."""

    def __init__(self, query: Query, account: GoogleAccount, host: Host) -> None:
        self._query = query
        self._gmail = Gmail(account, host)
        self._clock = host.clock
        self._of = query.fingerprint()

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = begin(load_cursor(cursor, Place) or Place(), self._of, self._clock.now(), since, self._query.reach)
        reading = place.reading
        assert reading is not None
        if reading.page is not None:
            place = await self._list(place, reading, reading.page)
            reading = place.reading
            assert reading is not None
            if reading.page is not None:
                return Batch(cursor=dump_cursor(place), more=True)
        return await self._read(place, reading)

    async def _list(self, place: Place, reading: Reading, page: str) -> Place:
        # `after:` first, so that the search cannot change its meaning; one second earlier, because it may be exclusive
        query = (
            f"after:{reading.after - 1} ({self._query.query})" if self._query.query else f"after:{reading.after - 1}"
        )
        listing = await self._gmail.search(query, page)
        if not listing.stale:
            # a listing that was begun anew shows what is known, until it comes to where it was
            shown = listing.ids and not reading.restarts and set(reading.listed).issuperset(listing.ids)
            if listing.following and (listing.following == page or shown):
                raise RetryLater("Gmail sent the same page of its list again")
            return add_listed(place, reading, listing.ids, listing.following)
        restarted = restart_listing(place, reading)
        if restarted is None:
            raise RetryLater("Gmail refused its own page token again and again")
        return restarted

    async def _read(self, place: Place, reading: Reading) -> Batch:
        ids = ids_to_fetch(place, reading, FETCH_SIZE)
        events = await self._events(await self._gmail.get_all(ids)) if ids else []
        place = mark_fetched(place, ids)
        if ids_to_fetch(place, reading, 1):
            return Batch(events=events, cursor=dump_cursor(place), more=True)
        place = finish(place, reading)
        if len(place.seen) > MOST:
            place = await self._shorten_overlap(place)
        return Batch(events=events, cursor=dump_cursor(place))

    async def _events(self, fetched: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Event]:
        # leave out drafts: each edit of a draft creates a new message
        mails = [(id, message) for id, message in fetched if "DRAFT" not in _labels(message)]
        own = [label for _, message in mails for label in _labels(message) if label.startswith(_OWN_LABEL)]
        names = await self._gmail.label_names(own) if own else {}
        return [event_of(id, message, names, self._query.extract) for id, message in mails]

    async def _shorten_overlap(self, place: Place) -> Place:
        middle = await self._gmail.get(place.seen[MOST // 2 - 1], "minimal")
        moment = received_at(middle) if middle else None
        return shorten_overlap(place, moment) if moment else place


def _labels(message: Mapping[str, Any]) -> list[str]:
    labels = message.get("labelIds")
    return [label for label in labels if isinstance(label, str)] if isinstance(labels, list) else []


def _delivery(query: Query, integration: str) -> Delivery:
    return mail_delivery(query, {"action": f"{integration}.mark_read", "message": "{{.trigger.event.id}}"})


plugin = Plugin(
    kind="gmail",
    summary="Mail in Gmail",
    docs="reference/services/gmail.md",
    uses="google",
    query=Query,
    source=Mailbox,
    check=check,
    first="all",
    delivery=_delivery,
    tools=TOOLS,
)
