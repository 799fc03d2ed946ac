"""Named documents with a revision, and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.backends.sqlite.records import get
from harken.backends.sqlite.transaction import Transaction
from harken.store import Document

__all__ = ["audit", "delete", "put"]


def put(books: Transaction, kind: str, name: str, value: Any, expect: int | None) -> Document | None:
    current = books.value("SELECT revision FROM documents WHERE kind=? AND name=?", (kind, name)) or 0
    if expect is not None and expect != current:
        return None
    books.execute(
        "INSERT OR REPLACE INTO documents (kind, name, value, revision, updated_at) VALUES (?,?,?,?,?)",
        (kind, name, books.shut_json(value), current + 1, books.now()),
    )
    return get(books, kind, name)


def delete(books: Transaction, kind: str, name: str) -> bool:
    books.execute("DELETE FROM documents WHERE kind=? AND name=?", (kind, name))
    return bool(books.connection.changes())


def audit(books: Transaction, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
    books.execute(
        "INSERT INTO audit (at, who, did, what, detail) VALUES (?,?,?,?,?)",
        (books.now(), who, did, what, books.shut_json(detail)),
    )
