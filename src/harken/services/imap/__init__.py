"""Mail on any server that speaks IMAP: what comes into a folder and matches a search, once each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, field_validator

from harken.errors import NeedsAttention
from harken.event import Event
from harken.kit.mail import FIELDS, MailQuery
from harken.kit.mail import delivery as delivered
from harken.services.imap import cursor as places
from harken.services.imap.api import Account, Opened, Raw, Talk, attempt, day, folder_name, search_keys
from harken.services.imap.cursor import Place
from harken.services.imap.event import came_at, event_of
from harken.source import Act, Batch, Call, Checked, Cursor, Delivery, Host, Plugin

__all__ = ["Account", "Folder", "Query", "plugin"]

AT_A_TIME = 40
"""Mails that one page has at most; large ones make it shorter."""
TOGETHER = 10
ENOUGH = 4_000_000


class Query(MailQuery):
    """Which mails of which folder, and what is taken out of them."""

    fields: ClassVar[frozenset[str]] = FIELDS | {"uid", "uid_validity", "folder"}
    folder: str = Field("INBOX", description="the folder to watch")
    search: str = Field("UNSEEN", max_length=1_000, description='IMAP search, such as UNSEEN SUBJECT "new lead"')

    @field_validator("folder")
    @classmethod
    def _a_folder(cls, value: str) -> str:
        folder_name(value)
        return value

    @field_validator("search")
    @classmethod
    def _a_search(cls, value: str) -> str:
        return search_keys(value)


class Folder:
    """Reads what has come into a folder since, in the order in which it came, without marking it as read."""

    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._query = query
        self._account = account
        self._host = host

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        query, now = self._query, self._host.clock.now()
        place = places.begun(places.parsed(cursor), query.folder, now, since, query.reach)
        return await attempt(self._account, self._host.allow_private, lambda talk: self._page(talk, place))

    def _page(self, talk: Talk, place: Place) -> Batch:
        opened = talk.examine(folder_name(self._query.folder))
        place = places.fitted(place, opened)
        uids = talk.search_after(place.last, *self._since(place), self._query.search)
        raws, last = _fetched(talk, uids)
        events = [self._event(raw, place) for raw in raws if _counts(raw, place)]
        if last and last < uids[-1]:
            return _batch(events, msgspec.structs.replace(place, last=last), more=True)
        # what does not match is passed, too: its uid will never come again
        last = max(place.last, opened.following - 1, last)
        return _batch(events, msgspec.structs.replace(place, last=last, after=0, read_at=place.began, began=0))

    def _since(self, place: Place) -> list[str]:
        if not place.after:
            return []
        # servers compare days, and each in its own time zone
        return [f"SINCE {day(datetime.fromtimestamp(place.after, UTC) - timedelta(days=1))}"]

    def _event(self, raw: Raw, place: Place) -> Event:
        return event_of(raw, self._query.folder, place.validity, self._query.extract)


def _fetched(talk: Talk, uids: list[int]) -> tuple[list[Raw], int]:
    """The first of these mails, as many as make a page, and the uid up to which they reach."""
    raws: list[Raw] = []
    last = 0
    for start in range(0, min(len(uids), AT_A_TIME), TOGETHER):
        some = uids[start : start + TOGETHER]
        raws += talk.fetch_these(some)
        last = some[-1]
        if sum(len(raw.data) for raw in raws) > ENOUGH:
            break
    return raws, last


def _counts(raw: Raw, place: Place) -> bool:
    came = came_at(raw)
    return came is None or came.timestamp() >= place.after


def _batch(events: list[Event], place: Place, *, more: bool = False) -> Batch:
    return Batch(events=events, cursor=msgspec.to_builtins(place), more=more)


class Marked(BaseModel):
    """Which mail of which folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    uid: int = Field(ge=1, description="the uid of the mail, as its event has it")
    uid_validity: int = Field(0, ge=0, description="of its event: refuses when the folder numbers its mails anew")
    folder: str = Field("INBOX", description="the folder it is in")

    @field_validator("folder")
    @classmethod
    def _a_folder(cls, value: str) -> str:
        folder_name(value)
        return value


async def mark_read(call: Call) -> Mapping[str, Any]:
    """Doing it again, or to a mail that is gone, changes nothing."""
    params: Marked = call.params

    def mark(talk: Talk) -> None:
        opened = talk.examine(folder_name(params.folder), writing=True)
        if params.uid_validity not in (0, opened.validity):
            fix = "Nothing was marked: the number means another mail now"
            raise NeedsAttention("the folder numbers its mails anew since this one was read", fix=fix)
        talk.mark_seen(params.uid)

    await attempt(call.account, call.host.allow_private, mark)
    return {"uid": params.uid, "folder": params.folder}


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """Sign in, and see what is in the inbox."""
    opened: Opened = await attempt(account, host.allow_private, lambda talk: talk.examine(folder_name("INBOX")))
    return {"server": account.host, "user": account.username, "inbox": opened.count}


async def check(query: Query, account: Account, host: Host) -> Checked:
    """Open the folder and search it; what is wrong is raised."""

    def look(talk: Talk) -> int:
        opened = talk.examine(folder_name(query.folder))
        talk.search_after(opened.following, query.search)
        return opened.count

    count = await attempt(account, host.allow_private, look)
    return Checked(found={query.folder: f"a folder with {count:,} mails"})


def _delivery(query: Query, integration: str) -> Delivery:
    event = "{{.trigger.event.%s}}"
    step = {name: event % name for name in ("uid", "uid_validity", "folder")}
    return delivered(query, {"action": f"{integration}.mark_read", **step})


plugin = Plugin(
    kind="imap",
    summary="Mail on any server that speaks IMAP",
    docs="reference/services/imap.md",
    account=Account,
    query=Query,
    source=Folder,
    actions={"mark_read": Act(params=Marked, run=mark_read)},
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
