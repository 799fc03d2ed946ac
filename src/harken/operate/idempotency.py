"""Requests that may come twice: what has the same Idempotency-Key has one effect and one answer.

The effect is bound to the key by its identity: a run or a row that a request makes gets an id that is derived from the
key, so a request that is repeated after a crash finds what the first one made; that it has retried a run is written
with the retry. The answer is kept beside it for a day.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

from harken.errors import AnswerLost, KeyReused, NotFound, Refused, StillRunning
from harken.store import Document, Store
from harken.store.document_kinds import REQUEST, RETRIED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

__all__ = ["KEPT_SECONDS", "Answer", "forget_old", "new_id", "once", "request_name"]

KEPT_SECONDS = 86_400.0
STALLED_SECONDS = 30.0
"""A request of another process that has not been answered for so long was lost with it."""

LOST = -1
"""In place of a status: the request was done, or may have been, and its answer is not known."""

_current: ContextVar[str] = ContextVar("idempotency_key", default="")


class Answer(NamedTuple):
    status: int
    body: str
    replayed: bool = False


def new_id(purpose: str = "") -> UUID:
    """A new id; the same one each time for the same purpose of requests with the same key."""
    key = _current.get()
    return UUID(bytes=hashlib.sha256(f"{key}\n{purpose}".encode()).digest()[:16], version=4) if key else uuid4()


def request_name(purpose: str) -> str:
    """Names what a request with a key does for this purpose, so that a store does it once; empty without a key."""
    return new_id(purpose).hex if _current.get() else ""


@contextmanager
def _with_key(name: str) -> Iterator[None]:
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


_under_way: set[str] = set()


async def once(
    store: Store,
    who: str,
    key: str,
    fingerprint: str,
    now: Callable[[], datetime],
    act: Callable[[], Awaitable[Answer]],
    *,
    secret: bool = False,
) -> Answer:
    """Do what the first request with this key asks, and give all others its answer.

    Raise KeyReused if the key came with another request, StillRunning while the first is not answered. An error that
    is raised is not kept: the request may be sent again. Raise AnswerLost if the first was done, or may have been
    before its process died, and its answer is not known; a `secret` one is never kept.
    """
    name = hashlib.sha256(f"{who}\n{key}".encode()).hexdigest()
    document, again = await _begin(store, name, fingerprint, now)
    if document.value["status"] == LOST:
        raise _lost(document.value["body"])
    if document.value["status"]:
        if secret:
            reason = "the first request with this key was done, and the secret in its answer is shown only once"
            raise AnswerLost(reason, fix="Make another with a new key")
        return Answer(document.value["status"], document.value["body"], replayed=True)
    _under_way.add(name)
    try:
        with _with_key(name):
            answer = await act()
    except (Refused, NotFound) as error:
        if not again:
            await store.delete(REQUEST, name)
            raise
        # it is refused as it was done already, or for another reason: nobody knows any more
        await store.put(REQUEST, name, {"asked": fingerprint, "status": LOST, "body": error.message})
        raise _lost(error.message) from None
    except BaseException:
        await store.delete(REQUEST, name)
        raise
    finally:
        _under_way.discard(name)
    body = "" if secret else answer.body
    await store.put(REQUEST, name, {"asked": fingerprint, "status": answer.status, "body": body})
    return answer


def _lost(reason: str) -> AnswerLost:
    message = "the first request with this key was lost with its process, and may have been done"
    return AnswerLost(f"{message}: {reason}", fix="Look whether it was, then use a new key")


async def _begin(store: Store, name: str, fingerprint: str, now: Callable[[], datetime]) -> tuple[Document, bool]:
    """The note that the request is under way here, or the answer that it had before. Whether it was begun by a process
    that is gone."""
    begun: dict[str, Any] = {"asked": fingerprint, "status": 0, "body": ""}
    while True:
        document = await store.put(REQUEST, name, begun, expect=0)
        if document is not None:
            return document, False
        document = await store.get(REQUEST, name)
        if document is None:
            continue
        if document.value["asked"] != fingerprint:
            raise KeyReused("this Idempotency-Key came with another request before", fix="Make a new key")
        if document.value["status"]:
            return document, False
        stalled = now() - document.updated_at >= timedelta(seconds=STALLED_SECONDS)
        if name in _under_way or not stalled:
            raise StillRunning("the first request with this key is not answered yet", after=1.0, fix="Ask again")
        taken = await store.put(REQUEST, name, begun, expect=document.revision)
        if taken is not None:
            return taken, True


async def forget_old(store: Store, now: datetime) -> int:
    """Delete the answers that are older than a day. Return how many."""
    old = [
        (kind, found.name)
        for kind in (REQUEST, RETRIED)
        for found in await store.documents(kind)
        if now - found.updated_at > timedelta(seconds=KEPT_SECONDS)
    ]
    for kind, name in old:
        await store.delete(kind, name)
    return len(old)
