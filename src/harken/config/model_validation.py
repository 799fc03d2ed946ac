"""Validate a part of a file with a pydantic model, and report its errors with their position and a fix."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from harken.config.findings import Code, Path, Report
from harken.config.yaml.nodes import Items, Node, Scalar, Table, is_empty, locate, to_plain
from harken.errors import HarkenError
from harken.suggest import suggest_fix

__all__ = ["Invalid", "Strict", "as_table", "check"]

M = TypeVar("M", bound=BaseModel)

_TYPES: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
}


_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
    "greater_than": ("above", "gt"),
    "less_than": ("below", "lt"),
}


class Invalid(ValueError):
    """Raised by validators for a wrong value. A ValueError, so that pydantic passes it on with its fix."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


class Strict(BaseModel):
    """Base of every block of a file: unknown keys are errors, and the value is frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def check(model: type[M], node: Node, report: Report, path: Path = ()) -> M | None:
    """Return the validated model; None, with a finding for each error, when anything in it is wrong."""
    table = as_table(node, report, path)
    if table is None:
        return None
    known = check_keys(model, table, report, path)
    try:
        found = model.model_validate(to_plain(table))
    except ValidationError as error:
        seen: set[tuple[Path, str]] = set()
        for detail in error.errors(include_url=False, include_input=False):
            _explain(model, table, detail, report, path, seen)
        return None
    except HarkenError as error:
        report.error(table.place, path, error.message, error.fix)
        return None
    except Exception as error:  # a bug in a plugin refuses the item that uses it, not the whole configuration
        message = f"the service's own check broke with {type(error).__name__}"
        report.error(table.place, path, message, "Tell its author, or change the values here")
        return None
    return found if known else None


def as_table(node: Node, report: Report, path: Path) -> Table | None:
    """Return the node if it is a mapping. An empty value counts as an empty mapping; anything else is an error."""
    if isinstance(node, Table):
        return node
    if is_empty(node):
        return Table(items={}, keys={}, place=node.place)
    report.error(node.place, path, f"must be a mapping, not {_kind_of(node)}", "Write key: value lines", "wrong_type")
    return None


def check_keys(model: type[BaseModel], table: Table, report: Report, path: Path) -> bool:
    """Report unknown keys, also for a plugin's model that would ignore them. Return whether there are none."""
    if model.model_config.get("extra") in ("forbid", "allow"):
        return True
    names = _names(model)
    unknown = [key for key in table.items if key not in names]
    for key in unknown:
        report.error(table.keys[key], (*path, key), "there is no such setting", suggest_fix(key, names), "unknown_key")
    return not unknown


def _explain(
    model: type[BaseModel], node: Table, detail: ErrorDetails, report: Report, path: Path, seen: set[tuple[Path, str]]
) -> None:
    inside = tuple(_path_in_file(node, detail["loc"], last=detail["type"] == "missing"))
    kind = detail["type"]
    if (inside, kind) in seen:
        return
    seen.add((inside, kind))
    place = locate(node, inside, key=kind == "extra_forbidden")
    message, fix, code = _describe(model, node, detail, inside)
    report.error(place, (*path, *inside), message, fix, code)


def _path_in_file(node: Node, loc: Iterable[str | int], *, last: bool) -> Iterable[str | int]:
    """Return the parts of pydantic's location that are in the file: it also names branches of unions and validators."""
    parts = list(loc)
    for index, part in enumerate(parts):
        if isinstance(node, Table) and str(part) in node.items:
            node = node.items[str(part)]
            yield str(part)
        elif isinstance(node, Items) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            yield part
        elif last and index == len(parts) - 1:
            yield part


def _describe(model: type[BaseModel], node: Table, detail: ErrorDetails, inside: Path) -> tuple[str, str, Code]:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return "there is no such setting", suggest_fix(str(inside[-1]), _names_at(model, inside[:-1])), "unknown_key"
    if kind == "missing":
        return "is missing", f"Add {inside[-1]}:", "missing"
    if kind in _TYPES:
        value = _node_at(node, inside)
        fix = "Put quotes around it" if kind == "string_type" and isinstance(value, Scalar) and value.value else ""
        return f"must be {_TYPES[kind]}, not {_kind_of(value)}", fix, "wrong_type"
    if kind in ("literal_error", "enum"):
        value, expected = _node_at(node, inside), str(context.get("expected", ""))
        choices = [word.strip(" '") for word in expected.replace(" or ", ",").split(",")]
        text = value.value if isinstance(value, Scalar) else ""
        return f"must be {expected}", suggest_fix(text, choices) if isinstance(text, str) else "", "invalid"
    if kind == "value_error" and (error := context.get("error")) is not None:
        return getattr(error, "message", None) or str(error), getattr(error, "fix", ""), "invalid"
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        return f"must be {words} {context.get(name)}", "", "invalid"
    return _as_clause(detail["msg"]), "", "invalid"


def _node_at(node: Node, path: Path) -> Node:
    for part in path:
        if isinstance(node, Table) and part in node.items:
            node = node.items[str(part)]
        elif isinstance(node, Items) and isinstance(part, int):
            node = node.items[part]
    return node


def _kind_of(node: Node) -> str:
    if isinstance(node, Table):
        return "a mapping"
    if isinstance(node, Items):
        return "a list"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, bool):
        return "true or false"
    return "text" if isinstance(node.value, str) else "a number"


def _names(model: type[BaseModel]) -> set[str]:
    names: set[str] = set()
    for name, field in model.model_fields.items():
        names.add(field.alias or name)
        if model.model_config.get("populate_by_name") or not field.alias:
            names.add(name)
    return names


def _names_at(annotation: Any, path: Sequence[str | int]) -> set[str]:
    """Return the names of the settings at the path, in every branch of a union."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _names_at(get_args(annotation)[0], path)
    if origin in (Union, types.UnionType):
        return set().union(*(_names_at(branch, path) for branch in get_args(annotation)))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if not path:
            return _names(annotation)
        fields = {field.alias or name: field for name, field in annotation.model_fields.items()}
        field = fields.get(str(path[0])) or annotation.model_fields.get(str(path[0]))
        return _names_at(field.annotation, path[1:]) if field else set()
    arguments = get_args(annotation)
    return (
        _names_at(arguments[-1] if arguments[-1] is not ... else arguments[0], path[1:])
        if arguments and path
        else set()
    )


def _as_clause(sentence: str) -> str:
    """Without the capital letter of a sentence; `URL` and the like stay as they are."""
    return sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]
