"""A service in one file: the guestbook at https://guestbook.example lists entries after an id, oldest first."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field, SecretStr

from harken.event import Event
from harken.http import raise_for
from harken.source import Batch, Cursor, Host, Plugin


class Account(BaseModel):
    token: SecretStr
    base_url: str = "https://guestbook.example"


class Query(BaseModel):
    book: str = Field(description="name of the guestbook")


class Guestbook:
    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self._url = f"{account.base_url}/books/{query.book}/entries"
        self._headers = {"Authorization": f"Bearer {account.token.get_secret_value()}"}
        self._host = host

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        params = {"after": str(cursor or 0), "limit": "100"}
        reply = await self._host.http.request(
            "GET", self._url, params=params, headers=self._headers, allow_private=self._host.allow_private
        )
        raise_for(reply)
        answer = reply.json()
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
