"""The typed parameters of an operation from path, query and body. Unknown ones are refused, with the nearest name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.requests import Request

from harken.api import strict_json
from harken.api.routes import Param, Route
from harken.errors import Malformed
from harken.suggest import suggest_fix

__all__ = ["BODY_LIMIT", "TooLarge", "read_object", "read_params", "refuse_odd_address"]

BODY_LIMIT = 1 << 20
PAGE = 50
"""What a page has if nobody says how much."""
MOST = 500
_EXACT = 2**53
"""Up to this number a float has every integer."""
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_WORDS: Mapping[Param, tuple[str, tuple[type, ...]]] = {
    "number": ("number", (int, float)),
    "count": ("count", (int,)),
    "limit": ("count", (int,)),
    "flag": ("flag", (bool,)),
    "object": ("object", (dict,)),
    "texts": ("list of texts", (list,)),
    "fields": ("list of fields", (list,)),
    "any": ("value", (str, int, float, bool, dict, list)),
}
"""What a parameter is called in errors, and which types it has in JSON; those that are not here are texts."""


class TooLarge(Malformed):
    """The body is larger than the API takes."""

    code = "too_large"


async def read_params(route: Route, request: Request) -> dict[str, Any]:
    """The operation's parameters from path, query and body."""
    refuse_odd_address(request)
    given: dict[str, Any] = dict(request.path_params)
    for text in given.values():
        strict_json.refuse_odd_text(str(text))
    match = request.headers.get("if-match")
    if match is not None and "match" in route.params:
        given["match"] = match
    beside = _query(request) if route.in_query else await read_object(request)
    if not route.in_query:
        _refuse_query(request)
        _refuse_other_type(request)
    for name, value in beside.items():
        _refuse_unknown(route, name)
        if value is None and route.params[name] != "any":
            raise Malformed(f"{name} is null", fix="Leave it away")
        given[name] = _parse(name, value, route.params[name]) if route.in_query else value
    found = {name: _check_type(name, value, route.params[name]) for name, value in given.items() if value is not None}
    return _with_defaults(route, found)


def refuse_odd_address(request: Request) -> None:
    """Raise Malformed for a path or a query that is not UTF-8: decoded leniently it would mean something else."""
    for part in (request.scope.get("raw_path", b""), request.scope.get("query_string", b"")):
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError as error:
            raise Malformed("the address of the request is not UTF-8", fix="Encode it, then quote it") from error


def _with_defaults(route: Route, found: dict[str, Any]) -> dict[str, Any]:
    if route.pages:
        found.setdefault("limit", PAGE)
    for name, param in route.params.items():
        if param == "texts" and route.in_query:
            # a payload that nobody asked for is left away
            found.setdefault(name, [])
    return found


def _refuse_other_type(request: Request) -> None:
    """Of a POST the guard sees to it, because a form can send one."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method in ("PUT", "PATCH") and kind != "application/json":
        raise HTTPException(415, f"a {request.method} needs Content-Type: application/json")


def _refuse_query(request: Request) -> None:
    if request.url.query:
        raise Malformed(f"a {request.method} takes no query", fix="Send the parameters in the body, as a JSON object")


def _query(request: Request) -> dict[str, Any]:
    given = request.query_params.multi_items()
    for pair in given:
        for text in pair:
            strict_json.refuse_odd_text(text)
    found = dict(given)
    if len(found) < len(given):
        names = [name for name, _ in given]
        twice = next(name for name in found if names.count(name) > 1)
        raise Malformed(f"{twice} is given twice", fix="Give it once")
    if found.get("agent") == "":
        # the name of a variable which is not set: nobody meant the only agent, or all of them
        raise Malformed("agent is empty", fix="Name one, or leave it away")
    return found


async def read_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object, empty if there is none."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > BODY_LIMIT:
        raise TooLarge(f"the body is larger than {BODY_LIMIT} bytes")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_LIMIT:
            raise TooLarge(f"the body is larger than {BODY_LIMIT} bytes")
    if not body:
        return {}
    value = strict_json.decode(bytes(body))
    if not isinstance(value, dict):
        raise Malformed("the body is not a JSON object", fix="Send the parameters as an object")
    return value


def _refuse_unknown(route: Route, name: str) -> None:
    names = sorted(set(route.params) - route.placed - {"match"})
    if name in names:
        return
    raise Malformed(f"{route.operation} has no parameter {name}", fix=suggest_fix(name, names))


def _parse(name: str, text: str, param: Param) -> Any:
    try:
        if param in ("count", "limit"):
            return _number(text)
        if param == "number":
            return float(text)
        if param in ("texts", "fields"):
            return [part for part in text.split(",") if part]
        return _FLAGS[text.lower()] if param == "flag" else text
    except (ValueError, KeyError) as error:
        raise Malformed(f"{name} is not a {_word(param)}") from error


def _number(text: str) -> int:
    if not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) <= 20):
        raise ValueError
    return int(text)


def _word(param: Param) -> str:
    return _WORDS[param][0] if param in _WORDS else "text"


def _check_type(name: str, value: Any, param: Param) -> Any:
    types: tuple[Any, ...] = _WORDS[param][1] if param in _WORDS else (str,)
    if types == (int,) and isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        # JSON Schema takes 3.0 for an integer, and some programs write all their numbers so
        value = int(value)
    # in Python True is an int, but it is not a number in JSON
    if not isinstance(value, types) or (isinstance(value, bool) and param not in ("flag", "any")):
        raise Malformed(f"{name} must be a {_word(param)}")
    if param == "number" and not math.isfinite(value):
        raise Malformed(f"{name} must be a number")
    if param == "texts" and not all(isinstance(one, str) for one in value):
        raise Malformed(f"{name} must be a list of texts")
    if param == "limit" and not 1 <= value <= MOST:
        raise Malformed(f"{name} is from 1 to {MOST}")
    return value
