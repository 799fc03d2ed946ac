"""Comments of ours that are written once: each has a line by which it is found again after a crash.

The line is hidden where the platform has Markdown with HTML comments. Elsewhere it is shown, as whatever would hide it
is taken out by the platform.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from harken.ticket import Actor, Comment
from harken.tickets.comment_marks import NOTE

__all__ = ["LONGEST_NOTE", "find_note", "inert", "note", "note_line"]

LONGEST_NOTE = 30_000
"""The shortest limit of a platform for a comment, with room for our line."""

_OUR_LINES = re.compile("harken-(?=receipt|notice|note)")
_HIDING = frozenset({"github", "gitlab"})
# the end of a bot's name, which has to be written exactly in trust.bots, is no link by itself
_ACTIVE = re.compile(
    r"(?P<bot>\[bot\](?![(\[:]))|[`<>@\[\]*_#|\\\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]+"
)


def note_line(key: str) -> str:
    """The line of the comment that is written once for this key. It tells nothing about the key."""
    return f"{NOTE} {hashlib.sha256(key.encode()).hexdigest()[:16]}"


def note(text: str, key: str, kind: str) -> str:
    """The comment with its line. What is too long is cut here, as a platform would cut the line off too."""
    line, text = note_line(key), _OUR_LINES.sub("harken\u2011", text)
    body = text if len(text) <= LONGEST_NOTE else text[: LONGEST_NOTE - 1] + "…"
    return f"<!--\n{line}\n-->\n{body}" if kind in _HIDING else f"{body}\n\n{line}"


def find_note(comments: Iterable[Comment], key: str, own: Actor) -> Comment | None:
    """The comment that we wrote for this key. A copy of it by somebody else does not count."""
    line = note_line(key)
    return next((one for one in comments if line in one.text and _is_by(one.author, own)), None)


def _is_by(author: Actor | None, own: Actor) -> bool:
    return author is not None and author.id == own.id


def inert(text: str, longest: int = 100) -> str:
    """A stranger's name or label as plain text: no markup, no mention, no line break."""
    plain = " ".join(_ACTIVE.sub(lambda found: found["bot"] or " ", text).split())
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
