"""Documents with a revision, and the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET

from harken.backends.codec import micros
from harken.backends.rows import AUDIT, DOCUMENT, audit_of, document_of
from harken.backends.sqlite.connection import DatabaseUser
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.store import Document, DocumentChange, Page

__all__ = ["SqliteRegistry", "get_document", "put_document"]


class SqliteRegistry(DatabaseUser):
    """The protocol Registry. Both SQL stores repeat its signatures on purpose, each beside its own SQL."""

    async def get(self, kind: str, name: str) -> Document | None:
        return await self._database.read(get_document, kind, name)

    async def put(self, kind: str, name: str, value: Any, *, expect: int | None = None) -> Document | None:
        return await self._database.write(put_document, kind, name, value, expect)

    async def delete(self, kind: str, name: str) -> bool:
        return await self._database.write(_delete, kind, name)

    async def change(self, changes: Sequence[DocumentChange]) -> Sequence[Document | None] | None:
        return await self._database.write(_change, changes)

    async def documents(
        self, kind: str, *, after: str = "", limit: int | None = None, raw: bool = False
    ) -> Sequence[Document]:
        return await self._database.read(_documents, kind, after, limit, raw)

    async def audit(self, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
        await self._database.write(_audit, who, did, what, detail)

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
        return await self._database.read(_audits, who, did, what, since, before, limit)


def get_document(tx: Transaction, kind: str, name: str) -> Document | None:
    row = tx.row(f"SELECT {DOCUMENT} FROM documents WHERE kind=? AND name=?", (kind, name))
    return None if row is None else document_of(tx, row)


def _documents(tx: Transaction, kind: str, after: str, limit: int | None, raw: bool) -> list[Document]:
    sql = f"SELECT {DOCUMENT} FROM documents WHERE kind=? AND name>? ORDER BY name LIMIT ?"
    # SQLite takes a negative limit as none
    return [document_of(tx, row, raw) for row in tx.execute(sql, (kind, after, -1 if limit is None else limit))]


def put_document(tx: Transaction, kind: str, name: str, value: Any, expect: int | None) -> Document | None:
    current = tx.value("SELECT revision FROM documents WHERE kind=? AND name=?", (kind, name)) or 0
    if expect is not None and expect != current:
        return None
    tx.execute(
        "INSERT OR REPLACE INTO documents (kind, name, value, revision, updated_at) VALUES (?,?,?,?,?)",
        (kind, name, tx.shut_json(value), current + 1, tx.now()),
    )
    return get_document(tx, kind, name)


def _delete(tx: Transaction, kind: str, name: str) -> bool:
    tx.execute("DELETE FROM documents WHERE kind=? AND name=?", (kind, name))
    return bool(tx.connection.changes())


def _change(tx: Transaction, changes: Sequence[DocumentChange]) -> list[Document | None] | None:
    revision = "SELECT revision FROM documents WHERE kind=? AND name=?"
    for one in changes:
        if one.expect is not None and one.expect != (tx.value(revision, (one.kind, one.name)) or 0):
            return None
    return [_write(tx, one) for one in changes]


def _write(tx: Transaction, change: DocumentChange) -> Document | None:
    if change.value is not UNSET:
        return put_document(tx, change.kind, change.name, change.value, None)
    _delete(tx, change.kind, change.name)
    return None


def _audit(tx: Transaction, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
    tx.execute(
        "INSERT INTO audit (at, who, did, what, detail) VALUES (?,?,?,?,?)",
        (tx.now(), who, did, what, tx.shut_json(detail)),
    )


def _audits(
    tx: Transaction, who: str, did: str, what: str, since: datetime | None, before: int | None, limit: int
) -> Page:
    wanted = {"who=?": who, "did=?": did, "what=?": what, "at>=?": None if since is None else micros(since)}
    given = {clause: value for clause, value in wanted.items() if value not in ("", None)}
    sql = f"SELECT {AUDIT} FROM audit WHERE {' AND '.join(['id<?', *given])} ORDER BY id DESC LIMIT ?"
    rows = tx.execute(sql, (2**62 if before is None else before, *given.values(), limit)).fetchall()
    return Page(items=[audit_of(tx, row) for row in rows], next=rows[-1][0] if len(rows) == limit else None)
