"""Explain why a condition is not true: the clause that decided, the values it read, and CEL's errors in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from harken.errors import Misconfigured
from harken.language.cel.cost import ITERATIONS
from harken.language.cel.parser import Node, Path, literal_text
from harken.language.cel.python_to_cel_values import show
from harken.language.dotted_paths import MISSING, step
from harken.language.json_kinds import kind_of
from harken.suggest import suggest_clause

if TYPE_CHECKING:
    from harken.language.cel.condition import Bound, Condition, Outcome

__all__ = [
    "check_patterns",
    "clauses",
    "explain_outcome",
    "format_path",
    "shorten",
    "values",
    "with_article",
]

_LONGEST = 200
_CODE = re.compile(r"^[A-Z_]+: ")
_KEY = re.compile(r'Key not found in map : "?(.*?)"?(?: \[|$)', re.DOTALL)
_OVERLOAD = re.compile(r"No matching overloads found : ([^\s(]+)(?:\((.*)\))?", re.DOTALL)
_UNBOUND = re.compile(r'No value with name "([^"]+)" found')
_NOT_A_FIELD = "Applying SELECT to non-message type"
_OWN_ERRORS = {
    "REFUSED": "{0}",
    "NOT_BOOL": "the condition gave {1}, not true or false",
}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def clauses(condition: Condition) -> list[Condition]:
    """Return the parts that && and || join, at any depth, in the order of the source."""
    return [condition.clause(node) for node in _leaves(condition.tree)]


def _leaves(node: Node) -> Iterator[Node]:
    if node.kind not in ("and", "or"):
        yield node
        return
    for part in node.parts:
        yield from _leaves(part)


def explain_outcome(condition: Condition, bound: Bound, outcome: Outcome, message: str) -> str:
    """Return in one line why the outcome is not true."""
    tree = condition.tree
    if tree.kind not in ("and", "or"):
        if outcome == "false":
            return f"{condition.label} is false{_values_text(condition, bound)}"
        return f"{_describe_error(condition, bound, message)} (in {condition.label})"
    deciding = _deciding_reasons(condition, bound, outcome)
    if tree.kind == "or" and outcome == "false":
        return shorten("; ".join(deciding), 4 * _LONGEST)
    return next(deciding, "") or _without_code(message)


def _deciding_reasons(condition: Condition, bound: Bound, outcome: Outcome) -> Iterator[str]:
    # when an || is false, all its clauses are; otherwise the first clause with the outcome of the whole decides
    for part in condition.tree.parts:
        clause = condition.clause(part)
        own, message = clause.outcome(bound)
        if own == outcome:
            yield explain_outcome(clause, bound, own, message)


def values(condition: Condition, variables: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the value at each path that a condition reads; None for a missing one."""
    found: dict[str, str | None] = {}
    for text, path in condition.reads:
        value: Any = variables
        for name in path:
            value = step(value, name)
        found[text] = None if value is MISSING else show(value)
    return found


def _values_text(condition: Condition, bound: Bound) -> str:
    # a thousand triggers on one feed often read the same field
    text = bound.described.get(condition.reads)
    if text is None:
        text = bound.described[condition.reads] = _describe_values(values(condition, bound.variables))
    return text


def _describe_values(found: Mapping[str, str | None]) -> str:
    text = ", ".join(f"{path} is not there" if value is None else f"{path} = {value}" for path, value in found.items())
    return f" ({shorten(text, 2 * _LONGEST)})" if text else ""


def _describe_error(condition: Condition, bound: Bound, message: str) -> str:
    code, _, rest = message.partition(": ")
    if code in _OWN_ERRORS:
        return _OWN_ERRORS[code].format(rest, with_article(rest))
    if "Iteration budget exceeded" in message:
        return f"it loops more than {ITERATIONS} times"
    if unbound := _UNBOUND.search(message):
        return f"{unbound.group(1)} is not available here"
    if overload := _OVERLOAD.search(message):
        kinds = overload.group(2) or "this kind of value"
        return f"{overload.group(1).strip('_@')} does not take {kinds}{_values_text(condition, bound)}"
    return (
        _missing_field(condition, bound.variables, message)
        or f"{_without_code(message)}{_values_text(condition, bound)}"
    )


def _missing_field(condition: Condition, variables: Mapping[str, Any], message: str) -> str | None:
    key = _KEY.search(message)
    if key is None and _NOT_A_FIELD not in message and "Index error" not in message:
        return None
    for _, path in condition.reads:
        fault = _first_missing(path, variables)
        if fault is not None and (key is None or fault[0] == key.group(1)):
            return fault[1]
    return f"a field named {key.group(1)} is not there" if key else None


def _first_missing(path: Path, variables: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first name in a path that is missing, and a sentence about it."""
    value: Any = variables
    for at, name in enumerate(path):
        inner = step(value, name)
        if inner is MISSING:
            return str(name), _describe_missing(value, path[: at + 1])
        value = inner
    return None


def _describe_missing(value: Any, path: Path) -> str:
    name = path[-1]
    if isinstance(value, Mapping):
        return f"{format_path(path)} is not there{suggest_clause(str(name), value)}"
    if isinstance(value, list | tuple) and isinstance(name, int):
        return f"{format_path(path)} is not there: the list has {_items(len(value))}"
    kind = kind_of(value)
    return f"{format_path(path[:-1])} is {kind if kind == 'null' else with_article(kind)}, it has no field {name}"


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{number} items"


def check_patterns(condition: Condition) -> None:
    """Raise Misconfigured if a regular expression in the condition is not valid."""
    for node in _nodes(condition.tree):
        if node.kind != "call" or node.text != "matches" or literal_text(node.parts[-1]) is None:
            continue
        pattern = condition.source[node.parts[-1].start : node.parts[-1].end]
        fault = condition.evaluate_constant(f"''.matches({pattern})")
        if fault:
            raise Misconfigured(f"the pattern {pattern} cannot be used: {_without_code(fault)}")


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for part in node.parts:
        yield from _nodes(part)


def format_path(path: Path) -> str:
    text = str(path[0])
    for name in path[1:]:
        plain = isinstance(name, str) and _IDENTIFIER.fullmatch(name)
        text += f".{name}" if plain else f"[{show(name)}]"
    return text


def with_article(kind: str) -> str:
    return f"an {kind}" if kind[:1] in "aeiou" else f"a {kind}"


def shorten(text: str, limit: int = _LONGEST) -> str:
    return text if len(text) <= limit else text[:limit] + "…"


def _without_code(message: str) -> str:
    return shorten(_CODE.sub("", message), _LONGEST)
