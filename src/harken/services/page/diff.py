"""The difference between two texts, as a unified diff that is short enough for a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

__all__ = ["Change", "change_of", "shorten"]

CONTEXT = 2
LONGEST = 10_000
# comparing takes quadratic time in the worst case
_MOST_LINES = 1_000
_LONGEST_LINE = 500
_BEYOND_KEPT = "(the change is further down than what is kept of the page)"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """`diff` is a unified diff; `added` and `removed` are its changed lines."""

    old: str | None
    new: str
    diff: str
    added: str
    removed: str


def change_of(old: str | None, new: str) -> Change:
    """The difference; if `old` is None, because the page was never read, everything is new."""
    before, after = (old or "").split("\n") if old else [], new.split("\n") if new else []
    lines = list(_unified(before, after))
    return Change(
        old=old,
        new=new,
        diff=shorten("\n".join(lines) or _BEYOND_KEPT),
        added=shorten("\n".join(_lines_with(lines, "+"))),
        removed=shorten("\n".join(_lines_with(lines, "-"))),
    )


def shorten(text: str, most: int = LONGEST) -> str:
    """The text if it fits, else its beginning and how much is missing."""
    return text if len(text) <= most else f"{text[:most]}… [{len(text) - most:,} more characters]"


def _lines_with(lines: Iterable[str], sign: str) -> list[str]:
    return [line[1:] for line in lines if line.startswith(sign)]


def _unified(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    start, old, new, cut = _changed_part(before, after)
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT):
        if group[0][0] == "equal" and len(group) == 1:
            continue
        yield f"@@ -{start + group[0][1] + 1} +{start + group[0][3] + 1} @@"
        for tag, first, last, from_, to in group:
            if tag == "equal":
                yield from (f" {shorten(line, _LONGEST_LINE)}" for line in old[first:last])
                continue
            yield from (f"-{shorten(line, _LONGEST_LINE)}" for line in old[first:last])
            yield from (f"+{shorten(line, _LONGEST_LINE)}" for line in new[from_:to])
    if cut:
        yield f"… [{cut:,} more lines were not compared]"


def _changed_part(before: Sequence[str], after: Sequence[str]) -> tuple[int, Sequence[str], Sequence[str], int]:
    """Without the common lines at the beginning and end, except their context: where it starts, both parts, and how
    many lines were cut off.
    """
    shortest = min(len(before), len(after))
    head = next((at for at in range(shortest) if before[at] != after[at]), shortest)
    tail = next((at for at in range(shortest - head) if before[-1 - at] != after[-1 - at]), shortest - head)
    start, tail = max(0, head - CONTEXT), max(0, tail - CONTEXT)
    old, new = before[start : len(before) - tail], after[start : len(after) - tail]
    return start, old[:_MOST_LINES], new[:_MOST_LINES], max(0, len(old) - _MOST_LINES, len(new) - _MOST_LINES)
