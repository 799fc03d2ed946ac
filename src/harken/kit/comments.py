"""Comments that steps write. Each ends with a mark of its step, by which a step that is tried again finds its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from harken.errors import NeedsAttention
from harken.kit.fields import text_of
from harken.kit.json_api import RestApi
from harken.source import Call

__all__ = ["comment_once", "nonempty_text", "step_mark"]

MOST_PAGES = 50
PER_PAGE = 100
_HIDDEN_LENGTH = 16


def nonempty_text(longest: int) -> Callable[[str], str]:
    """A validator: ValueError when the text is empty, and of one that is too long its beginning."""

    def checked(value: str) -> str:
        if not value.strip():
            raise ValueError("is empty")
        return value if len(value) <= longest else value[: longest - 1] + "…"

    return checked


def step_mark(call: Call, length: int = 12) -> str:
    """Hex digits that are the same for every try of a step."""
    return hashlib.sha256(call.idempotency_key.encode()).hexdigest()[:length]


async def comment_once(api: RestApi, url: str, call: Call, text: str, about: str) -> tuple[Any, bool]:
    """The comment in Markdown, and whether it was written now. Its mark is not seen by those who read it."""
    mark = f"<!-- harken {step_mark(call, _HIDDEN_LENGTH)} -->"
    first = await api.ask(url, [("per_page", PER_PAGE)])
    comments, whole = await api.rest(first, MOST_PAGES)
    for found in comments:
        if mark in (text_of(found, "body") or ""):
            return found, False
    if not whole:
        message = f"{about} has more than {MOST_PAGES * PER_PAGE:,} comments, and ours cannot be looked for among them"
        raise NeedsAttention(message, fix="Comment on another issue")
    # where the look ended: a project that was renamed is somewhere else
    written = await api.write("POST", str(first.url.with_query(None)), {"body": f"{text}\n\n{mark}"})
    api.told(written, "")
    return written.json(), True
