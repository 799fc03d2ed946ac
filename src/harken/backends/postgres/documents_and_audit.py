"""Named documents with a revision, and the audit trail. Each call but `change` is a single statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET

from harken.backends.codec import micros
from harken.backends.postgres.connection import DatabaseUser
from harken.backends.postgres.statement_builder import Where
from harken.backends.postgres.transaction_with_row_cache import Transaction
from harken.backends.rows import AUDIT, DOCUMENT, audit_of, document_of
from harken.store import Document, DocumentChange, Page

__all__ = ["PostgresRegistry", "get_document", "put_document"]

_NOW = "coalesce($4, harken_now())"
_INSERT = f"""INSERT INTO documents ({DOCUMENT}) VALUES ($1, $2, $3, 1, {_NOW})"""
PUT = f"""{_INSERT} ON CONFLICT (kind, name) DO UPDATE SET value=excluded.value, revision=documents.revision+1,
updated_at=excluded.updated_at RETURNING {DOCUMENT}"""
PUT_NEW = f"{_INSERT} ON CONFLICT DO NOTHING RETURNING {DOCUMENT}"
PUT_EXPECTED = f"""UPDATE documents SET value=$3, revision=revision+1, updated_at={_NOW}
WHERE kind=$1 AND name=$2 AND revision=$5 RETURNING {DOCUMENT}"""


class _Unexpected(Exception):
    """A document has another revision than expected: what was written before it is rolled back."""


class PostgresRegistry(DatabaseUser):
    """The protocol Registry. Both SQL stores repeat its signatures on purpose, each beside its own SQL."""

    async def get(self, kind: str, name: str) -> Document | None:
        return await self._database.autocommit(get_document, kind, name, writes=False)

    async def put(self, kind: str, name: str, value: Any, *, expect: int | None = None) -> Document | None:
        return await self._database.autocommit(put_document, kind, name, value, expect)

    async def delete(self, kind: str, name: str) -> bool:
        return await self._database.autocommit(_delete, kind, name)

    async def change(self, changes: Sequence[DocumentChange]) -> Sequence[Document | None] | None:
        try:
            return await self._database.write(_change, changes)
        except _Unexpected:
            return None

    async def documents(
        self, kind: str, *, after: str = "", limit: int | None = None, raw: bool = False
    ) -> Sequence[Document]:
        return await self._database.autocommit(_documents, kind, after, limit, raw, writes=False)

    async def audit(self, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
        await self._database.autocommit(_audit, who, did, what, detail)

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


async def put_document(tx: Transaction, kind: str, name: str, value: Any, expect: int | None) -> Document | None:
    values = (kind, name, tx.shut_json(value), tx.given_now)
    if expect:
        row = await tx.row(PUT_EXPECTED, *values, expect)
    else:
        row = await tx.row(PUT if expect is None else PUT_NEW, *values)
    return None if row is None else document_of(tx, row)


async def get_document(tx: Transaction, kind: str, name: str) -> Document | None:
    row = await tx.row(f"SELECT {DOCUMENT} FROM documents WHERE kind=$1 AND name=$2", kind, name)
    return None if row is None else document_of(tx, row)


async def _documents(tx: Transaction, kind: str, after: str, limit: int | None, raw: bool) -> list[Document]:
    sql = f"SELECT {DOCUMENT} FROM documents WHERE kind=$1 AND name>$2 ORDER BY name LIMIT $3"
    return [document_of(tx, row, raw) for row in await tx.rows(sql, kind, after, limit)]


async def _delete(tx: Transaction, kind: str, name: str) -> bool:
    return bool(await tx.do("DELETE FROM documents WHERE kind=$1 AND name=$2", kind, name))


async def _change(tx: Transaction, changes: Sequence[DocumentChange]) -> list[Document | None]:
    found: dict[tuple[str, str], Document | None] = {}
    # always in this order, so that two of these never wait for each other
    for one in sorted(changes, key=lambda change: (change.kind, change.name)):
        found[one.kind, one.name] = await _write(tx, one)
    return [found[one.kind, one.name] for one in changes]


async def _write(tx: Transaction, change: DocumentChange) -> Document | None:
    if change.value is not UNSET:
        put = await put_document(tx, change.kind, change.name, change.value, change.expect)
        if put is None:
            raise _Unexpected
        return put
    where, bindings = "kind=$1 AND name=$2", (change.kind, change.name)
    revision = await tx.value(f"SELECT revision FROM documents WHERE {where} FOR UPDATE", *bindings)
    if change.expect not in (None, revision or 0):
        raise _Unexpected
    await tx.do(f"DELETE FROM documents WHERE {where}", *bindings)
    return None


async def _audit(tx: Transaction, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
    await tx.do(
        "INSERT INTO audit (at, who, did, what, detail) VALUES (coalesce($1, harken_now()), $2, $3, $4, $5)",
        tx.given_now,
        who,
        did,
        what,
        tx.shut_json(detail),
    )


async def _audits(
    tx: Transaction, who: str, did: str, what: str, since: datetime | None, before: int | None, limit: int
) -> Page:
    where = Where().and_("id<{}", before).and_("who={}", who or None).and_("did={}", did or None)
    where = where.and_("what={}", what or None).and_("at>={}", None if since is None else micros(since))
    clause, bindings = where.clause("id DESC", limit)
    rows = await tx.rows(f"SELECT {AUDIT} FROM audit {clause}", *bindings)
    return Page(items=[audit_of(tx, row) for row in rows], next=rows[-1][0] if len(rows) == limit else None)
