"""A clear part of JSON Schema (2020-12), compiled once: what a payload must look like, and where it does not.

Patterns of strings are left out, as a stranger's text could make one run for hours. A keyword that is not known is
refused when the schema is read, and never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["KEYWORDS", "JsonSchema", "SchemaError"]

Problem = tuple[tuple[str | int, ...], str]
Check = Callable[[Any], Problem | None]

_ANNOTATIONS = frozenset(
    ("$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples", "format")
)
_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
}
_LONGEST = 40


class SchemaError(ValueError):
    """This is no schema, or needs a keyword that is not here. `where` is the pointer to what is wrong with it."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where} {message}")
        self.where, self.message = where, message

    @property
    def path(self) -> tuple[str | int, ...]:
        """The keys and numbers that lead to the place, as far as they can be told from the pointer."""
        return tuple(int(part) if part.isdecimal() else part for part in self.where.split("/")[1:])


class JsonSchema:
    """Raises SchemaError if the schema is none, or needs a keyword that is not here."""

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._found: dict[str, Check] = {}
        self._check = self._compile(schema, "#")

    def problem(self, value: Any) -> str | None:
        """Where the value does not fit and why, without any of its values; None if it fits."""
        try:
            found = self._check(value)
        except RecursionError:
            return "it is nested too deeply for its schema"
        if found is None:
            return None
        path, message = found
        return f"{_written(path)} {message}"

    def _compile(self, schema: Any, where: str) -> Check:
        if isinstance(schema, bool):
            return _always if schema else _never
        if not isinstance(schema, dict):
            raise SchemaError(where, "is not a schema, which is an object, true or false")
        for part in ("$defs", "definitions"):
            for name, inner in _objects(schema.get(part, {}), f"{where}/{part}").items():
                self._compile(inner, f"{where}/{part}/{name}")
        unknown = sorted(str(name) for name in schema if name not in KEYWORDS and name not in _ANNOTATIONS)
        if unknown:
            known = ", ".join(sorted(KEYWORDS))
            raise SchemaError(where, f"has {', '.join(unknown)}, which cannot be checked; there are {known}")
        checks = [KEYWORDS[name](self, schema, f"{where}/{name}") for name in schema if name in KEYWORDS]
        return _all(checks)

    def _reference(self, schema: Mapping[str, Any], where: str) -> Check:
        pointer = schema["$ref"]
        if not isinstance(pointer, str) or not pointer.startswith("#"):
            raise SchemaError(where, "must begin with #: other documents are not read")
        target = _at(self._root, pointer, where)
        if pointer not in self._found:
            # a schema may refer to itself, so it is known before it is compiled
            self._found[pointer] = _always
            self._found[pointer] = self._compile(target, pointer)

        def check(value: Any) -> Problem | None:
            # looked up now: when this was made, it may not have been compiled yet
            return self._found[pointer](value)

        return check

    def _properties(self, schema: Mapping[str, Any], where: str) -> Check:
        inner = _objects(schema["properties"], where)
        checks = {name: self._compile(one, f"{where}/{name}") for name, one in inner.items()}

        def check(value: Any) -> Problem | None:
            if isinstance(value, dict):
                for name, one in checks.items():
                    if name in value and (found := one(value[name])) is not None:
                        return _below(name, found)
            return None

        return check

    def _additional(self, schema: Mapping[str, Any], where: str) -> Check:
        others = self._compile(schema["additionalProperties"], where)
        known = set(schema.get("properties", ()))

        def check(value: Any) -> Problem | None:
            for name in value if isinstance(value, dict) else ():
                if name not in known and (found := others(value[name])) is not None:
                    return _below(name, found)
            return None

        return check

    def _items(self, schema: Mapping[str, Any], where: str) -> Check:
        inner = self._compile(schema["items"], where)

        def check(value: Any) -> Problem | None:
            for number, one in enumerate(value if isinstance(value, list) else ()):
                if (found := inner(one)) is not None:
                    return _below(number, found)
            return None

        return check

    def _alternatives(self, schema: Mapping[str, Any], where: str) -> list[Check]:
        several = schema[where.rpartition("/")[2]]
        if not isinstance(several, list) or not several:
            raise SchemaError(where, "must be a list of schemas")
        return [self._compile(one, f"{where}/{number}") for number, one in enumerate(several)]

    def _all_of(self, schema: Mapping[str, Any], where: str) -> Check:
        return _all(self._alternatives(schema, where))

    def _any_of(self, schema: Mapping[str, Any], where: str) -> Check:
        checks = self._alternatives(schema, where)
        return lambda value: None if any(one(value) is None for one in checks) else ((), "fits none of anyOf")

    def _one_of(self, schema: Mapping[str, Any], where: str) -> Check:
        checks = self._alternatives(schema, where)

        def check(value: Any) -> Problem | None:
            fitting = sum(one(value) is None for one in checks)
            return None if fitting == 1 else ((), f"fits {fitting} of oneOf, and not one")

        return check

    def _not(self, schema: Mapping[str, Any], where: str) -> Check:
        inner = self._compile(schema["not"], where)
        return lambda value: ((), "fits what it must not") if inner(value) is None else None


