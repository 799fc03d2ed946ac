"""The lines by which our own comments are recognised, and the signed receipt from which memory can be rebuilt.

A receipt is one line of the sticky comment, never its last: platforms and clients cut long comments at the end. Its
signature covers the tracker and the ticket, so that a copy of it on another ticket proves nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator
from urllib.parse import quote, unquote

import msgspec

from harken.ticket import Comment

__all__ = ["NOTE", "Receipt", "is_ours", "is_sticky", "notice_line", "receipt_key", "receipt_line", "receipts_in"]

NOTE = "harken-note"
"""The line of a comment of ours that is neither the sticky one nor asks a person for something."""

_MARK = re.compile(r"^`?harken-(?:receipt|notice|note)\b", re.MULTILINE)
_RECEIPT = re.compile(
    r"^`?harken-receipt v1 run=(\S{0,200}) pipeline=(\S{0,600}) revision=(\S{0,200}) state=(\S{1,40})"
    r" mac=([0-9a-f]{32})`?[ \t]*$",
    re.MULTILINE,
)


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What our account has done on a ticket. `state` is that of the run, such as `done`."""

    run: str
    pipeline: str
    revision: str
    state: str


def receipt_key(secret: str) -> bytes:
    """The key of receipts, derived from the secret of the installation, which must outlive the store."""
    return hmac.digest(secret.encode(), b"harken receipts of tickets", hashlib.sha256)


def receipt_line(receipt: Receipt, key: bytes, tracker: str, ticket: str) -> str:
    fields = [quote(field, safe="") for field in (receipt.run, receipt.pipeline, receipt.revision, receipt.state)]
    run, pipeline, revision, state = fields
    mac = _mac(fields, key, tracker, ticket)
    return f"harken-receipt v1 run={run} pipeline={pipeline} revision={revision} state={state} mac={mac}"


def receipts_in(text: str, key: bytes, tracker: str, ticket: str) -> Iterator[Receipt]:
    """The receipts that were signed with this key for this ticket."""
    for *fields, mac in _RECEIPT.findall(text):
        if hmac.compare_digest(mac, _mac(fields, key, tracker, ticket)):
            run, pipeline, revision, state = map(unquote, fields)
            yield Receipt(run=run, pipeline=pipeline, revision=revision, state=state)


def notice_line(stage: str) -> str:
    """The line of a comment that asks a person for something, so that it is written once."""
    return f"harken-notice {hashlib.sha256(stage.encode()).hexdigest()[:16]}"


def is_ours(comment: Comment) -> bool:
    """Whether we wrote the comment: it is no answer of a person, and nothing that a run should read."""
    return _MARK.search(comment.text) is not None


def is_sticky(comment: Comment) -> bool:
    return _RECEIPT.search(comment.text) is not None


def _mac(fields: list[str], key: bytes, tracker: str, ticket: str) -> str:
    message = "\n".join([*fields, quote(tracker, safe=""), quote(ticket, safe="")])
    return hmac.digest(key, message.encode(), hashlib.sha256).hex()[:32]
