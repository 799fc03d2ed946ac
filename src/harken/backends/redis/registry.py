"""Named documents with a revision, and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any

import msgspec

from harken.backends.redis.codec import moment
from harken.backends.redis.transaction import Transaction
from harken.store import Document, Page

__all__ = ["audit", "audits", "delete", "documents", "get", "put"]

_DOCUMENT = Struct(">IQ")
_STAMP = Struct(">Q")


def _document(tx: Transaction, kind: str, name: str, row: bytes) -> Document:
    revision, at = _DOCUMENT.unpack_from(row)
    value = tx.json(row[_DOCUMENT.size :])
    return Document(kind=kind, name=name, value=value, revision=revision, updated_at=moment(at))


async def get(tx: Transaction, kind: str, name: str) -> Document | None:
    [row] = await tx.connection.read(("HGET", tx.connection.key(f"d:{kind}"), name))
    return None if row is None else _document(tx, kind, name, row)


async def documents(tx: Transaction, kind: str) -> list[Document]:
    [rows] = await tx.connection.read(("HGETALL", tx.connection.key(f"d:{kind}")))
    return [_document(tx, kind, name.decode(), row) for name, row in sorted(rows.items())]


async def put(tx: Transaction, kind: str, name: str, value: Any, expect: int | None) -> Document | None:
    ask = tx.ask()
    asked = (kind, name, ask.shut_json(value), False if expect is None else expect)
    row = await tx.connection.write("put", ask, asked)
    return _document(tx, kind, name, row) if row else None


async def delete(tx: Transaction, kind: str, name: str) -> bool:
    return bool(await tx.connection.write("delete", tx.ask(), (kind, name)))


async def audit(tx: Transaction, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
    ask = tx.ask()
    sealed = tx.seal.shut(msgspec.json.encode(detail))
    await tx.connection.write("audit", ask, (ask.text(msgspec.msgpack.encode((who, did, what, sealed))),))


async def audits(tx: Transaction, before: int | None, limit: int) -> Page:
    key = tx.connection.key("audit")
    if before is None:
        [size] = await tx.connection.read(("LLEN", key))
        before = size + 1
    first = max(1, before - limit)
    [rows] = await tx.connection.read(("LRANGE", key, first - 1, before - 2)) if before > 1 else [[]]
    items = []
    for row in reversed(rows):
        who, did, what, detail = msgspec.msgpack.decode(row[_STAMP.size :])
        at = moment(_STAMP.unpack_from(row)[0])
        items.append({"at": at, "who": who, "did": did, "what": what, "detail": tx.json(detail)})
    return Page(items=items, next=first if len(rows) == limit and first > 1 else None)
