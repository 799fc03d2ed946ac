"""Rows as parameters of one statement: an array for each column that varies, one value for each that does not.

The driver looks at every element of an array, which for many columns costs more than the server takes to write the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Spread"]


class Spread:
    """Columns with their types. The first one is a key: it is always spread, so that there are as many rows."""

    def __init__(self, **types: str) -> None:
        self._types = list(types.items())
        self._texts: dict[tuple[int, tuple[bool, ...]], str] = {}

    def of(self, rows: Sequence[Sequence[Any]], fixed: int) -> tuple[str, list[Any]]:
        """A query that gives the rows, and its parameters, which follow `fixed` others of the statement."""
        columns = list(zip(*rows, strict=True))
        alike = tuple(n > 0 and column.count(column[0]) == len(column) for n, column in enumerate(columns))
        text = self._texts.get((fixed, alike))
        if text is None:
            text = self._texts[fixed, alike] = self._text(fixed, alike)
        return text, [column[0] if same else list(column) for column, same in zip(columns, alike, strict=True)]

    def _text(self, fixed: int, alike: tuple[bool, ...]) -> str:
        selected: list[str] = []
        arrays: list[str] = []
        names: list[str] = []
        for number, ((name, kind), same) in enumerate(zip(self._types, alike, strict=True), start=fixed + 1):
            selected.append(f"${number}::{kind} AS {name}" if same else name)
            if not same:
                arrays.append(f"${number}::{kind}[]")
                names.append(name)
        return f"SELECT {', '.join(selected)} FROM unnest({', '.join(arrays)}) AS spread({', '.join(names)})"
