"""Tokens: who may call from elsewhere. Only a hash is stored, and the text is shown once."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import get_args

import msgspec

from harken.clock import Clock
from harken.durations import parse_duration, parse_moment
from harken.errors import Malformed, Misconfigured, NotFound, Refused, Unauthorized
from harken.operate.context import Context
from harken.operate.output_rows import Plain, plain
from harken.operate.paging import page_by
from harken.operate.permissions import PERMISSIONS
from harken.operate.principal import Principal, Role
from harken.store import Registry
from harken.store.document_kinds import TOKEN
from harken.suggest import suggest_fix

__all__ = ["HOW_TO_MAKE", "authenticate", "create", "has_tokens", "list_tokens", "revoke", "rotate"]

HOW_TO_MAKE = "Make one first: harken tokens create laptop --role admin"
YEAR = "365d"
NEVER = "never"
LONGEST_NAME = 60
_NAME = re.compile(r"[A-Za-z0-9][\w.@-]*", re.ASCII)
_TEXT = re.compile(r"hkn_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_NOBODY = "0" * 64
"""Compared with where there is no such token, so that it takes as long as a wrong one."""


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token as the store has it. `earlier` is the hash before the last rotation, valid until `earlier_until`."""

    name: str
    hash: str
    role: Role
    owner: str = ""
    operations: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    created_at: datetime
    expires_at: datetime | None = None
    earlier: str = ""
    earlier_until: datetime | None = None

    def fits(self, secret: str, now: datetime) -> bool:
        found = hmac.compare_digest(_hash(secret), self.hash)
        before = hmac.compare_digest(_hash(secret), self.earlier or _NOBODY)
        return found or (before and self.earlier_until is not None and now < self.earlier_until)

    def is_over(self, now: datetime) -> bool:
        return self.expires_at is not None and now >= self.expires_at


async def authenticate(store: Registry, clock: Clock, text: str) -> Principal:
    """Whose token this is. Raises Unauthorized for one that is unknown, revoked or expired."""
    parts = _TEXT.fullmatch(text)
    document = await store.get(TOKEN, parts[1]) if parts else None
    if parts is None or document is None:
        hmac.compare_digest(_hash(text), _NOBODY)
        raise Unauthorized("this token is not valid", fix="Ask for a new one: harken tokens create")
    found, now = msgspec.convert(document.value, Stored), clock.now()
    if not found.fits(parts[2], now):
        raise Unauthorized("this token is not valid", fix="Ask for a new one: harken tokens create")
    if found.is_over(now):
        raise Unauthorized(
            f"the token {found.name} has expired", fix=f"Make a new one: harken tokens rotate {parts[1]}"
        )
    return Principal(
        name=f"token {found.name}",
        role=found.role,
        owner=found.owner,
        operations=found.operations,
        triggers=found.triggers,
    )


async def has_tokens(store: Registry, clock: Clock) -> bool:
    """Whether there is a token that has not expired."""
    now = clock.now()
    documents = await store.documents(TOKEN)
    return any(not msgspec.convert(one.value, Stored).is_over(now) for one in documents)


async def list_tokens(context: Context, *, cursor: str = "", limit: int = 0) -> Plain:
    """Every token without its secret, by name."""
    now = context.clock.now()
    rows = [_row(one.name, msgspec.convert(one.value, Stored), now) for one in await context.store.documents(TOKEN)]
    return page_by(rows, cursor, limit)


async def create(
    context: Context,
    *,
    name: str,
    role: str = "viewer",
    owner: str = "",
    operations: Sequence[str] = (),
    triggers: Sequence[str] = (),
    expires: str = YEAR,
) -> Plain:
    """Make a token; its text is in this answer and nowhere else."""
    wanted = _checked_role(role)
    _check_name(name, "a token")
    if owner:
        _check_name(owner, "an owner")
    if wanted == "admin" and (owner or triggers):
        raise Misconfigured("an admin may do everything", fix="Leave owner and triggers away, or choose another role")
    taken = [msgspec.convert(one.value, Stored).name for one in await context.store.documents(TOKEN)]
    if name in taken:
        raise Refused(f"there is a token {name} already", fix=f"Choose another name, or: harken tokens rotate {name}")
    now = context.clock.now()
    id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    stored = Stored(
        name=name,
        hash=_hash(secret),
        role=wanted,
        owner=owner,
        operations=_checked_operations(operations),
        triggers=_checked_triggers(context, triggers),
        created_at=now,
        expires_at=_expiry(expires, now),
    )
    await context.store.put(TOKEN, id, msgspec.to_builtins(stored), expect=0)
    return _row(id, stored, now) | {"token": f"hkn_{id}_{secret}"}


