"""Comments that steps write to an issue. Each ends with a mark, by which a retried step finds its comment."""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic import AfterValidator

from harken.errors import NeedsAttention
from harken.kit.json_api import JsonApi
from harken.kit.values_from_payload import text_of
from harken.source import Call

__all__ = ["comment_once", "nonempty_text", "step_mark"]

MAX_PAGES = 50
PER_PAGE = 100
_HIDDEN_LENGTH = 16


def nonempty_text(longest: int) -> AfterValidator:
    """A validator for `Annotated[str, …]` that refuses an empty text and cuts one that is too long."""

    def check(value: str) -> str:
        if not value.strip():
            raise ValueError("is empty")
        return value if len(value) <= longest else value[: longest - 1] + "…"

    return AfterValidator(check)


def step_mark(call: Call, length: int = 12) -> str:
    """Hexadecimal digits that are the same for every try of a step."""
    return hashlib.sha256(call.idempotency_key.encode()).hexdigest()[:length]


async def comment_once(api: JsonApi, url: str, call: Call, text: str, about: str) -> tuple[Any, bool]:
    """Write a Markdown comment unless an earlier try of this step did. Return it, and whether it was written now.

    The mark of the step is an HTML comment, which readers do not see.
    """
    mark = f"<!-- harken {step_mark(call, _HIDDEN_LENGTH)} -->"
    first = await api.get(url, [("per_page", PER_PAGE)])
    comments, complete = await api.read_list(first, MAX_PAGES)
    for found in comments:
        if mark in (text_of(found, "body") or ""):
            return found, False
    if not complete:
        message = f"{about} has more than {MAX_PAGES * PER_PAGE:,} comments, and ours cannot be looked for among them"
        raise NeedsAttention(message, fix="Comment on another issue")
    # the URL after redirects: a project that was renamed is somewhere else
    written = await api.send("POST", str(first.url.with_query(None)), json={"body": f"{text}\n\n{mark}"})
    api.check(written)
    return written.json(), True
