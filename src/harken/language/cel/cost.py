"""Estimate the cost of a condition before it runs.

CEL stops after 10,000 iterations and 32 levels, but does not count the bytes that text functions read and build, and
`map` and `filter` copy their list at every iteration: a short expression reaches gigabytes. So the bytes are estimated
from the tree. Most conditions are cheap for every event, which is found out once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.language.cel.parser import Node, literal_text, loop_variable
from harken.language.cel.python_to_cel_values import size_of

__all__ = ["ITERATIONS", "Cost"]

ITERATIONS = 10_000
LIMIT = 256 * 1024 * 1024

_ANY_EVENT = (1024 * 1024, ITERATIONS)
_SMALL_EVENT = (1024, 16)
_SCALAR = 16.0
# cost per byte, as measured: comparing is cheap, RE2 and the text functions are not
_READING, _REGEX, _BUILDING = 1 / 8, 4.0, 16.0
_COPIED_PER_TURN = 16.0
_OLD_AND_NEW = 2
_READERS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in", "-", "*", "/", "%", "&&", "||", "!"}) | frozenset(
    {"contains", "startsWith", "endsWith", "has", "size", "indexOf", "lastIndexOf", "hasValue"}
)

# the bytes of a value, and how many items it has
_Extent = tuple[float, float]
_ONE: _Extent = (_SCALAR, 1.0)


class Cost:
    """The cost of one condition: `unlimited` if every event is cheap, `impossible` if even a small one is not."""

    __slots__ = ("_allowed", "_tree", "impossible", "unlimited")

    def __init__(self, tree: Node) -> None:
        self._tree = tree
        self._allowed: dict[tuple[int, int], bool] = {}
        self.unlimited = _work(tree, *_ANY_EVENT) <= LIMIT
        self.impossible = not self.unlimited and _work(tree, *_SMALL_EVENT) > LIMIT

    def allows(self, data: Mapping[str, Any]) -> bool:
        """Return whether the condition may be evaluated on these values."""
        extent = (size_of(data).bit_length(), _longest(data).bit_length())
        if extent not in self._allowed:
            self._allowed[extent] = _work(self._tree, 1 << extent[0], 1 << extent[1]) <= LIMIT
        return self._allowed[extent]


def _longest(data: Any) -> int:
    longest = 1
    waiting: list[Any] = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            longest = max(longest, len(value))
            waiting.extend(value.values() if isinstance(value, dict) else value)
    return longest


def _work(node: Node, size: int, longest: int) -> float:
    estimate = _Estimate(size, longest)
    estimate.visit(node)
    return estimate.work


class _Estimate:
    def __init__(self, size: int, longest: int) -> None:
        self._size = float(size)
        self._longest = float(longest)
        self._variables: dict[str, float] = {}
        self._times = 1.0
        self.work = 0.0

    def visit(self, node: Node) -> _Extent:
        """Return an upper bound of the value's extent, and add the cost of computing it."""
        if node.kind == "literal":
            return len(node.text) + _SCALAR, 1.0
        if node.kind == "name":
            return self._variables.get(node.text, self._size), self._longest
        variable = loop_variable(node)
        if variable is not None:
            return self._loop(node, variable)
        parts = [self.visit(part) for part in node.parts]
        if node.kind in ("field", "item"):
            return parts[0][0], self._longest
        if node.text in _READERS or node.text == "matches":
            self._spend(sum(part[0] for part in parts) * (_REGEX if node.text == "matches" else _READING))
            return _ONE
        built = self._built(node, parts)
        self._spend(built[0] * _BUILDING)
        return built

    def _spend(self, amount: float) -> None:
        self.work += amount * self._times

    def _built(self, node: Node, parts: list[_Extent]) -> _Extent:
        size = sum(part[0] for part in parts) + _SCALAR
        if node.kind == "list":
            return size, float(len(parts))
        if node.text in ("replace", "join", "format"):
            return parts[0][0] * self._growth(node) + size, 1.0
        if node.text == "split":
            return size * _SCALAR, size
        return size, sum(part[1] for part in parts)

    def _growth(self, node: Node) -> float:
        """Return how much longer a text may get; a text that is not a literal may be as long as the event."""
        known = [literal_text(part) for part in node.parts]
        if node.text == "format":
            return 1000.0 * node.parts[0].text.count("%") if node.parts[0].kind == "literal" else self._size
        if node.text == "join":
            return float(len(known[-1] or "")) if len(known) == 1 or known[-1] is not None else self._size
        old, new = (known[1], known[2]) if len(known) > _OLD_AND_NEW else (None, None)
        return len(new) / len(old) if old and new is not None else self._size

    def _loop(self, node: Node, variable: str) -> _Extent:
        size, count = self.visit(node.parts[0])
        turns = max(1.0, min(count, ITERATIONS))
        outer, hidden = self._times, self._variables.get(variable)
        self._times = min(outer * turns, ITERATIONS)
        self._variables[variable] = size / turns
        bodies = [self.visit(part) for part in node.parts[2:]]
        self._spend(_SCALAR)
        self._times = outer
        del self._variables[variable]
        if hidden is not None:
            self._variables[variable] = hidden
        if node.text not in ("map", "filter"):
            return _ONE
        self._spend(turns * turns * _COPIED_PER_TURN)
        return (size if node.text == "filter" else (bodies[-1][0] + _SCALAR) * turns), turns
