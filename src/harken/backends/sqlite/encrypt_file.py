"""Turns encryption on for an existing file: rewrites every value, then wipes the plain text from free pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import msgspec

from harken.backends.encryption import Seal
from harken.backends.run_ids_in_documents_and_steps import rename_in_document, rename_in_step
from harken.backends.verdicts import decode_verdicts, encode_verdicts
from harken.store.document_kinds import KEYS, SEAL, UNWIPED

__all__ = ["encrypt", "wipe"]

ENCRYPTED = {
    "feeds": ("definition", "cursor", "health", "coverage"),
    "triggers": ("definition",),
    "memory": ("state",),
    "events": ("key", "subject", "state", "data"),
    "runs": ("input", "answer", "error", "output"),
    "journal": ("record",),
    "ticks": ("error",),
    "documents": ("value",),
    "audit": ("detail",),
    "buried": ("key", "reason", "payload"),
}
"""Columns of text and JSON."""

HASHED = {
    "memory": ("mid",),
    "events": ("kid",),
    "runs": ("id", "slot", "gather", "parent", "replay_of"),
    "slots": ("key",),
    "marks": ("key", "run"),
}
"""Columns of names, which are stored as a hash: encryption makes it a keyed one."""


def encrypt(connection: apsw.Connection, seal: Seal, wrapped: str) -> None:
    """Rewrite the whole file in one transaction, then wipe."""
    connection.execute("PRAGMA secure_delete=ON")
    functions: dict[str, Callable[..., Any]] = {
        "seal_text": lambda value: None if value is None else seal.shut(bytes(value)),
        "seal_name": lambda value: None if value is None else seal.rename(bytes(value)),
        "seal_verdicts": lambda value: seal.shut(_rekey_verdicts(bytes(value), seal)),
        "seal_waiting": lambda value: _rekey_wait(value, seal),
        "rename_in_document": lambda kind, value: rename_in_document(kind, bytes(value), seal.rename),
        "rename_in_step": lambda record: rename_in_step(bytes(record), seal.rename),
    }
    for name, function in functions.items():
        connection.create_scalar_function(name, function)
    with connection:
        connection.execute("UPDATE documents SET value=rename_in_document(kind, value)")
        connection.execute("UPDATE journal SET record=rename_in_step(record)")
        for table in ENCRYPTED.keys() | HASHED.keys():
            sets = [f"{column}=seal_text({column})" for column in ENCRYPTED.get(table, ())]
            sets += [f"{column}=seal_name({column})" for column in HASHED.get(table, ())]
            connection.execute(f"UPDATE {table} SET {', '.join(sets)}")
        # housekeeping makes them anew, with the key
        connection.execute("DELETE FROM objects; UPDATE indexed SET bucket=0")
        connection.execute("UPDATE events SET verdicts=seal_verdicts(verdicts)")
        connection.execute("UPDATE triggers SET paused=seal_text(CAST(paused AS BLOB)) WHERE paused<>''")
        connection.execute("UPDATE runs SET waiting_for=seal_waiting(waiting_for) WHERE waiting_for LIKE 'run:%'")
        for name, value in ((KEYS, wrapped.encode()), (UNWIPED, "")):
            connection.execute(
                "INSERT INTO documents (kind, name, value, revision, updated_at) VALUES (?,?,?,1,0)",
                (SEAL, name, value),
            )
    wipe(connection)


def wipe(connection: apsw.Connection) -> None:
    """Overwrite free pages that may hold plain text, also when an earlier attempt was interrupted."""
    unwiped = (SEAL, UNWIPED)
    if connection.execute("SELECT 1 FROM documents WHERE kind=? AND name=?", unwiped).fetchone() is None:
        return
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("DELETE FROM documents WHERE kind=? AND name=?", unwiped)


def _rekey_verdicts(encoded: bytes, seal: Seal) -> bytes:
    verdicts = decode_verdicts(encoded)
    renamed = [
        msgspec.structs.replace(verdict, run_id=seal.rename(bytes.fromhex(verdict.run_id)).hex())
        if verdict.run_id
        else verdict
        for verdict in verdicts
    ]
    return encode_verdicts(renamed)


def _rekey_wait(waiting_for: str, seal: Seal) -> str:
    return "run:" + seal.rename(bytes.fromhex(waiting_for[4:])).hex()
