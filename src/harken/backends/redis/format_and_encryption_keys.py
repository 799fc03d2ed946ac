"""What is fixed when a store is created: the version of its key layout, and its encryption keys."""

from __future__ import annotations

import secrets

from harken.backends.encryption import AesSeal, PlainSeal, Seal, rewrap, unwrap, wrap
from harken.backends.redis.connection import Connection
from harken.errors import Misconfigured, Refused

__all__ = ["first_keys", "refuse_newer", "rekey", "seal_for"]

SCHEMA = 1
"""The version of the key layout. A change of the layout raises it, and converts older stores when they are opened."""


async def refuse_newer(connection: Connection) -> None:
    """Write the version into a new store. Raise Misconfigured for a store of a newer version."""
    [found] = await connection.execute(("GET", connection.key("schema")))
    if found is None and not connection.readonly:
        await connection.execute(("SET", connection.key("schema"), SCHEMA, "NX"))
    elif found is not None and int(found) > SCHEMA:
        fix = "Use that version"
        raise Misconfigured(f"the store was written by a newer Harken (schema {int(found)}, ours {SCHEMA})", fix=fix)


async def seal_for(connection: Connection, operator_key: str) -> Seal:
    """The seal of the store. Raise Misconfigured if the key is missing or wrong, or the store has plain rows."""
    [wrapped] = await connection.execute(("GET", connection.key("seal")))
    if wrapped is None and (not operator_key or connection.readonly):
        return PlainSeal()
    if wrapped is None:
        wrapped = await first_keys(connection, operator_key)
    if not operator_key:
        raise Misconfigured("the store in Redis is encrypted", fix="Set HARKEN_ENCRYPTION_KEY to its key")
    return AesSeal(*unwrap(operator_key, wrapped.decode()))


async def first_keys(connection: Connection, operator_key: str) -> bytes:
    """Create the keys of an empty store. Replicas that start at the same moment get the same keys."""
    [used] = await connection.execute(("EXISTS", connection.key("defs"), connection.key("n"), connection.key("tn")))
    if used:
        fix = "Copy it into an empty store that has the key: harken store copy"
        raise Misconfigured("the store in Redis was begun without encryption", fix=fix)
    fresh = wrap(operator_key, secrets.token_bytes(32), secrets.token_bytes(32))
    await connection.execute(("SET", connection.key("seal"), fresh, "NX"))
    [wrapped] = await connection.execute(("GET", connection.key("seal")))
    return bytes(wrapped)


async def rekey(connection: Connection, old: str, new: str) -> None:
    """Wrap the keys of the store with another operator's key. Running replicas go on; new ones need the new key."""
    [wrapped] = await connection.execute(("GET", connection.key("seal")))
    if wrapped is None:
        fix = "Begin an empty store with HARKEN_ENCRYPTION_KEY set"
        raise Refused("the store in Redis is not encrypted", fix=fix)
    again = rewrap(wrapped.decode(), old, new)
    if again != wrapped.decode():
        await connection.execute(("SET", connection.key("seal"), again))
