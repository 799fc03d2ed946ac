"""Names and texts of a store that is filled from another: the seal that it gets, and names that fit it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable

import msgspec

from harken.backends.encryption import AesSeal, PlainSeal, Seal, wrap
from harken.errors import Refused
from harken.event import Verdict
from harken.store.export_rows import Beginning, Chunk, Moved, MovedEvent, MovedRun, Remembered

__all__ = ["Arrival", "arrive"]


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """`wrapped` are the keys as the store keeps them, empty for one without encryption.

    `rows` come after the beginning, with names as they are made here.
    """

    beginning: Beginning
    seal: Seal
    wrapped: str
    rows: AsyncIterator[Chunk]


async def arrive(rows: AsyncIterator[Chunk], key: str) -> Arrival:
    """The seal for an empty store that is to hold these rows. Raise Refused where no seal can know the names."""
    [beginning] = await anext(rows)
    assert isinstance(beginning, Beginning), "a store tells its beginning first"
    if not key:
        if beginning.identity:
            fix = "Set HARKEN_ENCRYPTION_KEY, so that the copy is encrypted too"
            raise Refused("what is encrypted knows its names only by the key, so a plain copy cannot be made", fix=fix)
        return Arrival(beginning=beginning, seal=PlainSeal(), wrapped="", rows=rows)
    data_key, identity = secrets.token_bytes(32), beginning.identity or secrets.token_bytes(32)
    seal = AesSeal(data_key, identity)
    known = rows if beginning.identity else _renamed(rows, seal.rename)
    return Arrival(beginning=beginning, seal=seal, wrapped=wrap(key, data_key, identity), rows=known)


async def _renamed(rows: AsyncIterator[Chunk], rename: Callable[[bytes], bytes]) -> AsyncIterator[Chunk]:
    """The same rows with names under a key."""
    async for chunk in rows:
        yield [_rename(row, rename) for row in chunk]


def _rename(row: Moved, rename: Callable[[bytes], bytes]) -> Moved:
    if isinstance(row, Remembered):
        return msgspec.structs.replace(row, mid=rename(row.mid))
    if isinstance(row, MovedEvent):
        return msgspec.structs.replace(row, verdicts=tuple(_of_run(verdict, rename) for verdict in row.verdicts))
    if isinstance(row, MovedRun):
        names = {
            field: rename(name)
            for field in ("id", "slot", "gather", "parent", "replay_of")
            if (name := getattr(row, field)) is not None
        }
        return msgspec.structs.replace(row, waiting_for=_waiting(row.waiting_for, rename), **names)
    return row


def _of_run(verdict: Verdict, rename: Callable[[bytes], bytes]) -> Verdict:
    if not verdict.run_id:
        return verdict
    return msgspec.structs.replace(verdict, run_id=rename(bytes.fromhex(verdict.run_id)).hex())


def _waiting(waiting_for: str, rename: Callable[[bytes], bytes]) -> str:
    if not waiting_for.startswith("run:"):
        return waiting_for
    return "run:" + rename(bytes.fromhex(waiting_for[4:])).hex()