def _type(_: JsonSchema, schema: Mapping[str, Any], where: str) -> Check:
    given = schema["type"]
    names = given if isinstance(given, list) else [given]
    if not names or not all(isinstance(name, str) and name in _TYPES for name in names):
        raise SchemaError(where, f"must be of {', '.join(_TYPES)}")
    fits = [_TYPES[name] for name in names]
    wanted = f"must be {' or '.join(names)}"
    return lambda value: None if any(one(value) for one in fits) else ((), wanted)


def _enum(_: JsonSchema, schema: Mapping[str, Any], where: str) -> Check:
    values = schema["enum"]
    if not isinstance(values, list):
        raise SchemaError(where, "must be a list")
    return lambda value: None if any(_same(value, one) for one in values) else ((), "is none of the values it may have")


def _const(_: JsonSchema, schema: Mapping[str, Any], where: str) -> Check:
    wanted = schema["const"]
    return lambda value: None if _same(value, wanted) else ((), "is not the one value it may have")


def _required(_: JsonSchema, schema: Mapping[str, Any], where: str) -> Check:
    names = schema["required"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SchemaError(where, "must be a list of names")

    def check(value: Any) -> Problem | None:
        missing = next((name for name in names if name not in value), None) if isinstance(value, dict) else None
        return None if missing is None else ((missing,), "is missing")

    return check


def _size(kind: type, is_most: bool, noun: str) -> Callable[[JsonSchema, Mapping[str, Any], str], Check]:
    def make(_: JsonSchema, schema: Mapping[str, Any], where: str) -> Check:
        limit = schema[where.rpartition("/")[2]]
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise SchemaError(where, "must be a whole number that is not negative")
        message = f"has {'more' if is_most else 'fewer'} than {limit} {noun}"

        def check(value: Any) -> Problem | None:
            if not isinstance(value, kind):
                return None
            size = len(value)  # type: ignore[arg-type]
            return ((), message) if (size > limit if is_most else size < limit) else None

        return check

    return make


def _bound(fits: Callable[[Any, Any], bool], words: str) -> Callable[[JsonSchema, Mapping[str, Any], str], Check]:
    def make(_: JsonSchema, schema: Mapping[str, Any], where: str) -> Check:
        limit = schema[where.rpartition("/")[2]]
        if not _is_number(limit):
            raise SchemaError(where, "must be a number")
        return lambda value: ((), f"{words} {limit}") if _is_number(value) and not fits(value, limit) else None

    return make


KEYWORDS: Mapping[str, Callable[[JsonSchema, Mapping[str, Any], str], Check]] = {
    "$ref": JsonSchema._reference,
    "additionalProperties": JsonSchema._additional,
    "allOf": JsonSchema._all_of,
    "anyOf": JsonSchema._any_of,
    "const": _const,
    "enum": _enum,
    "exclusiveMaximum": _bound(lambda value, limit: value < limit, "must be below"),
    "exclusiveMinimum": _bound(lambda value, limit: value > limit, "must be above"),
    "items": JsonSchema._items,
    "maxItems": _size(list, True, "items"),
    "maxLength": _size(str, True, "characters"),
    "maxProperties": _size(dict, True, "fields"),
    "maximum": _bound(lambda value, limit: value <= limit, "must be at most"),
    "minItems": _size(list, False, "items"),
    "minLength": _size(str, False, "characters"),
    "minProperties": _size(dict, False, "fields"),
    "minimum": _bound(lambda value, limit: value >= limit, "must be at least"),
    "not": JsonSchema._not,
    "oneOf": JsonSchema._one_of,
    "properties": JsonSchema._properties,
    "required": _required,
    "type": _type,
}
"""What is checked."""


def _always(value: Any) -> Problem | None:
    return None


def _never(value: Any) -> Problem | None:
    return (), "may not be there"


def _all(checks: list[Check]) -> Check:
    def check(value: Any) -> Problem | None:
        for one in checks:
            if (found := one(value)) is not None:
                return found
        return None

    return checks[0] if len(checks) == 1 else check


def _below(name: str | int, problem: Problem) -> Problem:
    return (name, *problem[0]), problem[1]


def _written(path: tuple[str | int, ...]) -> str:
    """The path as people write it. Names may be a stranger's, so they are cut."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part[:_LONGEST]}" for part in path[:20])
    return "".join(parts).removeprefix(".") or "the payload"


def _objects(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SchemaError(where, "must be an object")
    return value


def _at(root: Any, pointer: str, where: str) -> Any:
    found = root
    for part in pointer[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            raise SchemaError(where, f"leads to {pointer}, which is not there")
        found = found[name]
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(first: Any, second: Any) -> bool:
    """Equality of JSON, in which true is not 1."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same(value, second[name]) for name, value in first.items())
    return bool(first == second)