async def revoke(context: Context, *, id: str) -> Plain:
    """End a token at once. `id` may be its name."""
    found, stored, _ = await _find(context, id)
    await context.store.delete(TOKEN, found)
    return _row(found, stored, context.clock.now()) | {"status": "revoked"}


async def rotate(context: Context, *, id: str, keep: str = "1d", expires: str = "") -> Plain:
    """Give the token a new secret; the old one is valid for `keep` longer. `expires` sets a new end."""
    found, stored, revision = await _find(context, id)
    now, secret = context.clock.now(), secrets.token_urlsafe(32)
    changed = msgspec.structs.replace(
        stored,
        hash=_hash(secret),
        earlier=stored.hash,
        earlier_until=now + timedelta(seconds=parse_duration(keep)),
        expires_at=_expiry(expires, now) if expires else stored.expires_at,
    )
    if await context.store.put(TOKEN, found, msgspec.to_builtins(changed), expect=revision) is None:
        raise Refused(f"somebody else changed the token {stored.name} meanwhile", fix="Look again: harken tokens list")
    return _row(found, changed, now) | {"token": f"hkn_{found}_{secret}"}


async def _find(context: Context, id: str) -> tuple[str, Stored, int]:
    documents = await context.store.documents(TOKEN)
    for one in documents:
        stored = msgspec.convert(one.value, Stored)
        if id in (one.name, stored.name):
            return one.name, stored, one.revision
    known = [str(one.value["name"]) for one in documents]
    raise NotFound(f"there is no token {id[:LONGEST_NAME]}", fix=suggest_fix(id[:LONGEST_NAME], known))


def _row(id: str, stored: Stored, now: datetime) -> Plain:
    return {
        "id": id,
        "name": stored.name,
        "role": stored.role,
        "owner": stored.owner,
        "operations": list(stored.operations),
        "triggers": list(stored.triggers),
        "status": "expired" if stored.is_over(now) else "valid",
        "created_at": plain(stored.created_at),
        "expires_at": plain(stored.expires_at),
        "earlier_until": plain(stored.earlier_until),
    }


def _hash(secret: str) -> str:
    # not slow on purpose: there is nothing to guess in 256 random bits
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _check_name(name: str, what: str) -> None:
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        fix = f"Use up to {LONGEST_NAME} letters, digits, dots, dashes, underscores and @"
        raise Malformed(f"this cannot be the name of {what}", fix=fix)


def _checked_role(role: str) -> Role:
    for known in get_args(Role):
        if role == known:
            found: Role = known
            return found
    raise Misconfigured(f"there is no role {role[:LONGEST_NAME]}", fix=suggest_fix(role, get_args(Role)))


def _checked_operations(wanted: Sequence[str]) -> tuple[str, ...]:
    kinds = {f"{name.partition('.')[0]}.*" for name in PERMISSIONS if "." in name}
    _refuse_unknown(wanted, {*PERMISSIONS, *kinds}, "operation")
    return tuple(wanted)


def _checked_triggers(context: Context, wanted: Sequence[str]) -> tuple[str, ...]:
    _refuse_unknown(wanted, set(context.triggers()), "trigger")
    return tuple(wanted)


def _refuse_unknown(wanted: Sequence[str], known: Collection[str], what: str) -> None:
    for name in wanted:
        if name not in known:
            raise NotFound(f"there is no {what} {name}", fix=suggest_fix(name, known))


def _expiry(text: str, now: datetime) -> datetime | None:
    if text == NEVER:
        return None
    moment = parse_moment(text)
    if moment is None:
        return now + timedelta(seconds=parse_duration(text))
    if moment <= now:
        raise Misconfigured("that time is over", fix="Write it like 90d, or never")
    return moment
