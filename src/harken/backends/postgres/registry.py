"""Named documents with a revision, and the audit trail. Each is a single statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.backends.postgres.statements import Where
from harken.backends.postgres.transaction import Transaction
from harken.backends.rows import AUDIT, DOCUMENT, audit_of, document_of
from harken.store import Document, Page

__all__ = ["audit", "audits", "delete", "documents", "put"]

_NOW = "coalesce($4, harken_now())"
NEW = f"""INSERT INTO documents ({DOCUMENT}) VALUES ($1, $2, $3, 1, {_NOW})"""
PUT = f"""{NEW} ON CONFLICT (kind, name) DO UPDATE SET value=excluded.value, revision=documents.revision+1,
updated_at=excluded.updated_at RETURNING {DOCUMENT}"""
PUT_NEW = f"{NEW} ON CONFLICT DO NOTHING RETURNING {DOCUMENT}"
PUT_OVER = f"""UPDATE documents SET value=$3, revision=revision+1, updated_at={_NOW}
WHERE kind=$1 AND name=$2 AND revision=$5 RETURNING {DOCUMENT}"""


async def put(tx: Transaction, kind: str, name: str, value: Any, expect: int | None) -> Document | None:
    words = (kind, name, tx.shut_json(value), tx.given_now)
    if expect:
        row = await tx.row(PUT_OVER, *words, expect)
    else:
        row = await tx.row(PUT if expect is None else PUT_NEW, *words)
    return None if row is None else document_of(tx, row)


async def documents(tx: Transaction, kind: str, name: str = "") -> list[Document]:
    sql = f"SELECT {DOCUMENT} FROM documents WHERE kind=$1 AND ($2='' OR name=$2) ORDER BY name"
    return [document_of(tx, row) for row in await tx.rows(sql, kind, name)]


async def delete(tx: Transaction, kind: str, name: str) -> bool:
    return bool(await tx.do("DELETE FROM documents WHERE kind=$1 AND name=$2", kind, name))


async def audit(tx: Transaction, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
    await tx.do(
        "INSERT INTO audit (at, who, did, what, detail) VALUES (coalesce($1, harken_now()), $2, $3, $4, $5)",
        tx.given_now,
        who,
        did,
        what,
        tx.shut_json(detail),
    )


async def audits(tx: Transaction, before: int | None, limit: int) -> Page:
    ends, bindings = Where().and_("id<{}", before).ends("id DESC", limit)
    rows = await tx.rows(f"SELECT {AUDIT} FROM audit {ends}", *bindings)
    return Page(items=[audit_of(tx, row) for row in rows], next=rows[-1][0] if len(rows) == limit else None)
