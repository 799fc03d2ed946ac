"""A workflow's declared inputs: what they may be, and what they are in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harken.errors import Misconfigured
from harken.run.plan import Problem
from harken.suggest import nearest

__all__ = ["declared_inputs", "given_inputs"]

_KEYS = ("type", "default", "required", "description")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
    "any": lambda value: True,
}


def declared_inputs(declared: Any) -> tuple[dict[str, Mapping[str, Any]], list[Problem]]:
    """Read `inputs:` as a list of required names, a mapping of declarations, or a mapping of defaults."""
    if declared is None:
        return {}, []
    if isinstance(declared, list):
        names = {str(name): {"required": True} for name in declared if isinstance(name, str)}
        wrong = [at for at, name in enumerate(declared) if not isinstance(name, str)]
        return dict(names), [Problem(path=("inputs", at), message="an input's name must be text") for at in wrong]
    if not isinstance(declared, Mapping):
        return {}, [Problem(path=("inputs",), message="inputs must be a list of names or a mapping")]
    found = {str(name): _declaration(given) for name, given in declared.items()}
    return found, [problem for name, given in found.items() for problem in _check(name, given)]


def _declaration(given: Any) -> Mapping[str, Any]:
    is_declaration = isinstance(given, Mapping) and given and (set(given) <= set(_KEYS) or "type" in given)
    return given if is_declaration else {"default": given}


def _check(name: str, given: Mapping[str, Any]) -> list[Problem]:
    problems = [
        Problem(path=("inputs", name, key), message=f"unknown key {key!r}", suggestion=nearest(str(key), _KEYS))
        for key in given
        if key not in _KEYS
    ]
    kind = given.get("type", "any")
    if kind not in _TYPES:
        message = f"there is no input type {kind!r}"
        problems.append(Problem(path=("inputs", name, "type"), message=message, suggestion=nearest(str(kind), _TYPES)))
    elif given.get("default") is not None and not _TYPES[kind](given["default"]):
        problems.append(Problem(path=("inputs", name, "default"), message=f"the default must be of type {kind}"))
    return problems


def given_inputs(declared: Mapping[str, Mapping[str, Any]], given: Any) -> Mapping[str, Any]:
    """The inputs of a run with defaults filled in; raises Misconfigured for one that is missing or of another type."""
    if given is not None and not isinstance(given, Mapping):
        raise Misconfigured("the input of a run must be a mapping of names to values")
    known: Mapping[str, Any] = given or {}
    if not declared:
        return known
    filled = dict(known)
    for name, declaration in declared.items():
        if filled.get(name) is None:
            filled[name] = _default(name, declaration)
        elif not _TYPES[declaration.get("type", "any")](filled[name]):
            kind = declaration["type"]
            raise Misconfigured(f"input {name!r} must be of type {kind}, not {type(filled[name]).__name__}")
    return filled


def _default(name: str, declaration: Mapping[str, Any]) -> Any:
    if declaration.get("required") and declaration.get("default") is None:
        raise Misconfigured(
            f"input {name!r} is required", fix="Map it in the trigger's input_mapping, or give it a default"
        )
    return declaration.get("default")
