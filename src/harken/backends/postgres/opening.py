"""Opening the database: migrated under a lock that all replicas share, and readable only with its key."""

from __future__ import annotations

import secrets
from importlib.resources import files
from typing import Any

from harken.backends.encryption import AesSeal, PlainSeal, Seal, rewrap, unwrap, wrap
from harken.errors import Misconfigured, Refused

__all__ = ["prepare", "rekey"]

LOCK = 0x6861726B656E
"""Whoever changes the schema or the keys holds this advisory lock."""

OLDEST = 130_000
"""The first server version that is still looked after."""


async def prepare(connection: Any, key: str, where: str, *, readonly: bool) -> Seal:
    """Bring the schema up to date and find the seal. Whoever has the wrong key changes nothing."""
    if readonly:
        version = await _version(connection)
        if not version:
            raise Misconfigured(f"there is no store in {where}", fix="Start once: harken start")
        if version < len(_steps()):
            raise Misconfigured("the store was written by an older Harken", fix="Start once: harken start")
        return _seal(await connection.fetchval("SELECT wrapped FROM seal"), key, where)
    async with connection.transaction():
        await _alone(connection)
        known = await _wrapped(connection)
        seal = None if known is None else _seal(known, key, where)
        await _migrate(connection, where)
        return seal or await _first_seal(connection, key)


async def _alone(connection: Any) -> None:
    """Wait for other replicas that start at this moment; what they change may take its time."""
    await connection.execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
    await connection.fetchval("SELECT pg_advisory_xact_lock($1)", LOCK)


def _steps() -> list[str]:
    found = files(__package__).joinpath("migrations").iterdir()
    return sorted(step.name for step in found if step.name.endswith(".sql"))


async def _version(connection: Any) -> int:
    if await connection.fetchval("SELECT to_regclass('harken_migrations') IS NULL"):
        return 0
    return int(await connection.fetchval("SELECT coalesce(max(number), 0) FROM harken_migrations"))


async def _migrate(connection: Any, where: str) -> None:
    """Apply the numbered steps that are missing, all in the caller's transaction."""
    if await connection.fetchval("SELECT current_setting('server_version_num')::int") < OLDEST:
        raise Misconfigured(f"{where} is too old", fix="Use PostgreSQL 13 or newer")
    steps, version = _steps(), await _version(connection)
    if version > len(steps):
        fix = "Use that version, or restore a backup made by this one"
        raise Misconfigured(f"the store was written by a newer Harken (schema {version}, ours {len(steps)})", fix=fix)
    if not version:
        await connection.execute(
            "CREATE TABLE harken_migrations (number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz"
            " NOT NULL DEFAULT clock_timestamp())"
        )
    for number, step in enumerate(steps[version:], start=version + 1):
        await connection.execute(files(__package__).joinpath("migrations", step).read_text())
        await connection.execute("INSERT INTO harken_migrations (number, name) VALUES ($1, $2)", number, step)


async def _wrapped(connection: Any) -> str | None:
    """The store's keys as they are kept, empty for a store without encryption; None before its first start."""
    if not await _version(connection):
        return None
    found: str | None = await connection.fetchval("SELECT wrapped FROM seal")
    return found


def _seal(wrapped: str, key: str, where: str) -> Seal:
    if wrapped and not key:
        raise Misconfigured(f"the store {where} is encrypted", fix="Set HARKEN_ENCRYPTION_KEY to its key")
    if key and not wrapped:
        # other replicas may write it plainly at this moment, and old row versions cannot be wiped
        fix = "Copy it into a new database with the key set (harken store copy), or unset HARKEN_ENCRYPTION_KEY"
        raise Misconfigured(f"the store {where} is not encrypted", fix=fix)
    return AesSeal(*unwrap(key, wrapped)) if wrapped else PlainSeal()


async def _first_seal(connection: Any, key: str) -> Seal:
    """Decide for good whether this store is encrypted."""
    keys = secrets.token_bytes(32), secrets.token_bytes(32)
    wrapped = wrap(key, *keys) if key else ""
    await connection.execute("INSERT INTO seal (wrapped) VALUES ($1)", wrapped)
    return AesSeal(*keys) if key else PlainSeal()


async def rekey(connection: Any, old: str, new: str, where: str) -> None:
    """Wrap the store's two keys with another operator's key; replicas that run keep the keys that they have."""
    async with connection.transaction():
        await _alone(connection)
        wrapped = await _wrapped(connection)
        if not wrapped:
            fix = "Set HARKEN_ENCRYPTION_KEY before the first start of a new database"
            raise Refused(f"the store {where} is not encrypted", fix=fix)
        await connection.execute("UPDATE seal SET wrapped=$1", rewrap(wrapped, old, new))
