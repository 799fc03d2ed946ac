"""Whether GitHub's own OpenAPI document knows the requests that were made. See tests/downloads/github_openapi.py."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft202012Validator

from harken.testing.fakes.server import Seen

__all__ = ["problems", "request_of"]

# not in the document, which is about REST: who an app's installation is can only be asked with GraphQL
BESIDES = frozenset({"POST /graphql"})


@cache
def _requests() -> Mapping[str, Any]:
    kept = json.loads((Path(__file__).parent / "recorded/github_openapi.json").read_text("utf-8"))
    requests: Mapping[str, Any] = kept["requests"]
    return requests


@cache
def _pattern(path: str) -> re.Pattern[str]:
    # addresses with the number of a repository are those that GitHub's own links and redirects have
    known = re.escape(path).replace(r"/repos/\{owner\}/\{repo\}", r"/(?:repos/[^/]+/[^/]+|repositories/[0-9]+)")
    return re.compile(re.sub(r"\\\{(\w+)\\\}", _part, known))


def _part(name: re.Match[str]) -> str:
    # numbers, so that issues/comments is not taken for an issue; a name may have slashes once it is decoded
    return "[0-9]+" if name[1] in ("issue_number", "comment_id", "installation_id") else ".+"


def request_of(seen: Seen) -> str:
    """What the document calls the request; empty if it does not have it."""
    for request in _requests():
        method, _, path = request.partition(" ")
        if method == seen.method and _pattern(path).fullmatch(unquote(seen.path)):
            return request
    return ""


def problems(requests: Iterable[Seen]) -> set[str]:
    """What the document does not have: requests, parameters, fields of a body, and values that it does not allow."""
    return {problem for seen in requests for problem in _problems_of(seen)}


def _problems_of(seen: Seen) -> list[str]:
    if f"{seen.method} {seen.path}" in BESIDES:
        return []
    request = request_of(seen)
    if not request:
        return [f"{seen.method} {seen.path} is no request of GitHub"]
    known = _requests()[request]
    found = [f"{request}: no parameter {name}" for name in seen.query if name not in known["query"]]
    for name, value in seen.query.items():
        schema = known["query"].get(name, {})
        typed = int(value) if schema.get("type") == "integer" and value.isdecimal() else value
        found += [f"{request}: {name}: {error.message}" for error in _errors(schema, typed)]
    return found + _problems_of_body(request, known["body"], json.loads(seen.body) if seen.body else None)


def _problems_of_body(request: str, schema: Any, body: Any) -> list[str]:
    if schema is None or body is None:
        return [] if body is None else [f"{request}: has no body"]
    # the document allows any field that it does not know
    objects = [one for one in (schema, *schema.get("oneOf", ()), *schema.get("anyOf", ())) if "properties" in one]
    names = {name for one in objects for name in one["properties"]}
    unknown = [f"{request}: no field {name}" for name in body if name not in names] if isinstance(body, dict) else []
    return unknown + [f"{request}: {error.message}" for error in _errors(schema, body)]


def _errors(schema: Any, value: Any) -> list[Any]:
    return list(Draft202012Validator(schema).iter_errors(value))
