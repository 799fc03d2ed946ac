"""Builds statements with bindings: many rows as array parameters, and WHERE clauses from the given filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["UnnestRows", "Where"]


class UnnestRows:
    """Rows of fixed columns as the parameters of one statement: `UnnestRows(id="bigint", key="bytea")`.

    A column with the same value in every row is sent once instead of as an array. The first column is always an
    array, which gives the number of rows.
    """

    def __init__(self, **types: str) -> None:
        self._types = list(types.items())
        self._queries: dict[tuple[int, tuple[bool, ...]], str] = {}

    def select(self, rows: Sequence[Sequence[Any]], after: int) -> tuple[str, list[Any]]:
        """A query that returns the rows, and its parameters. They are numbered after the `after` first ones."""
        columns = list(zip(*rows, strict=True))
        constant = tuple(n > 0 and column.count(column[0]) == len(column) for n, column in enumerate(columns))
        query = self._queries.get((after, constant))
        if query is None:
            query = self._queries[after, constant] = self._query(after, constant)
        return query, [column[0] if same else list(column) for column, same in zip(columns, constant, strict=True)]

    def _query(self, after: int, constant: tuple[bool, ...]) -> str:
        selected: list[str] = []
        arrays: list[str] = []
        names: list[str] = []
        for number, ((name, kind), same) in enumerate(zip(self._types, constant, strict=True), start=after + 1):
            selected.append(f"${number}::{kind} AS {name}" if same else name)
            if not same:
                arrays.append(f"${number}::{kind}[]")
                names.append(name)
        return f"SELECT {', '.join(selected)} FROM unnest({', '.join(arrays)}) AS given({', '.join(names)})"


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

    def clause(self, order: str, limit: int) -> tuple[str, list[Any]]:
        """WHERE, ORDER BY and LIMIT, and the bindings."""
        conditions = " AND ".join(self._conditions) or "true"
        return f"WHERE {conditions} ORDER BY {order} LIMIT ${len(self._bindings) + 1}", [*self._bindings, limit]
