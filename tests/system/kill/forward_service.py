"""A service whose API only goes forward: who asks with a cursor is never shown again what is before it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from harken.event import Event
from harken.http import raise_for
from harken.source import Batch, Cursor, Host, Plugin

__all__ = ["plugin"]


class Query(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str


class ForwardQueue:
    def __init__(self, query: Query, account: Any, host: Host) -> None:
        self._url = query.url
        self._host = host

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        reply = await self._host.request("GET", self._url, params={"after": str(cursor or 0)}, allow_private=True)
        raise_for(reply)
        shown = reply.json()
        events = [Event(subject=id, type="forward.item", data={"id": id}) for id in shown["items"]]
        return Batch(events=events, cursor=shown["cursor"], more=shown["more"], complete=False)


plugin = Plugin(kind="forward", query=Query, source=ForwardQueue, floor_seconds=1.0)
