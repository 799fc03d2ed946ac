"""Conditions of the nodes if, filter and switch, as CEL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from harken.config.importers import pattern_of
from harken.config.importers.n8n.expressions import Scope, Untranslatable, cel_value

__all__ = ["condition_of", "fallback_of", "rules_of"]

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
# what stands for a side that was left as it was: exports do not have it
_UNWRITTEN: Mapping[str, bool | int | str] = {"boolean": False, "number": 0, "string": ""}
_USUAL: Mapping[str, str] = {"number": "smaller", "dateTime": "after"}
# comparisons that can be written as a pattern, and thus without regard to case
_PATTERNS: Mapping[str, tuple[str, bool]] = {
    "equal": ("^{}$", True),
    "equals": ("^{}$", True),
    "notEqual": ("^{}$", False),
    "notEquals": ("^{}$", False),
    "contains": ("{}", True),
    "notContains": ("{}", False),
    "startsWith": ("^{}", True),
    "notStartsWith": ("^{}", False),
    "endsWith": ("{}$", True),
    "notEndsWith": ("{}$", False),
}
_REGEX = re.compile(r"/(.*)/([a-z]*)", re.DOTALL)
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
        return _second_generation(written, scope, parameters)
    clauses = [
        _first_generation(kind, entry, entry.get("value1"), scope)
        for kind, entries in written.items()
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]
    any_of = parameters.get("combineOperation") == "any" or parameters.get("combineConditions") == "OR"
    return _combine(clauses, any_of=any_of)


def rules_of(parameters: Mapping[str, Any], scope: Scope, *, version: float) -> list[tuple[int, str]]:
    """The rules of a switch node: the output of each, and its condition."""
    if parameters.get("mode") == "expression":
        raise Untranslatable("its output is chosen by an expression", "Write cases: with conditions")
    rules = parameters.get("rules")
    given = rules.get("values") or rules.get("rules") if isinstance(rules, dict) else None
    if not isinstance(given, list) or not given:
        raise Untranslatable("it has no rules", "Write cases: with conditions")
    if len(given) > 1 and _options(parameters).get("allMatchingOutputs"):
        raise Untranslatable(
            "it goes to every output that fits, and a switch here to the first", "Write an if for each"
        )
    made = []
    for number, rule in enumerate(given):
        if not isinstance(rule, dict):
            raise Untranslatable("a rule of it is no object")
        if isinstance(rule.get("conditions"), dict):
            made.append((number, _second_generation(rule["conditions"], scope, parameters)))
        else:
            kind = str(parameters.get("dataType") or "number")
            # the first version names an output for each rule, and leaves out the first of them
            output = rule.get("output", 0 if version < 2 else number)
            clause = _first_generation(kind, rule, parameters.get("value1"), scope)
            made.append((output if isinstance(output, int) else number, clause))
    return made


def fallback_of(parameters: Mapping[str, Any], rules: int) -> int | None:
    """The output of a switch node for what no rule fits; None if that is dropped."""
    wanted = _options(parameters).get("fallbackOutput", parameters.get("fallbackOutput"))
    if wanted in ("extra", "last"):
        return rules
    return wanted if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 0 else None


def _options(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    options = parameters.get("options")
    return options if isinstance(options, dict) else {}


def _ignores_case(written: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    return _options(parameters).get("ignoreCase") is True or _options(written).get("caseSensitive") is False


def _converts_types(written: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    """Whether 200 is equal to the text "200"."""
    loose = parameters.get("looseTypeValidation") or _options(parameters).get("looseTypeValidation")
    return loose is True or _options(written).get("typeValidation") == "loose"


def _first_generation(kind: str, entry: Mapping[str, Any], left: Any, scope: Scope) -> str:
    operation = str(entry.get("operation") or _USUAL.get(kind, "equal"))
    sides = (left, entry.get("value2"))
    if kind == "dateTime" and None in sides:
        raise Untranslatable("it compares with a time that is not written", "Write the condition in CEL")
    one, other = (_UNWRITTEN.get(kind) if side is None else side for side in sides)
    return _comparison(kind, operation, one, other, scope)


def _second_generation(written: Mapping[str, Any], scope: Scope, parameters: Mapping[str, Any]) -> str:
    clauses = []
    ignore_case, loose = _ignores_case(written, parameters), _converts_types(written, parameters)
    entries = written.get("conditions")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("operator"), dict):
            raise Untranslatable("a condition of it has no operator", "Write the condition in CEL")
        operator = entry["operator"]
        kind, operation = str(operator.get("type") or "string"), str(operator.get("operation") or "equals")
        left, right = entry.get("leftValue"), entry.get("rightValue")
        if kind == "boolean":
            right = (
                {None: True, "true": True, "false": False}.get(right, right)
                if not isinstance(right, list | dict)
                else right
            )
        if ignore_case and kind == "string" and operation in _PATTERNS:
            clauses.append(_without_case(operation, left, right, scope, loose=loose))
        else:
            clauses.append(_comparison(kind, operation, left, right, scope, ignore_case=ignore_case, loose=loose))
    return _combine(clauses, any_of=written.get("combinator") == "or")


def _combine(clauses: list[str], *, any_of: bool) -> str:
    if not clauses:
        raise Untranslatable("it has no conditions", "Write the condition in CEL")
    if len(clauses) == 1:
        return clauses[0]
    return (" || " if any_of else " && ").join(
        f"({clause})" if "&&" in clause or "||" in clause else clause for clause in clauses
    )


def _without_case(operation: str, left: Any, right: Any, scope: Scope, *, loose: bool) -> str:
    if not isinstance(right, str) or right.startswith("="):
        message = "it compares with a value and does not regard upper and lower case"
        raise Untranslatable(message, "Write the condition in CEL, with lowerAscii()")
    form, positive = _PATTERNS[operation]
    one, _ = cel_value(left, scope)
    other, _ = cel_value(f"(?i){form.format(pattern_of(right))}", scope)
    return f"{'' if positive else '!'}{_converted('string', one) if loose else one}.matches({other})"


def _converted(kind: str, value: str) -> str:
    """The value as n8n compares it where types are converted; only a value that is known is that already."""
    if kind == "number":
        return f"{value}.0" if value.lstrip("-").isdigit() else f"double({value})"
    return value if value.startswith('"') else f"string({value})"


def _regex(written: Any, *, ignore_case: bool) -> Any:
    """`/text/i` as RE2 writes it."""
    if not isinstance(written, str) or written.startswith("="):
        return written
    literal = _REGEX.fullmatch(written)
    pattern, flags = (literal[1], literal[2]) if literal else (written, "")
    kept = "".join(flag for flag in "ims" if flag in flags or (flag == "i" and ignore_case))
    return f"(?{kept}){pattern}" if kept else pattern


def _comparison(
    kind: str,
    operation: Any,
    left: Any,
    right: Any,
    scope: Scope,
    *,
    ignore_case: bool = False,
    loose: bool = False,
) -> str:
    one, path = cel_value(left, scope)
    if operation in ("exists", "notExists"):
        if path is None or not path.fields or not isinstance(path.fields[-1], str):
            raise Untranslatable(f"{operation} needs a field", "Write the condition in CEL")
        there = path.is_there()
        # what is null does not exist there
        return f"{there} && {one} != null" if operation == "exists" else f"!({there}) || {one} == null"
    if operation in ("true", "false"):
        return one if operation == "true" else f"!{one}"
    loose = loose and kind in ("string", "number")
    one = _converted(kind, one) if loose else one
    if operation in ("empty", "isEmpty", "notEmpty", "isNotEmpty"):
        return f"size({one}) {'==' if operation in ('empty', 'isEmpty') else '>'} 0"
    if (kind == "number" or operation in _LENGTHS) and isinstance(right, str) and not right.startswith("="):
        right = _number(right)
    if operation in ("regex", "notRegex"):
        right = _regex(right, ignore_case=ignore_case)
    other, _ = cel_value(right, scope)
    if operation in _LENGTHS:
        return f"size({one}) {_LENGTHS[operation]} {other}"
    other = _converted(kind, other) if loose else other
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
