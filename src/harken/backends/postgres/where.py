"""Conditions of a query with their bindings, so that the planner sees only those that are asked for."""

from __future__ import annotations

from typing import Any

__all__ = ["Where"]


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
