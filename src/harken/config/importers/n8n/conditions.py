"""Conditions of the nodes if, filter and switch, as CEL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.config.importers.n8n.expressions import Scope, Untranslatable, cel_value

__all__ = ["condition_of", "rules_of"]

# both generations of names
_SYMBOLS: Mapping[str, str] = {
    "equal": "==",
    "equals": "==",
    "notEqual": "!=",
    "notEquals": "!=",
    "larger": ">",
    "gt": ">",
    "after": ">",
    "largerEqual": ">=",
    "gte": ">=",
    "afterOrEquals": ">=",
    "smaller": "<",
    "lt": "<",
    "before": "<",
    "smallerEqual": "<=",
    "lte": "<=",
    "beforeOrEquals": "<=",
}
_METHODS: Mapping[str, tuple[str, bool]] = {
    "contains": ("contains", True),
    "notContains": ("contains", False),
    "startsWith": ("startsWith", True),
    "notStartsWith": ("startsWith", False),
    "endsWith": ("endsWith", True),
    "notEndsWith": ("endsWith", False),
    "regex": ("matches", True),
    "notRegex": ("matches", False),
}
_LENGTHS: Mapping[str, str] = {
    "lengthEquals": "==",
    "lengthNotEquals": "!=",
    "lengthGt": ">",
    "lengthLt": "<",
    "lengthGte": ">=",
    "lengthLte": "<=",
}


def condition_of(parameters: Mapping[str, Any], scope: Scope) -> str:
    """The condition of an if or filter node, of either generation."""
    written = parameters.get("conditions")
    if not isinstance(written, dict):
        raise Untranslatable("it has no conditions", "Write the condition in CEL")
    if isinstance(written.get("conditions"), list):
        return _second_generation(written, scope)
    clauses = [
        _comparison(kind, entry.get("operation") or _usual(kind), entry.get("value1"), entry.get("value2"), scope)
        for kind, entries in written.items()
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]
    return _combine(clauses, any_of=parameters.get("combineOperation") == "any")


def rules_of(parameters: Mapping[str, Any], scope: Scope) -> list[tuple[int, str]]:
    """The rules of a switch node: the output of each, and its condition."""
    if parameters.get("mode") == "expression":
        raise Untranslatable("its output is chosen by an expression", "Write cases: with conditions")
    rules = parameters.get("rules")
    given = rules.get("values") or rules.get("rules") if isinstance(rules, dict) else None
    if not isinstance(given, list) or not given:
        raise Untranslatable("it has no rules", "Write cases: with conditions")
    made = []
    for number, rule in enumerate(given):
        if not isinstance(rule, dict):
            raise Untranslatable("a rule of it is no object")
        if isinstance(rule.get("conditions"), dict):
            made.append((number, _second_generation(rule["conditions"], scope)))
        else:
            kind = str(parameters.get("dataType") or "number")
            operation = rule.get("operation") or "equal"
            output = rule.get("output", number)
            clause = _comparison(kind, operation, parameters.get("value1"), rule.get("value2"), scope)
            made.append((output if isinstance(output, int) else number, clause))
    return made


def _second_generation(written: Mapping[str, Any], scope: Scope) -> str:
    clauses = []
    for entry in written.get("conditions") or ():
        if not isinstance(entry, dict) or not isinstance(entry.get("operator"), dict):
            raise Untranslatable("a condition of it has no operator", "Write the condition in CEL")
        operator = entry["operator"]
        kind, operation = str(operator.get("type") or "string"), str(operator.get("operation") or "equals")
        clauses.append(_comparison(kind, operation, entry.get("leftValue"), entry.get("rightValue"), scope))
    return _combine(clauses, any_of=written.get("combinator") == "or")


def _usual(kind: str) -> str:
    return "smaller" if kind == "number" else "equal"


def _combine(clauses: list[str], *, any_of: bool) -> str:
    if not clauses:
        raise Untranslatable("it has no conditions", "Write the condition in CEL")
    if len(clauses) == 1:
        return clauses[0]
    return (" || " if any_of else " && ").join(
        f"({clause})" if "&&" in clause or "||" in clause else clause for clause in clauses
    )


def _comparison(kind: str, operation: Any, left: Any, right: Any, scope: Scope) -> str:
    one, path = cel_value(left, scope)
    if operation in ("exists", "notExists"):
        if path is None or not path.fields or not isinstance(path.fields[-1], str):
            raise Untranslatable(f"{operation} needs a field", "Write the condition in CEL")
        return f"has({one})" if operation == "exists" else f"!has({one})"
    if operation in ("true", "false"):
        return one if operation == "true" else f"!{one}"
    if operation in ("empty", "isEmpty", "notEmpty", "isNotEmpty"):
        return f"size({one}) {'==' if operation in ('empty', 'isEmpty') else '>'} 0"
    if kind == "number" and isinstance(right, str) and not right.startswith("="):
        right = _number(right)
    if kind == "boolean" and right is None:
        right = True
    other, _ = cel_value(right, scope)
    if operation in _SYMBOLS:
        if kind == "dateTime":
            one, other = f"timestamp({one})", f"timestamp({other})"
        return f"{one} {_SYMBOLS[operation]} {other}"
    if operation in _METHODS:
        method, positive = _METHODS[operation]
        if kind == "array":
            made = f"{other} in {one}"
            return made if positive else f"!({made})"
        return f"{'' if positive else '!'}{one}.{method}({other})"
    if operation in _LENGTHS:
        return f"size({one}) {_LENGTHS[operation]} {other}"
    raise Untranslatable(f"the comparison {operation} of {kind} cannot be translated", "Write the condition in CEL")


def _number(text: str) -> float | int | str:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
