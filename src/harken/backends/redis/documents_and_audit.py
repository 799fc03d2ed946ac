"""Named documents with a revision, and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.backends.page_builder import PageBuilder
from harken.backends.redis.codec import DOCUMENT, STAMP, decode_audit, encode_msgpack, moment
from harken.backends.redis.connection_and_name_cache import Session, UsesSession
from harken.store import Document, DocumentChange, Page

__all__ = ["RedisRegistry"]

DOCUMENTS_PER_READ = 5_000


class RedisRegistry(UsesSession):
    async def get(self, kind: str, name: str) -> Document | None:
        session = await self._ready()
        [row] = await session.connection.execute(("HGET", session.connection.key(f"d:{kind}"), name))
        return None if row is None else _document(session, kind, name, row)

    async def put(self, kind: str, name: str, value: Any, *, expect: int | None = None) -> Document | None:
        session = await self._ready()
        args = session.arguments()
        instructions = (kind, name, args.shut_json(value), False if expect is None else expect)
        row = await session.connection.write("registry.put", args, instructions)
        return _document(session, kind, name, row) if row else None

    async def delete(self, kind: str, name: str) -> bool:
        session = await self._ready()
        return bool(await session.connection.write("registry.delete", session.arguments(), (kind, name)))

    async def change(self, changes: Sequence[DocumentChange]) -> Sequence[Document | None] | None:
        session = await self._ready()
        args = session.arguments()
        instructions = [
            (
                one.kind,
                one.name,
                False if one.value is msgspec.UNSET else args.shut_json(one.value),
                False if one.expect is None else one.expect,
            )
            for one in changes
        ]
        rows = await session.connection.write("registry.change", args, (instructions,))
        if rows == b"":
            return None
        return [
            _document(session, one.kind, one.name, row) if row else None for one, row in zip(changes, rows, strict=True)
        ]

    async def documents(
        self, kind: str, *, after: str = "", limit: int | None = None, raw: bool = False
    ) -> Sequence[Document]:
        session = await self._ready()
        key = session.connection.key(f"d:{kind}")
        if limit is None and not after:
            [rows] = await session.connection.execute(("HGETALL", key))
            return [_document(session, kind, name.decode(), row, raw) for name, row in sorted(rows.items())]
        [names] = await session.connection.execute(("HKEYS", key))
        wanted = sorted(name for name in names if name > after.encode())[:limit]
        documents: list[Document] = []
        for begin in range(0, len(wanted), DOCUMENTS_PER_READ):
            some = wanted[begin : begin + DOCUMENTS_PER_READ]
            [rows] = await session.connection.execute(("HMGET", key, *some))
            # one that is deleted in between is not there
            pairs = zip(some, rows, strict=True)
            documents += [_document(session, kind, name.decode(), row, raw) for name, row in pairs if row is not None]
        return documents

    async def audit(self, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
        session = await self._ready()
        args = session.arguments()
        entry = args.text(encode_msgpack((who, did, what, session.seal.shut(msgspec.json.encode(detail)))))
        await session.connection.write("registry.audit", args, (entry,))

    async def audits(
        self,
        *,
        who: str = "",
        did: str = "",
        what: str = "",
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Page:
        session = await self._ready()

        def is_wanted(item: Mapping[str, Any]) -> bool:
            given = {"who": who, "did": did, "what": what}
            return all(value in ("", item[name]) for name, value in given.items()) and (
                since is None or item["at"] >= since
            )

        pages = PageBuilder(lambda found: is_wanted(found[1]), lambda found: int(found[0]), before, limit)
        while not pages.done:
            pages.add(await _numbered_audits(session, pages.before, limit))
        found = pages.page()
        return Page(items=[item for _, item in found.items], next=found.next)


async def _numbered_audits(session: Session, before: int | None, limit: int) -> list[tuple[int, dict[str, Any]]]:
    """The newest entries below this number, each with its own: its place since the beginning."""
    connection, key = session.connection, session.connection.key("audit")
    size, deleted = await connection.execute(("LLEN", key), ("HGET", connection.key("n"), "audits_gone"))
    gone = int(deleted or 0)
    end = size if before is None else max(0, min(size, before - 1 - gone))
    begin = max(0, end - limit)
    [rows] = await connection.execute(("LRANGE", key, begin, end - 1)) if end else [[]]
    numbered = [(gone + begin + place + 1, _audit(session, row)) for place, row in enumerate(rows)]
    return numbered[::-1]


def _document(session: Session, kind: str, name: str, row: bytes, raw: bool = False) -> Document:
    revision, at = DOCUMENT.unpack_from(row)
    stored = row[DOCUMENT.size :]
    value = session.seal.open(stored) if raw else session.json(stored)
    return Document(kind=kind, name=name, value=value, revision=revision, updated_at=moment(at))


def _audit(session: Session, row: bytes) -> dict[str, Any]:
    who, did, what, detail = decode_audit(row[STAMP.size :])
    at = moment(STAMP.unpack_from(row)[0])
    return {"at": at, "who": who, "did": did, "what": what, "detail": session.json(detail)}
