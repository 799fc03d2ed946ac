"""The functions that templates can call, with the argument order that Go users expect: the subject comes last.

A function takes plain values and returns one. It raises Refused, with its name, for arguments that it cannot use, and
before it builds a text longer than the limit: a check after the call would come too late.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from harken.errors import Refused
from harken.language.dotted_paths import MISSING, Missing, step
from harken.language.go_template.format import check_length, printf, to_json, to_text
from harken.language.json_kinds import kind_of

__all__ = ["FUNCTIONS", "UNESCAPED", "Absent", "Function", "sorted_keys", "truth"]

UNESCAPED = "unescaped"
"""The function that marks a value which is printed as it is, where values are escaped."""
_LIMIT = 2**63
_MANY = 1000
_LONGEST_NUMBER = 64
_DEEP_JSON = 10_000
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_SOMETIMES_FALSE = (str, bool, int, float, list, dict, tuple, Missing, Mapping)
# Go's white space: Python's has four control characters more
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
# a word begins after any ASCII character but letters, digits and underscore, and after any space
_WORD_START = re.compile(rf"(?:^|(?<=[\x00-/:-@\[-^`{{-\x7f{_SPACE}]))[^\W\d_]")


class Absent(Missing):
    """A missing field: its path and name, the value it was looked up in, and whether a function was called with it."""

    __slots__ = ("among", "name", "path", "used")

    def __init__(self, path: str, name: str, among: Any, used: bool = False) -> None:
        self.path = path
        self.name = name
        self.among = among
        self.used = used


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """`absent` says how a missing argument is handled: it is the result, is passed as null, or is passed as it is."""

    call: Callable[..., Any]
    least: int
    most: int = _MANY
    absent: Literal["returned", "null", "given"] = "returned"


def truth(value: Any) -> bool:
    """Return how Go's `if` treats a value: zero, empty and null are false."""
    return bool(value) if value is None or isinstance(value, _SOMETIMES_FALSE) else True


def sorted_keys(value: Mapping[Any, Any]) -> list[Any]:
    """Return the keys in the order in which Go walks a map."""
    try:
        return sorted(value)
    except TypeError:
        return sorted(value, key=str)


