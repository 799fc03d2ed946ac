"""Arithmetic in templates: whole numbers stay whole and within 64 bits, as in Go."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from harken.errors import Refused
from harken.language.cel.values import kind_of
from harken.language.go_template.format import to_text

__all__ = ["FUNCTIONS"]

_LIMIT = 2**63
_MANY = 1000
_LONGEST_NUMBER = 64
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _number(name: str, value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    fix = "Convert it with toInt or toFloat" if isinstance(value, str) else ""
    raise Refused(f"{name} takes numbers, not a {kind_of(value)}", fix=fix)


def _fold(name: str, step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        total = _number(name, values[0])
        for value in values[1:]:
            total = _checked(name, step, total, _number(name, value))
        return total

    return call


def _checked(name: str, step: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    if any(isinstance(value, int) and not -_LIMIT <= value < _LIMIT for value in (one, other)):
        raise Refused(f"{name}: a number is larger than 64 bits")
    try:
        result = step(one, other)
    except ZeroDivisionError as error:
        raise Refused(f"{name}: division by zero") from error
    if isinstance(result, int) and not -_LIMIT <= result < _LIMIT:
        raise Refused(f"{name}: the result is larger than 64 bits")
    return result


def _divide(one: Any, other: Any) -> Any:
    if isinstance(one, float) or isinstance(other, float):
        return one / other
    # Go rounds towards zero, Python downwards
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _remainder(one: Any, other: Any) -> Any:
    if isinstance(one, float) or isinstance(other, float):
        return math.fmod(one, other) if other and math.isfinite(one) else one % other
    return one - _divide(one, other) * other


def _to_int(value: Any) -> int:
    if isinstance(value, str):
        value = _parsed("toInt", value)
    if isinstance(value, float) and not math.isfinite(value):
        raise Refused("toInt was given a number that is not finite")
    return int(_plain("toInt", value))


def _to_float(value: Any) -> float:
    if isinstance(value, str):
        value = _parsed("toFloat", value)
    try:
        return float(_plain("toFloat", value))
    except OverflowError as error:
        raise Refused("toFloat was given a number that is too large") from error


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    raise Refused(f"{name} takes a number or a text, not a {kind_of(value)}")


def _parsed(name: str, text: str) -> int | float:
    digits = text.strip()
    if digits.isascii() and "_" not in digits and 0 < len(digits) <= _LONGEST_NUMBER:
        for read in (int, float):
            try:
                return read(digits)
            except ValueError:
                continue
    raise Refused(f"{name} was given {text[:40]!r}, which is not a number")


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool | int | float):
        return bool(value)
    text = to_text(value).strip() if isinstance(value, str) else ""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise Refused("toBool takes true, false, 1 or 0")


FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "add": (_fold("add", lambda one, other: one + other), 2, _MANY),
    "sub": (_fold("sub", lambda one, other: one - other), 2, 2),
    "mul": (_fold("mul", lambda one, other: one * other), 2, _MANY),
    "div": (_fold("div", _divide), 2, 2),
    "mod": (_fold("mod", _remainder), 2, 2),
    "min": (_fold("min", min), 1, _MANY),
    "max": (_fold("max", max), 1, _MANY),
    "toInt": (_to_int, 1, 1),
    "toFloat": (_to_float, 1, 1),
    "toBool": (_to_bool, 1, 1),
}
