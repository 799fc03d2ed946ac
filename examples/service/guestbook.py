"""A service in one file: the guestbook at https://guestbook.example lists entries after an id, oldest first."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field, SecretStr

from harken.event import Event
from harken.kit import AccountModel, JsonApi, QueryModel
from harken.source import Batch, Cursor, Host, Plugin


class Account(AccountModel):
    token: SecretStr
    base_url: str = "https://guestbook.example"


class Query(QueryModel):
    book: str = Field(description="name of the guestbook")


class Guestbook:
    def __init__(self, query: Query, account: Account, host: Host) -> None:
        headers = {"Authorization": f"Bearer {account.token.get_secret_value()}"}
        self._api = JsonApi(host, base_url=account.base_url, headers=headers)
        self._url = self._api.url("books", query.book, "entries")

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        answer = self._api.expect_object(await self._api.get(self._url, {"after": cursor or 0, "limit": 100}))
        entries = answer["entries"]
        return Batch(
            events=[_event(entry) for entry in entries],
            cursor=entries[-1]["id"] if entries else cursor,
            more=answer["more"],
        )


def _event(entry: dict[str, Any]) -> Event:
    return Event(
        subject=str(entry["id"]),
        type="guestbook.entry",
        occurred_at=datetime.fromisoformat(entry["written_at"]),
        data=entry,
    )


plugin = Plugin(kind="guestbook", summary="Entries in a guestbook", account=Account, query=Query, source=Guestbook)
