"""The typed parameters of an operation from path, query and body. Unknown ones are refused, with the nearest name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request

from harken.api.routes import Param, Route
from harken.errors import Malformed
from harken.suggest import suggest_fix

__all__ = ["BODY_LIMIT", "TooLarge", "read_params"]

BODY_LIMIT = 1 << 20
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_TYPES: Mapping[Param, tuple[type, ...]] = {
    "text": (str,),
    "number": (int, float),
    "count": (int,),
    "flag": (bool,),
    "object": (dict,),
}


class TooLarge(Malformed):
    """The body is larger than the API takes."""

    code = "too_large"


async def read_params(route: Route, request: Request) -> dict[str, Any]:
    """The operation's parameters from path, query and body."""
    given: dict[str, Any] = dict(request.path_params)
    beside = _query(request) if route.method == "GET" else await _body(request)
    for name, value in beside.items():
        _refuse_unknown(route, name)
        given[name] = _parse(name, value, route.params[name]) if route.method == "GET" else value
    return {name: _check_type(name, value, route.params[name]) for name, value in given.items() if value is not None}


def _query(request: Request) -> dict[str, Any]:
    given = request.query_params.multi_items()
    found = dict(given)
    if len(found) < len(given):
        names = [name for name, _ in given]
        twice = next(name for name in found if names.count(name) > 1)
        raise Malformed(f"{twice} is given twice", fix="Give it once")
    if found.get("agent") == "":
        # the name of a variable which is not set: nobody meant the only agent, or all of them
        raise Malformed("agent is empty", fix="Name one, or leave it away")
    return found


async def _body(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_LIMIT:
            raise TooLarge(f"the body is larger than {BODY_LIMIT} bytes")
    if not body:
        return {}
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed("the body is not JSON", fix="Send a JSON object") from error
    if not isinstance(value, dict):
        raise Malformed("the body is not a JSON object", fix="Send the parameters as an object")
    return value


def _refuse_unknown(route: Route, name: str) -> None:
    names = sorted(set(route.params) - route.placed)
    if name in names:
        return
    raise Malformed(f"{route.operation} has no parameter {name}", fix=suggest_fix(name, names))


def _parse(name: str, text: str, param: Param) -> Any:
    try:
        if param == "count":
            return int(text)
        if param == "number":
            return float(text)
        return _FLAGS[text.lower()] if param == "flag" else text
    except (ValueError, KeyError) as error:
        raise Malformed(f"{name} is not a {param}") from error


def _check_type(name: str, value: Any, param: Param) -> Any:
    # in Python True is an int, but it is not a number in JSON
    if not isinstance(value, _TYPES[param]) or (isinstance(value, bool) and param != "flag"):
        raise Malformed(f"{name} must be a {param}")
    return value
