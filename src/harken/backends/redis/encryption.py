"""What a store was begun with: the form of its keys, and its seal, the same for every replica that opens it."""

from __future__ import annotations

import secrets

from harken.backends.encryption import AesSeal, PlainSeal, Seal, rewrap, unwrap, wrap
from harken.backends.redis.connection import Connection
from harken.errors import Misconfigured, Refused

__all__ = ["first_keys", "refuse_newer", "rekey", "seal_for"]

SCHEMA = 1
"""The form of the keys. Who changes it raises this number, and changes the keys of older stores at their opening."""


async def refuse_newer(connection: Connection) -> None:
    """Note the form of the keys where it is not; raise Misconfigured where it is one that we do not know."""
    [found] = await connection.read(("GET", connection.key("schema")))
    if found is None and not connection.readonly:
        await connection.read(("SET", connection.key("schema"), SCHEMA, "NX"))
    elif found is not None and int(found) > SCHEMA:
        fix = "Use that version"
        raise Misconfigured(f"the store was written by a newer Harken (schema {int(found)}, ours {SCHEMA})", fix=fix)


async def seal_for(connection: Connection, operator_key: str) -> Seal:
    """The seal that the store was begun with. Raise Misconfigured when the key is missing, wrong, or comes too late."""
    [wrapped] = await connection.read(("GET", connection.key("seal")))
    if wrapped is None and (not operator_key or connection.readonly):
        return PlainSeal()
    if wrapped is None:
        wrapped = await first_keys(connection, operator_key)
    if not operator_key:
        raise Misconfigured("the store in Redis is encrypted", fix="Set HARKEN_ENCRYPTION_KEY to its key")
    return AesSeal(*unwrap(operator_key, wrapped.decode()))


async def first_keys(connection: Connection, operator_key: str) -> bytes:
    """New keys for an empty store; whoever else begins at the same moment has the same."""
    [used] = await connection.read(("EXISTS", connection.key("defs"), connection.key("n"), connection.key("tn")))
    if used:
        fix = "Copy it into an empty store that has the key: harken store copy"
        raise Misconfigured("the store in Redis was begun without encryption", fix=fix)
    fresh = wrap(operator_key, secrets.token_bytes(32), secrets.token_bytes(32))
    await connection.read(("SET", connection.key("seal"), fresh, "NX"))
    [wrapped] = await connection.read(("GET", connection.key("seal")))
    return bytes(wrapped)


async def rekey(connection: Connection, old: str, new: str) -> None:
    """Wrap the store's two keys with another operator's key. Replicas that run go on; those that start need the new."""
    [wrapped] = await connection.read(("GET", connection.key("seal")))
    if wrapped is None:
        fix = "Begin an empty store with HARKEN_ENCRYPTION_KEY set"
        raise Refused("the store in Redis is not encrypted", fix=fix)
    again = rewrap(wrapped.decode(), old, new)
    if again != wrapped.decode():
        await connection.read(("SET", connection.key("seal"), again))
