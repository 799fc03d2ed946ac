"""Gmail: mail that a search finds, once each, however long it stays in the search.

https://developers.google.com/workspace/gmail/api/guides/list-messages
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import msgspec
from pydantic import Field, field_validator

from harken.errors import RetryLater
from harken.event import Event
from harken.kit.mail import FIELDS, MailQuery
from harken.kit.mail import delivery as delivered
from harken.services.gmail import cursor as places
from harken.services.gmail.api import Gmail
from harken.services.gmail.check import check
from harken.services.gmail.cursor import Place, Reading
from harken.services.gmail.event import came_at, event_of
from harken.services.gmail.tools import TOOLS
from harken.services.google.api import GoogleAccount
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Mailbox", "Query", "plugin"]

AT_A_TIME = 20
"""Mails that one call gets."""
_OWN_LABEL = "Label_"


class Query(MailQuery):
    """Which mails, and what is taken out of them."""

    fields: ClassVar[frozenset[str]] = FIELDS | {"thread_id"}
    query: str = Field("is:unread in:inbox", max_length=2_000, description="a Gmail search, as in its search field")

    @field_validator("query")
    @classmethod
    def _whole(cls, value: str) -> str:
        if not _is_closed(value):
            raise ValueError("the search has a quotation mark, a ( or a { without its other half")
        return " ".join(value.split())

    def fingerprint(self) -> str:
        """Changes when something else is searched for, or taken out of it."""
        asked = msgspec.json.encode([self.query, sorted(self.extract.items())])
        return hashlib.blake2b(asked, digest_size=8).hexdigest()


def _is_closed(text: str) -> bool:
    """Whether everything that opens is closed, so that nothing in it can reach beyond it."""
    quoted = text.split('"')
    open_: list[str] = []
    for char in "".join(quoted[::2]):
        if char in "({":
            open_.append({"(": ")", "{": "}"}[char])
        elif char in ")}" and (not open_ or open_.pop() != char):
            return False
    return len(quoted) % 2 == 1 and not open_


class Mailbox:
    """Lists all pages of ids, newest first, then gets the mails that were not got before, oldest first."""

    def __init__(self, query: Query, account: GoogleAccount, host: Host) -> None:
        self._query = query
        self._gmail = Gmail(account, host)
        self._clock = host.clock
        self._of = query.fingerprint()

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = places.begun(places.parsed(cursor), self._of, self._clock.now(), since, self._query.reach)
        reading = place.reading
        assert reading is not None
        if reading.page is not None:
            place = await self._list(place, reading, reading.page)
            reading = place.reading
            assert reading is not None
            if reading.page is not None:
                return Batch(cursor=msgspec.to_builtins(place), more=True)
        return await self._read(place, reading)

    async def _list(self, place: Place, reading: Reading, page: str) -> Place:
        # first, where nothing in the search can stand before it; a second earlier, since it may mean "later than"
        query = (
            f"after:{reading.after - 1} ({self._query.query})" if self._query.query else f"after:{reading.after - 1}"
        )
        listing = await self._gmail.search(query, page)
        if not listing.stale:
            return places.listed(place, reading, listing.ids, listing.following)
        again = places.relisted(place, reading)
        if again is None:
            raise RetryLater("Gmail forgets where a page of the search begins, again and again")
        return again

    async def _read(self, place: Place, reading: Reading) -> Batch:
        ids = places.waiting(place, reading, AT_A_TIME)
        events = await self._events(await self._gmail.get_all(ids)) if ids else []
        place = places.got(place, ids)
        if places.waiting(place, reading, 1):
            return Batch(events=events, cursor=msgspec.to_builtins(place), more=True)
        place = places.finished(place, reading)
        if len(place.seen) > places.MOST:
            place = await self._narrowed(place)
        return Batch(events=events, cursor=msgspec.to_builtins(place))

    async def _events(self, got: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Event]:
        # every keystroke in a draft makes another message
        mails = [(id, message) for id, message in got if "DRAFT" not in _labels(message)]
        own = [label for _, message in mails for label in _labels(message) if label.startswith(_OWN_LABEL)]
        names = await self._gmail.label_names(own) if own else {}
        return [event_of(id, message, names, self._query.extract) for id, message in mails]

    async def _narrowed(self, place: Place) -> Place:
        middle = await self._gmail.get(place.seen[places.MOST // 2 - 1], "minimal")
        moment = came_at(middle) if middle else None
        return places.crowded(place, moment) if moment else place


def _labels(message: Mapping[str, Any]) -> list[str]:
    labels = message.get("labelIds")
    return [label for label in labels if isinstance(label, str)] if isinstance(labels, list) else []


def _delivery(query: Query, integration: str) -> Delivery:
    return delivered(query, {"action": f"{integration}.mark_read", "message": "{{.trigger.event.id}}"})


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
