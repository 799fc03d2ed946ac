"""Named documents with a revision, and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.backends.sqlite.records import get
from harken.backends.sqlite.transaction import Transaction
from harken.store import Document

__all__ = ["audit", "delete", "put"]


def put(tx: Transaction, kind: str, name: str, value: Any, expect: int | None) -> Document | None:
    current = tx.value("SELECT revision FROM documents WHERE kind=? AND name=?", (kind, name)) or 0
    if expect is not None and expect != current:
        return None
    tx.execute(
        "INSERT OR REPLACE INTO documents (kind, name, value, revision, updated_at) VALUES (?,?,?,?,?)",
        (kind, name, tx.shut_json(value), current + 1, tx.now()),
    )
    return get(tx, kind, name)


def delete(tx: Transaction, kind: str, name: str) -> bool:
    tx.execute("DELETE FROM documents WHERE kind=? AND name=?", (kind, name))
    return bool(tx.connection.changes())


def audit(tx: Transaction, who: str, did: str, what: str, detail: Mapping[str, Any]) -> None:
    tx.execute(
        "INSERT INTO audit (at, who, did, what, detail) VALUES (?,?,?,?,?)",
        (tx.now(), who, did, what, tx.shut_json(detail)),
    )