def _fold(name: str, step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        total = _number(name, values[0])
        for value in values[1:]:
            total = _check_64_bits(name, step, total, _number(name, value))
        return total

    return call


def _number(name: str, value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    fix = "Convert it with toInt or toFloat" if isinstance(value, str) else ""
    raise Refused(f"{name} takes numbers, not a {kind_of(value)}", fix=fix)


def _check_64_bits(name: str, step: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
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
        value = _parse_number("toInt", value)
    if isinstance(value, float) and not math.isfinite(value):
        raise Refused("toInt was given a number that is not finite")
    return int(_check_number("toInt", value))


def _to_float(value: Any) -> float:
    if isinstance(value, str):
        value = _parse_number("toFloat", value)
    try:
        return float(_check_number("toFloat", value))
    except OverflowError as error:
        raise Refused("toFloat was given a number that is too large") from error


def _check_number(name: str, value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    raise Refused(f"{name} takes a number or a text, not a {kind_of(value)}")


def _parse_number(name: str, text: str) -> int | float:
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


def _text_function(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        if arguments[-1] is None:
            return None
        return change(*[_text(name, argument) for argument in arguments])

    return call


def _text_predicate(name: str, ask: Callable[[str, str], bool]) -> Callable[..., bool]:
    def call(wanted: Any, value: Any) -> bool:
        return value is not None and ask(_text(name, wanted), _text(name, value))

    return call


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | tuple | Mapping):
        raise Refused(f"{name} takes a text, not a {kind_of(value)}")
    return to_text(value)


def _upper(text: str) -> str:
    return _change_case(text, text.upper(), str.upper)


def _lower(text: str) -> str:
    return _change_case(text, text.lower(), str.lower)


def _change_case(text: str, changed: str, change: Callable[[str], str]) -> str:
    # Go changes case letter by letter and never makes two letters of one, such as SS of ß
    if len(changed) == len(text):
        return changed
    letters = [(letter, change(letter)) for letter in text]
    return "".join(new if len(new) == 1 else letter for letter, new in letters)


def _title(text: str) -> str:
    return _WORD_START.sub(lambda found: _one_letter(found.group()), text)


def _one_letter(letter: str) -> str:
    return letter.title() if len(letter.title()) == 1 else letter


def _replace(old: str, new: str, text: str) -> str:
    check_length(len(text) + text.count(old) * max(0, len(new) - len(old)))
    return text.replace(old, new)


def _split(separator: str, text: str) -> list[str]:
    return text.split(separator) if separator else list(text)


def _join(separator: Any, items: Any) -> str:
    if isinstance(separator, list | tuple) and isinstance(items, str):
        # the list first, as strings.Join of Go has it
        separator, items = items, separator
    if not isinstance(items, list | tuple):
        raise Refused(f"join takes a list, not a {kind_of(items)}")
    between = _text("join", separator)
    length = len(between) * len(items)
    parts: list[str] = []
    for item in items:
        parts.append(to_text(item))
        length += len(parts[-1])
        check_length(length)
    return between.join(parts)


def _contains(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, list | tuple) and not isinstance(value, list | tuple | Mapping):
        wanted, value = value, wanted
    if isinstance(value, list | tuple):
        # the first test is fast, the second tells 1 from true
        return wanted in value and any(_same_kind_and_value(wanted, item) for item in value)
    if isinstance(value, Mapping):
        raise Refused("contains takes a text or a list; use hasKey for an object")
    return value is not None and _text("contains", wanted) in _text("contains", value)


def _same_kind_and_value(one: Any, other: Any) -> bool:
    plain = (bool, int, float, str)
    return isinstance(one, plain) and isinstance(other, plain) and kind_of(one) == kind_of(other) and one == other


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


def _comparison(name: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
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


def _fixed(call: Callable[..., Any], arguments: int = 1) -> Function:
    return Function(call=call, least=arguments, most=arguments)


FUNCTIONS: dict[str, Function] = {
    "add": Function(call=_fold("add", operator.add), least=2),
    "sub": _fixed(_fold("sub", operator.sub), 2),
    "mul": Function(call=_fold("mul", operator.mul), least=2),
    "div": _fixed(_fold("div", _divide), 2),
    "mod": _fixed(_fold("mod", _remainder), 2),
    "min": Function(call=_fold("min", min), least=1),
    "max": Function(call=_fold("max", max), least=1),
    "toInt": _fixed(_to_int),
    "toFloat": _fixed(_to_float),
    "toBool": _fixed(_to_bool),
    "upper": _fixed(_text_function("upper", _upper)),
    "lower": _fixed(_text_function("lower", _lower)),
    "title": _fixed(_text_function("title", _title)),
    "trim": _fixed(_text_function("trim", lambda text: text.strip(_SPACE))),
    "trimPrefix": _fixed(_text_function("trimPrefix", lambda prefix, text: text.removeprefix(prefix)), 2),
    "trimSuffix": _fixed(_text_function("trimSuffix", lambda suffix, text: text.removesuffix(suffix)), 2),
    "replace": _fixed(_text_function("replace", _replace), 3),
    "split": _fixed(_text_function("split", _split), 2),
    "join": _fixed(_join, 2),
    "contains": _fixed(_contains, 2),
    "hasPrefix": _fixed(_text_predicate("hasPrefix", lambda prefix, text: text.startswith(prefix)), 2),
    "hasSuffix": _fixed(_text_predicate("hasSuffix", lambda suffix, text: text.endswith(suffix)), 2),
    "toJson": _fixed(to_json),
    "toJsonPretty": _fixed(_to_json_pretty),
    "fromJson": _fixed(_from_json),
    "toString": _fixed(to_text),
    UNESCAPED: _fixed(to_text),
    "first": _fixed(_first),
    "last": _fixed(_last),
    "keys": _fixed(_keys),
    "values": _fixed(_values),
    "hasKey": _fixed(_has_key, 2),
    "pluck": Function(call=_pluck, least=2),
    "default": Function(call=_default, least=2, most=2, absent="given"),
    "coalesce": Function(call=_coalesce, least=1, absent="given"),
    "len": _fixed(_length),
    "index": Function(call=_index, least=1),
    "printf": Function(call=_printf, least=1, absent="null"),
    "eq": Function(call=_equal, least=2, absent="null"),
    "ne": Function(call=lambda one, other: not _same(one, other), least=2, most=2, absent="null"),
    "lt": _fixed(_comparison("lt", operator.lt), 2),
    "le": _fixed(_comparison("le", operator.le), 2),
    "gt": _fixed(_comparison("gt", operator.gt), 2),
    "ge": _fixed(_comparison("ge", operator.ge), 2),
    "not": Function(call=lambda value: not truth(value), least=1, most=1, absent="given"),
    "and": Function(call=lambda *values: values[-1], least=1, absent="given"),
    "or": Function(call=lambda *values: values[-1], least=1, absent="given"),
}
