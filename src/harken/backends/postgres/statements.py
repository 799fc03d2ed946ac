"""Statements with bindings: rows as array parameters, and only the conditions that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Spread", "Where"]


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


class Where:
    """`where.and_("id<{}", 7)` adds `id<$1`. A value of None adds nothing."""

    def __init__(self) -> None:
        self._conditions: list[str] = []
        self._bindings: list[Any] = []

    def and_(self, condition: str, value: Any) -> Where:
        if value is not None:
            self._bindings.append(value)
            self._conditions.append(condition.format(f"${len(self._bindings)}"))
        return self

    def ends(self, order: str, limit: int) -> tuple[str, list[Any]]:
        """The text from WHERE on, and the bindings."""
        conditions = " AND ".join(self._conditions) or "true"
        return f"WHERE {conditions} ORDER BY {order} LIMIT ${len(self._bindings) + 1}", [*self._bindings, limit]
