"""Blame: which of the clauses that && joins held an event back, and the smallest change that lets it through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from harken.errors import Misconfigured
from harken.language.cel.condition import Bound, Condition, bind, compile_condition
from harken.language.cel.explain import format_path
from harken.language.cel.parser import Node, Path, literal_text, static_path
from harken.language.dotted_paths import MISSING, step

__all__ = ["Change", "and_clauses", "failed_clauses", "smallest_change", "value_of"]

_DIRECTIONS = {"<": "<=", "<=": "<=", ">": ">=", ">=": ">="}
_SCALARS = (str, int, float, bool)
_NUMBERS = (int, float)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A clause that lets more through, in place of the one that is there; empty if the clause has to go.

    `condition` is the whole condition with it, empty if nothing is left of it.
    """

    clause: str
    condition: str


def and_clauses(condition: Condition) -> list[Condition]:
    """The clauses that all have to be true, in the order of the source; a condition without && is one clause."""
    return [condition.clause(node) for node in _conjuncts(condition.tree)]


def _conjuncts(node: Node) -> Iterator[Node]:
    if node.kind != "and":
        yield node
        return
    for part in node.parts:
        yield from _conjuncts(part)


def failed_clauses(clauses: Sequence[Condition], bound: Bound) -> tuple[int, ...]:
    """The positions of the clauses that are not true for the event: false, or an error."""
    return tuple(at for at, clause in enumerate(clauses) if clause.outcome(bound)[0] != "true")


def value_of(clause: Condition, variables: Mapping[str, Any]) -> Any:
    """The value that a clause with one path compares; MISSING if there is none, or if it reads several."""
    if len(clause.reads) != 1:
        return MISSING
    value: Any = variables
    for name in clause.reads[0][1]:
        value = step(value, name)
    return value


def smallest_change(condition: Condition, at: int, variables: Sequence[Mapping[str, Any]]) -> Change | None:
    """The smallest change of the clause at this position that lets one of the events through which only it held back.

    None if no change does, which cannot be for events that were held back by this clause alone.
    """
    node = list(_conjuncts(condition.tree))[at]
    clause = condition.clause(node)
    values = [value_of(clause, each) for each in variables]
    for written in _proposals(clause, values):
        whole = condition.source[: node.start] + written + condition.source[node.end :]
        if _lets_through(whole, variables):
            return Change(clause=written, condition=whole)
    rest = " && ".join(_wrapped(condition, part) for part in _conjuncts(condition.tree) if part is not node)
    return Change(clause="", condition=rest) if not rest or _lets_through(rest, variables) else None


def _wrapped(condition: Condition, node: Node) -> str:
    text = condition.source[node.start : node.end]
    return f"({text})" if node.kind in ("or", "choice") else text


def _lets_through(source: str, variables: Iterable[Mapping[str, Any]]) -> bool:
    try:
        changed = compile_condition(source)
    except Misconfigured:
        return False
    return any(changed.outcome(bind(each))[0] == "true" for each in variables)


def _proposals(clause: Condition, values: Sequence[Any]) -> Iterator[str]:
    """Clauses that let more through, the smallest change first."""
    tree = clause.tree
    there = [value for value in values if type(value) in _SCALARS]
    if tree.kind == "binary":
        left, right = tree.parts
        path = static_path(left)
        subject = clause.source[left.start : left.end]
        if path is not None and there:
            yield from _loosened(clause, tree.text, subject, right, there)
        if path is not None and any(value is MISSING for value in values):
            yield from _absent_too(clause, path)


def _loosened(clause: Condition, operator: str, subject: str, right: Node, values: Sequence[Any]) -> Iterator[str]:
    if operator in _DIRECTIONS and right.kind == "literal":
        numbers = [value for value in values if type(value) in _NUMBERS]
        if numbers:
            # the nearest number: of those that are too large the smallest
            nearest = min(numbers) if operator in ("<", "<=") else max(numbers)
            yield f"{subject} {_DIRECTIONS[operator]} {_literal(nearest)}"
    elif operator == "==" and right.kind == "literal":
        same = [value for value in values if type(value) is type(_constant(right))] or values
        yield f"{subject} in [{clause.source[right.start : right.end]}, {_literal(_commonest(same))}]"
    elif operator == "in" and right.kind == "list":
        listed = clause.source[right.start : right.end].rstrip()
        yield f"{subject} in {listed[:-1].rstrip().rstrip(',')}, {_literal(_commonest(values))}]"


def _absent_too(clause: Condition, path: Path) -> Iterator[str]:
    if len(path) > 1 and all(isinstance(name, str) for name in path):
        yield f"(!has({format_path(path)}) || {clause.source})"


def _commonest(values: Sequence[Any]) -> Any:
    return max(values, key=values.count) if len(values) <= 1000 else values[0]


def _constant(node: Node) -> Any:
    text = literal_text(node)
    if text is not None:
        return text
    try:
        return msgspec.json.decode(node.text)
    except msgspec.DecodeError:
        return node.text


def _literal(value: Any) -> str:
    """The value as CEL writes it, which for these is as JSON does."""
    return msgspec.json.encode(value).decode()
