"""Mail on any IMAP server: each mail that comes into a folder and matches a search, once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from harken.event import Event
from harken.kit import dump_cursor, load_cursor
from harken.kit.mail import delivery as mail_delivery
from harken.services.imap.actions import MarkParams, mark_read
from harken.services.imap.api import (
    Account,
    ImapConnection,
    RawMail,
    run_session,
)
from harken.services.imap.check import check, whoami
from harken.services.imap.cursor import Place, begin_read, match_folder
from harken.services.imap.event import event_of, received_at
from harken.services.imap.query import Query, folder_name, imap_date
from harken.source import Act, Batch, Cursor, Delivery, Host, Plugin

__all__ = [
    "Account",
    "Folder",
    "MarkParams",
    "Query",
    "check",
    "mark_read",
    "plugin",
    "whoami",
]

PAGE_SIZE = 40
"""Mails that one page may have; large mails make it shorter."""
FETCH_SIZE = 10
PAGE_BYTES = 4_000_000


class Folder:
    """Reads the new mails of a folder in the order of their arrival, without marking them as read."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._query = query
        self._account = account
        self._host = host

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        query, now = self._query, self._host.clock.now()
        place = begin_read(load_cursor(cursor, Place) or Place(), query.folder, now, since, query.reach)
        return await run_session(
            self._account, self._host.allow_private, lambda connection: self._page(connection, place)
        )

    def _page(self, connection: ImapConnection, place: Place) -> Batch:
        folder = connection.examine(folder_name(self._query.folder))
        place = match_folder(place, folder)
        uids = connection.search_after(place.last, *self._since(place), self._query.search)
        mails, last = _fetch_page(connection, uids)
        events = [self._event(mail, place) for mail in mails if _is_new(mail, place)]
        if last and last < uids[-1]:
            return _batch(events, msgspec.structs.replace(place, last=last), more=True)
        # move past mails that do not match, too: their uids are never used again
        last = max(place.last, folder.following - 1, last)
        return _batch(events, msgspec.structs.replace(place, last=last, after=0, read_at=place.began, began=0))

    def _since(self, place: Place) -> list[str]:
        if not place.after:
            return []
        # servers compare whole days, each in its own time zone
        return [f"SINCE {imap_date(datetime.fromtimestamp(place.after, UTC) - timedelta(days=1))}"]

    def _event(self, mail: RawMail, place: Place) -> Event:
        return event_of(mail, self._query.folder, place.validity, self._query.extract)


def _fetch_page(connection: ImapConnection, uids: list[int]) -> tuple[list[RawMail], int]:
    """The first of these mails, as many as make a page, and the uid of the last."""
    mails: list[RawMail] = []
    last = 0
    for start in range(0, min(len(uids), PAGE_SIZE), FETCH_SIZE):
        some = uids[start : start + FETCH_SIZE]
        mails += connection.fetch_mails(some)
        last = some[-1]
        if sum(len(mail.data) for mail in mails) > PAGE_BYTES:
            break
    return mails, last


def _is_new(mail: RawMail, place: Place) -> bool:
    came = received_at(mail)
    return came is None or came.timestamp() >= place.after


def _batch(events: list[Event], place: Place, *, more: bool = False) -> Batch:
    return Batch(events=events, cursor=dump_cursor(place), more=more)


def _delivery(query: Query, integration: str) -> Delivery:
    event = "{{.trigger.event.%s}}"
    step = {name: event % name for name in ("uid", "uid_validity", "folder")}
    return mail_delivery(query, {"action": f"{integration}.mark_read", **step})


plugin = Plugin(
    kind="imap",
    summary="Mail on any server that speaks IMAP",
    docs="reference/services/imap.md",
    account=Account,
    query=Query,
    source=Folder,
    actions={"mark_read": Act(params=MarkParams, run=mark_read)},
    whoami=whoami,
    check=check,
    first="all",
    delivery=_delivery,
    environment={
        "IMAP_HOST": "host",
        "IMAP_PORT": "port",
        "IMAP_USERNAME": "username",
        "IMAP_PASSWORD": "password",
        "IMAP_TLS": "tls",
    },
)
