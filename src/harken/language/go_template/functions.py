"""The functions that templates can call, with the argument order that Go users expect: the subject comes last.

A function takes plain values and returns one. What it cannot do is Refused with the function's name; none of them may
build a text longer than the limit, because the check after the call would come too late.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from harken.errors import Refused
from harken.language import numbers, texts
from harken.language.cel.values import kind_of
from harken.language.go_template.format import check_length, printf, to_json, to_text
from harken.language.paths import MISSING, Missing, step

__all__ = ["FUNCTIONS", "Absent", "Function", "sorted_keys", "truth"]

_MANY = 1000
_DEEP_JSON = 10_000
_SOMETIMES_FALSE = (str, bool, int, float, list, dict, tuple, Missing, Mapping)


class Absent(Missing):
    """A field that is not there: where it was looked for, and whether a function was already given it."""

    __slots__ = ("among", "name", "path", "used")

    def __init__(self, path: str, name: str, among: Any, used: bool = False) -> None:
        self.path = path
        self.name = name
        self.among = among
        self.used = used


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """`absent` says what becomes of a field that is not there: it is the result, arrives as null, or as it is."""

    call: Callable[..., Any]
    least: int
    most: int = _MANY
    absent: Literal["returned", "null", "given"] = "returned"


def truth(value: Any) -> bool:
    """Return what Go's `if` makes of a value: zero, empty and nothing are false."""
    return bool(value) if value is None or isinstance(value, _SOMETIMES_FALSE) else True


def _equal(first: Any, *others: Any) -> bool:
    return any(_same(first, other) for other in others)


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    kinds = {_comparable("eq", one), _comparable("eq", other)}
    if len(kinds) > 1:
        raise Refused(f"eq cannot compare a {' with a '.join(sorted(kinds))}; convert one with toString or toFloat")
    return bool(one == other)


def _comparable(name: str, value: Any) -> str:
    if isinstance(value, bool | int | float | str):
        return kind_of(value)
    raise Refused(f"{name} compares numbers, texts and booleans, not a {kind_of(value)}")


def _ordered(name: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def call(one: Any, other: Any) -> bool:
        kinds = {_comparable(name, one), _comparable(name, other)}
        if len(kinds) > 1 or "boolean" in kinds:
            raise Refused(f"{name} cannot order a {' and a '.join(sorted(kinds))}")
        return compare(one, other)

    return call


def _length(value: Any) -> int:
    if isinstance(value, str | list | tuple | Mapping):
        return len(value)
    raise Refused(f"len takes a text, a list or an object, not a {kind_of(value)}")


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if not isinstance(value, Mapping | list | tuple):
            raise Refused(f"index looks into lists and objects, not into a {kind_of(value)}")
        if isinstance(value, list | tuple) and (isinstance(key, bool) or not isinstance(key, int)):
            raise Refused(f"index takes a number for a list, not a {kind_of(key)}")
        if not isinstance(key, str | int):
            raise Refused(f"index takes a name or a whole number, not a {kind_of(key)}")
        inner = step(value, key)
        if inner is MISSING:
            return Absent(f"index {to_text(key)[:80]}", to_text(key), value)
        value = inner
    return value


def _first(items: Any) -> Any:
    return next(iter(_items("first", items)), None)


def _last(items: Any) -> Any:
    found = _items("last", items)
    return found[-1] if found else None


def _items(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return value
    raise Refused(f"{name} takes a list, not a {kind_of(value)}")


def _object(name: str, value: Any) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return value
    raise Refused(f"{name} takes an object, not a {kind_of(value)}")


def sorted_keys(value: Mapping[Any, Any]) -> list[Any]:
    """Return the keys in the order in which Go walks a map."""
    try:
        return sorted(value)
    except TypeError:
        return sorted(value, key=str)


def _keys(value: Any) -> list[Any]:
    return sorted_keys(_object("keys", value))


def _values(value: Any) -> list[Any]:
    found = _object("values", value)
    return [found[key] for key in sorted_keys(found)]


def _has_key(value: Any, key: Any) -> bool:
    return isinstance(key, str | int) and key in _object("hasKey", value)


def _pluck(key: Any, *sources: Any) -> list[Any]:
    if len(sources) == 1 and isinstance(sources[0], list | tuple):
        sources = tuple(sources[0])
    if not isinstance(key, str):
        raise Refused(f"pluck takes the name of a field first, not a {kind_of(key)}")
    return [source[key] for source in sources if isinstance(source, Mapping) and key in source]


def _default(fallback: Any, value: Any) -> Any:
    return value if truth(value) else fallback


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if truth(value)), None)


def _to_json_pretty(value: Any) -> str:
    compact = to_json(value)
    if len(compact) > _DEEP_JSON:
        marks = compact.count(",") + compact.count("[") + compact.count("{")
        check_length(len(compact) + marks * 2 * _depth(value))
    return msgspec.json.format(compact, indent=2)


def _depth(value: Any) -> int:
    deepest, layer = 0, [value]
    while layer:
        deepest += 1
        inner = [
            item.values() if isinstance(item, Mapping) else item for item in layer if isinstance(item, list | Mapping)
        ]
        layer = [item for items in inner for item in items]
    return deepest


def _from_json(value: Any) -> Any:
    if not isinstance(value, str):
        raise Refused(f"fromJson takes a text, not a {kind_of(value)}")
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError) as error:
        raise Refused("fromJson was given a text that is not JSON") from error


def _printf(form: Any, *values: Any) -> str:
    if not isinstance(form, str):
        raise Refused(f"printf takes a format first, not a {kind_of(form)}")
    return printf(form, values)


def _one(call: Callable[..., Any], arguments: int = 1) -> Function:
    return Function(call=call, least=arguments, most=arguments)


FUNCTIONS: dict[str, Function] = {
    **{name: Function(call=call, least=least, most=most) for name, (call, least, most) in numbers.FUNCTIONS.items()},
    **{name: _one(call, count) for name, (call, count) in texts.FUNCTIONS.items()},
    "toJson": _one(to_json),
    "toJsonPretty": _one(_to_json_pretty),
    "fromJson": _one(_from_json),
    "toString": _one(to_text),
    "first": _one(_first),
    "last": _one(_last),
    "keys": _one(_keys),
    "values": _one(_values),
    "hasKey": _one(_has_key, 2),
    "pluck": Function(call=_pluck, least=2),
    "default": Function(call=_default, least=2, most=2, absent="given"),
    "coalesce": Function(call=_coalesce, least=1, absent="given"),
    "len": _one(_length),
    "index": Function(call=_index, least=1),
    "printf": Function(call=_printf, least=1, absent="null"),
    "eq": Function(call=_equal, least=2, absent="null"),
    "ne": Function(call=lambda one, other: not _same(one, other), least=2, most=2, absent="null"),
    "lt": _one(_ordered("lt", operator.lt), 2),
    "le": _one(_ordered("le", operator.le), 2),
    "gt": _one(_ordered("gt", operator.gt), 2),
    "ge": _one(_ordered("ge", operator.ge), 2),
    "not": Function(call=lambda value: not truth(value), least=1, most=1, absent="given"),
    "and": Function(call=lambda *values: values[-1], least=1, absent="given"),
    "or": Function(call=lambda *values: values[-1], least=1, absent="given"),
}
