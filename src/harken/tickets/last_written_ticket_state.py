"""What we remember of a ticket that has had a run: what we wrote on it, and whether the platform has shown it to us."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec

from harken.store import Document
from harken.store.document_kinds import TICKET
from harken.tickets.lifecycle_labels import Lifecycle

__all__ = ["TicketMemories", "TicketMemory"]


class TicketMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`run` is the ticket's newest run, `status` the state of that run when we last looked. A run that was done only
    after a person took their wish back counts as cancelled.

    `shown` is the lifecycle that we wrote last, at `wrote_at`; `version` is the platform's version of the ticket after
    that write. `confirmed`: a read has shown our label since. `comment` is the id of the sticky comment, written at
    `commented_at`. `repairs` are the times at which our label was put back; `fought`: it was given up and told.
    `asked_at`: when the run asked a question on the ticket. `settled` names the state of the run that the ticket shows
    in full: label, comments and native status. `withdrawn` is the run whose ticket was seen without what it wants,
    perhaps only for a moment between two reads of the feed.
    """

    project: str
    run: str = ""
    status: str = ""
    shown: Lifecycle | None = None
    wrote_at: datetime | None = None
    version: str = ""
    confirmed: bool = False
    comment: str = ""
    commented_at: datetime | None = None
    repairs: tuple[datetime, ...] = ()
    fought: bool = False
    asked_at: datetime | None = None
    settled: str = ""
    withdrawn: str = ""


class DocumentStore(Protocol):
    async def get(self, kind: str, name: str) -> Document | None: ...

    async def put(self, kind: str, name: str, value: Any, *, expect: int | None = None) -> Document | None: ...

    async def delete(self, kind: str, name: str) -> bool: ...

    async def documents(self, kind: str) -> Any: ...


class TicketMemories:
    """The memories of one tracker's tickets, as documents of the store. A ticket is named by its immutable id."""

    def __init__(self, store: DocumentStore, tracker: str) -> None:
        self._store = store
        self._prefix = f"{tracker}/"

    async def get(self, ticket: str) -> TicketMemory | None:
        document = await self._store.get(TICKET, self._prefix + ticket)
        return None if document is None else msgspec.convert(document.value, TicketMemory)

    async def put(self, ticket: str, memory: TicketMemory) -> None:
        await self._store.put(TICKET, self._prefix + ticket, msgspec.to_builtins(memory))

    async def confirm(self, ticket: str, seen: TicketMemory, version: str) -> None:
        """Note that a read has shown what we wrote, in this version of the ticket; unless we wrote again meanwhile."""
        document = await self._store.get(TICKET, self._prefix + ticket)
        if document is None:
            return
        memory = msgspec.convert(document.value, TicketMemory)
        if (memory.run, memory.shown, memory.wrote_at) != (seen.run, seen.shown, seen.wrote_at):
            return
        confirmed = msgspec.structs.replace(memory, confirmed=True, version=version or memory.version)
        # if it changes in between, the next read confirms it
        await self._store.put(TICKET, document.name, msgspec.to_builtins(confirmed), expect=document.revision)

    async def update(self, ticket: str, change: Callable[[TicketMemory | None], TicketMemory]) -> TicketMemory:
        """Change the memory as it is now; what another process writes at the same time is not lost.

        `change` may be called several times, with None if there is no memory yet."""
        name = self._prefix + ticket
        while True:
            document = await self._store.get(TICKET, name)
            before = None if document is None else msgspec.convert(document.value, TicketMemory)
            after = change(before)
            expect = 0 if document is None else document.revision
            if after == before or await self._store.put(TICKET, name, msgspec.to_builtins(after), expect=expect):
                return after

    async def forget(self, ticket: str) -> bool:
        return await self._store.delete(TICKET, self._prefix + ticket)

    async def all(self) -> Mapping[str, TicketMemory]:
        """Every memory of this tracker by ticket id."""
        start = len(self._prefix)
        return {
            document.name[start:]: msgspec.convert(document.value, TicketMemory)
            for document in await self._store.documents(TICKET)
            if document.name.startswith(self._prefix)
        }
