"""The difference between two texts, as people read it, and never more than a message can hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

__all__ = ["Change", "change_of", "shortened"]

CONTEXT = 2
LONGEST = 10_000
# comparing takes the square of this in the worst case
_MOST_LINES = 1_000
_LONGEST_LINE = 500
_BEYOND = "(the change is further down than what is kept of the page)"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """`diff` is unified; `added` and `removed` are its lines alone."""

    old: str | None
    new: str
    diff: str
    added: str
    removed: str


def change_of(old: str | None, new: str) -> Change:
    """What was changed; against None, which is a page that was never seen, everything is new."""
    before, after = (old or "").split("\n") if old else [], new.split("\n") if new else []
    lines = list(_unified(before, after))
    return Change(
        old=old,
        new=new,
        diff=shortened("\n".join(lines) or _BEYOND),
        added=shortened("\n".join(_signed(lines, "+"))),
        removed=shortened("\n".join(_signed(lines, "-"))),
    )


def shortened(text: str, most: int = LONGEST) -> str:
    """The text if it fits, else its beginning and how much is missing."""
    return text if len(text) <= most else f"{text[:most]}… [{len(text) - most:,} more characters]"


def _signed(lines: Iterable[str], sign: str) -> list[str]:
    return [line[1:] for line in lines if line.startswith(sign)]


def _unified(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    start, old, new, cut = _middle(before, after)
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT):
        if group[0][0] == "equal" and len(group) == 1:
            continue
        yield f"@@ -{start + group[0][1] + 1} +{start + group[0][3] + 1} @@"
        for tag, first, last, from_, to in group:
            if tag == "equal":
                yield from (f" {shortened(line, _LONGEST_LINE)}" for line in old[first:last])
                continue
            yield from (f"-{shortened(line, _LONGEST_LINE)}" for line in old[first:last])
            yield from (f"+{shortened(line, _LONGEST_LINE)}" for line in new[from_:to])
    if cut:
        yield f"… [{cut:,} more lines were not compared]"


def _middle(before: Sequence[str], after: Sequence[str]) -> tuple[int, Sequence[str], Sequence[str], int]:
    """What is left without the lines that both begin and end with, but for their context; where it starts; the rest."""
    shortest = min(len(before), len(after))
    head = next((at for at in range(shortest) if before[at] != after[at]), shortest)
    tail = next((at for at in range(shortest - head) if before[-1 - at] != after[-1 - at]), shortest - head)
    start, tail = max(0, head - CONTEXT), max(0, tail - CONTEXT)
    old, new = before[start : len(before) - tail], after[start : len(after) - tail]
    return start, old[:_MOST_LINES], new[:_MOST_LINES], max(0, len(old) - _MOST_LINES, len(new) - _MOST_LINES)
