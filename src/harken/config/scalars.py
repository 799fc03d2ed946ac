"""What a scalar means in the core schema of YAML 1.2: `on`, `no`, `1_000` and `2026-01-01` are text."""

from __future__ import annotations

import math
import re

from harken.config.yaml.nodes import Value

__all__ = ["Unusable", "resolve"]

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_PREFIX = "tag:yaml.org,2002:"


class Unusable(ValueError):
    """The text claims to be a value that cannot be kept as JSON."""


def resolve(text: str, tag: str | None, *, plain: bool) -> Value:
    """Return the value of a scalar. An explicit !!str keeps text; quoted scalars are text."""
    if tag and tag.startswith(_PREFIX):
        return _tagged(text, tag.removeprefix(_PREFIX))
    return _untagged(text) if plain else text


def _tagged(text: str, name: str) -> Value:
    if name in ("int", "float", "bool", "null"):
        value = _untagged(text)
        names = {int: "int", float: "float", bool: "bool", type(None): "null"}
        if names.get(type(value)) == name or (name == "float" and type(value) is int):
            return value
        raise Unusable(f"this is not a !!{name}")
    if name in ("str", "timestamp"):
        return text
    raise Unusable("this tag means nothing here")


def _untagged(text: str) -> Value:
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return _number(text)
    return text


def _integer(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    # 22 octal digits hold 64 bits; longer texts are not worth converting
    value = int(text.lstrip("+") if base == 10 else text[2:], base) if len(text) < 40 else _HIGHEST + 1
    if not _LOWEST <= value <= _HIGHEST:
        raise Unusable("this number needs more than 64 bits")
    return value


def _number(text: str) -> float:
    value = float(text) if _FLOAT.fullmatch(text) else math.inf
    if not math.isfinite(value):
        raise Unusable("this is not a finite number")
    return value
