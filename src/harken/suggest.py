"""Suggestions for a name that does not exist: "Did you mean …?" in the few forms that messages need."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

__all__ = ["did_you_mean", "find_similar", "suggest_clause", "suggest_fix", "suggest_quoted"]

_MOST_LISTED = 12
_MOST_LISTED_QUOTED = 25
# what a service replies can have any number of keys, and a wrong name any length
_MOST_KEYS = 500
_LONGEST_NAME = 64


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `Did you mean x?`, or an empty text when no known name is similar."""
    near = _closest(name, sorted(known))
    return f"Did you mean {near[0]}?" if near else ""


def suggest_fix(name: str, known: Iterable[str]) -> str:
    """Return the sentence that mends a wrong name: the nearest known name, else the first known names."""
    names = sorted(known)
    if not names:
        return "There are none"
    listed = ", ".join(names[:_MOST_LISTED]) + (", …" if len(names) > _MOST_LISTED else "")
    return did_you_mean(name, names) or f"There are: {listed}"


def suggest_quoted(name: str, known: Iterable[str]) -> str:
    """Return `Did you mean "x"?`, all known names when they are few, or an empty text."""
    names = sorted(known)
    if near := _closest(name, names):
        return f'Did you mean "{near[0]}"?'
    return f"Known are: {', '.join(names)}" if 0 < len(names) <= _MOST_LISTED_QUOTED else ""


def suggest_clause(name: str, known: Iterable[Any]) -> str:
    """Return `; did you mean x?` to end a sentence with, or an empty text. Keys that are not texts are ignored."""
    near = _closest(name, islice((key for key in known if isinstance(key, str)), _MOST_KEYS))
    return f"; did you mean {near[0]}?" if near else ""


def find_similar(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return up to three known names: equal but for case, then those that contain the name, then similar ones."""
    names, folded = list(known), name.casefold()
    same = [other for other in names if other.casefold() == folded]
    longer = [other for other in names if folded in other.casefold()] if len(name) > 2 else []
    return tuple(dict.fromkeys(same + longer + _closest(name, names, most=3, cutoff=0.7)))[:3]


def _closest(name: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    # imported late: most commands never have to suggest anything
    from difflib import get_close_matches

    names = {other.casefold(): other for other in known}
    return [names[near] for near in get_close_matches(name.casefold()[:_LONGEST_NAME], names, n=most, cutoff=cutoff)]
