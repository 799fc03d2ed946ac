"""Patterns for paths: `*` and `?` stay within a folder, `**` matches any number of folders.

A pattern without a slash is compared with the last name of a path only, so that `*.csv` finds files at any depth.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["Globs", "glob_regex"]


def glob_regex(pattern: str) -> str:
    """Return the regular expression of a pattern, for whole paths. Raise ValueError for a pattern without an end."""
    parts = pattern.strip("/").split("/")
    if "" in parts:
        raise ValueError("an empty name in a pattern matches nothing")
    if len(parts) == 1 and parts[0] != "**":
        return "(?:.*/)?" + _name_regex(parts[0])
    last = len(parts) - 1
    pieces = [
        (".*" if place == last else "(?:.*/)?") if part == "**" else _name_regex(part) + ("" if place == last else "/")
        for place, part in enumerate(parts)
    ]
    return "".join(pieces)


def _name_regex(part: str) -> str:
    pieces, place = list[str](), 0
    while place < len(part):
        character = part[place]
        place += 1
        if character == "*":
            # several stars in a row are one
            pieces += [] if pieces and pieces[-1] == "[^/]*" else ["[^/]*"]
        elif character == "?":
            pieces.append("[^/]")
        elif character == "[":
            end = part.find("]", place + 1)
            if end < 0:
                raise ValueError(f"the [ in {part!r} has no end")
            pieces.append(_class_regex(part[place:end]))
            place = end + 1
        else:
            pieces.append(re.escape(character))
    return "".join(pieces)


def _class_regex(inside: str) -> str:
    start = "^/" if inside[0] in "!^" else ""
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[1:] if start else inside)
    try:
        re.compile(f"[{start}{escaped}]")
    except re.error:
        raise ValueError(f"[{inside}] is not a set of characters") from None
    return f"[{start}{escaped}]"


class Globs:
    """Several patterns as one test. Without patterns nothing matches."""

    def __init__(self, patterns: Sequence[str]) -> None:
        joined = "|".join(f"(?:{glob_regex(pattern)})" for pattern in patterns)
        self._match = re.compile(joined, re.DOTALL).fullmatch if patterns else None

    def __bool__(self) -> bool:
        return self._match is not None

    def match(self, path: str) -> bool:
        return self._match is not None and self._match(path) is not None
