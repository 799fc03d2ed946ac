"""Sessions of people who logged in. Only a hash is stored; the browser has the secret in a cookie."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime, timedelta

import msgspec

from harken.clock import Clock
from harken.errors import Unauthorized
from harken.operate.oidc import Identity
from harken.operate.principal import Principal, Role
from harken.store import Registry
from harken.store.document_kinds import SESSION

__all__ = ["begin", "end", "find", "is_session"]

_TEXT = re.compile(r"hks_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    hash: str
    subject: str
    name: str
    role: Role
    owner: str = ""
    created_at: datetime
    expires_at: datetime


def is_session(text: str) -> bool:
    return text.startswith("hks_")


async def begin(store: Registry, clock: Clock, identity: Identity, seconds: float) -> str:
    """Write a session and return its secret, which is nowhere else. Those that are over are removed."""
    now = clock.now()
    for one in await store.documents(SESSION):
        if msgspec.convert(one.value, Stored).expires_at <= now:
            await store.delete(SESSION, one.name)
    id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    stored = Stored(
        hash=_hash(secret),
        subject=identity.subject,
        name=identity.name,
        role=identity.role,
        owner=identity.owner,
        created_at=now,
        expires_at=now + timedelta(seconds=seconds),
    )
    await store.put(SESSION, id, msgspec.to_builtins(stored), expect=0)
    await store.audit(identity.owner or f"login {identity.name}", "auth.login", identity.name, {"role": identity.role})
    return f"hks_{id}_{secret}"


async def find(store: Registry, clock: Clock, text: str) -> Principal:
    """Whose session this is. Raises Unauthorized for one that is unknown or over."""
    parts = _TEXT.fullmatch(text)
    document = await store.get(SESSION, parts[1]) if parts else None
    found = msgspec.convert(document.value, Stored) if document is not None else None
    fits = hmac.compare_digest(_hash(parts[2] if parts else ""), found.hash if found else "0" * 64)
    if found is None or not fits or found.expires_at <= clock.now():
        raise Unauthorized("this session is over", fix="Log in again: /auth/login")
    return Principal(name=f"login {found.name}", role=found.role, owner=found.owner, way="login")


async def end(store: Registry, clock: Clock, text: str) -> None:
    """End the session if it is one; nothing otherwise."""
    parts = _TEXT.fullmatch(text)
    if parts is None:
        return
    try:
        principal = await find(store, clock, text)
    except Unauthorized:
        return
    await store.delete(SESSION, parts[1])
    await store.audit(principal.who, "auth.logout", principal.name, {})


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
