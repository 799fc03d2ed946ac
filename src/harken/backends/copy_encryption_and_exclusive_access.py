"""What all stores share when they are copied: hashes and encryption of the copy, and keeping other processes out."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from urllib.parse import SplitResult, urlsplit

import msgspec

from harken.backends.encryption import AesSeal, PlainSeal, Seal, wrap
from harken.backends.run_ids_in_documents_and_steps import rename_in_document, rename_in_step
from harken.errors import Refused
from harken.event import Verdict
from harken.store import Store
from harken.store.document_kinds import THIS_STORE, TRANSFER
from harken.store.transfer_protocol_and_exclusive_access import Counts, ExclusiveStore
from harken.store.transfer_rows import (
    Chunk,
    ExportedDocument,
    ExportedEvent,
    ExportedMark,
    ExportedMemory,
    ExportedRow,
    ExportedRun,
    ExportedTrigger,
    ExportHeader,
)

__all__ = ["ExclusiveAccess", "Import", "bare_url", "place_of", "prepare_import", "refuse_nonempty"]


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """Exported rows as the new store will write them.

    `wrapped` are its wrapped keys, empty for a plain store. `rows` follow the header; their names are hashed with the
    new store's key.
    """

    beginning: ExportHeader
    seal: Seal
    wrapped: str
    rows: AsyncIterator[Chunk]


async def prepare_import(rows: AsyncIterator[Chunk], key: str) -> Import:
    """Choose the seal of the new store. Raise Refused for a plain copy of an encrypted store: hashes need its key."""
    [beginning] = await anext(rows)
    assert isinstance(beginning, ExportHeader), "an export begins with its header"
    if not key:
        if beginning.identity:
            fix = "Set HARKEN_ENCRYPTION_KEY, so that the copy is encrypted too"
            raise Refused("what is encrypted knows its names only by the key, so a plain copy cannot be made", fix=fix)
        return Import(beginning=beginning, seal=PlainSeal(), wrapped="", rows=rows)
    data_key, identity = secrets.token_bytes(32), beginning.identity or secrets.token_bytes(32)
    seal = AesSeal(data_key, identity)
    known = rows if beginning.identity else _renamed(rows, seal.rename)
    return Import(beginning=beginning, seal=seal, wrapped=wrap(key, data_key, identity), rows=known)


async def _renamed(rows: AsyncIterator[Chunk], rename: Callable[[bytes], bytes]) -> AsyncIterator[Chunk]:
    """The same rows with keyed hashes of names."""
    async for chunk in rows:
        yield [_rename(row, rename) for row in chunk]


def _rename(row: ExportedRow, rename: Callable[[bytes], bytes]) -> ExportedRow:
    if isinstance(row, ExportedMemory):
        return msgspec.structs.replace(row, mid=rename(row.mid))
    if isinstance(row, ExportedEvent):
        return msgspec.structs.replace(row, verdicts=tuple(_of_run(verdict, rename) for verdict in row.verdicts))
    if isinstance(row, ExportedTrigger):
        return msgspec.structs.replace(row, marks=tuple(_of_mark(mark, rename) for mark in row.marks))
    if isinstance(row, ExportedRun):
        names = {
            field: rename(name)
            for field in ("id", "slot", "gather", "parent", "replay_of")
            if (name := getattr(row, field)) is not None
        }
        journal = tuple(rename_in_step(record, rename) for record in row.journal)
        return msgspec.structs.replace(row, waiting_for=_waiting(row.waiting_for, rename), journal=journal, **names)
    if isinstance(row, ExportedDocument):
        return msgspec.structs.replace(row, value=rename_in_document(row.kind, row.value, rename))
    return row


def _of_mark(mark: ExportedMark, rename: Callable[[bytes], bytes]) -> ExportedMark:
    run = None if mark.run is None else rename(mark.run)
    return msgspec.structs.replace(mark, key=rename(mark.key), run=run)


def _of_run(verdict: Verdict, rename: Callable[[bytes], bytes]) -> Verdict:
    if not verdict.run_id:
        return verdict
    return msgspec.structs.replace(verdict, run_id=rename(bytes.fromhex(verdict.run_id)).hex())


def _waiting(waiting_for: str, rename: Callable[[bytes], bytes]) -> str:
    if not waiting_for.startswith("run:"):
        return waiting_for
    return "run:" + rename(bytes.fromhex(waiting_for[4:])).hex()


def _bare(url: str) -> SplitResult:
    """The parts of a URL without user, password or options."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="")


def bare_url(url: str) -> str:
    """The URL without user, password or options."""
    return _bare(url).geturl()


def place_of(server: str, url: str) -> str:
    """Server, port and database of a URL, for messages."""
    parts = _bare(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{server} at {parts.hostname or 'its socket'}{port}{parts.path}"


class ExclusiveAccess:
    """The part of a StoreTransfer that servers share: it holds the leases of all shards while the store is copied.

    The store is opened when it is needed first.
    """

    def __init__(self, place: str, opened: Callable[[], Awaitable[Store]]) -> None:
        self._place = place
        self._opened = opened
        self._store: Store | None = None
        self._keeper: ExclusiveStore | None = None

    async def store(self) -> Store:
        if self._store is None:
            self._store = await self._opened()
        return self._store

    async def writers(self, shards: Callable[[], Awaitable[Iterable[int]]]) -> Sequence[str]:
        store = await self.store()
        self._keeper = self._keeper or ExclusiveStore(store)
        return await self._keeper.writers(await shards(), f"{self._place} is being copied")

    async def stay(self) -> None:
        if self._keeper is not None:
            await self._keeper.stay()

    async def mark(self, words: str, fix: str) -> None:
        store = await self.store()
        if words:
            await store.put(TRANSFER, THIS_STORE, {"words": words, "fix": fix, "holder": ""})
        else:
            await store.delete(TRANSFER, THIS_STORE)

    async def close(self) -> None:
        if self._keeper is not None:
            await self._keeper.leave()
        if self._store is not None:
            await self._store.close()
        self._keeper = self._store = None


def refuse_nonempty(place: str, counts: Counts, fix: str) -> None:
    """Raise Refused unless the store is empty."""
    found = [f"{number} {kind}" for kind, number in counts.items() if number]
    if found:
        raise Refused(f"{place} is not empty: it has {', '.join(found)}", fix=fix)
