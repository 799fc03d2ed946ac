"""Queries: what a feed asks of its service, checked by the service's own model, and how it is kept."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

from harken.config.findings import Path, Report
from harken.config.interpolate import is_secret_name
from harken.config.validate import as_table, check
from harken.config.yaml.nodes import Node

__all__ = ["dump", "host_of", "is_loopback", "keepable", "read_query", "written_secrets"]

_MASK = "**********"
# `?key=PROJ` names something, and is no credential
_SHORTEST_NAMED = 12
_SENSITIVE = frozenset(
    {"secret", "token", "password", "api_key", "app_key", "client_secret", "access_token", "authorization"}
    | {"proxy-authorization", "x-api-key", "cookie"}
)


def read_query(
    model: type[BaseModel] | None, node: Node, report: Report, path: Path, *, kind: str
) -> tuple[BaseModel | None, bool]:
    """Return the validated query, and whether it could be read. Asking for everything is allowed, with a warning."""
    table = as_table(node, report, path)
    if table is None:
        return None, False
    if model is None:
        for key in table.items:
            report.error(table.keys[key], (*path, key), f"{kind} has no query", "Remove it", "unknown_key")
        return None, not table.items
    if not table.items and not any(field.is_required() for field in model.model_fields.values()):
        message = f"an empty query asks {kind} for everything it shows"
        report.warn(table.place, path, message, "Name what you want, if that is too much", "empty_query")
    found = check(model, table, report, path)
    return found, found is not None


def dump(model: BaseModel | None) -> dict[str, Any]:
    """The query as plain JSON values with its defaults, secrets included: for comparing, never for keeping."""
    return to_jsonable_python(_open(model.model_dump())) if model is not None else {}


def _open(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        return {key: _open(inner) for key, inner in value.items()}
    return [_open(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def keepable(model: BaseModel | None, hide: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
    """The query as plain JSON values with its defaults, and without the secrets that were written into it.

    `hide` puts references in the place of those that came from one.
    """
    return _masked(hide(model.model_dump(mode="json"))) if model is not None else {}


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _mask(str(key), inner) for key, inner in value.items()}
    if isinstance(value, str):
        return _masked_address(value)
    return [_masked(inner) for inner in value] if isinstance(value, list) else value


def _mask(key: str, value: Any) -> Any:
    return _MASK if isinstance(value, str) and value and key.lower() in _SENSITIVE else _masked(value)


def _masked_address(text: str) -> str:
    for secret in _in_address(text):
        text = text.replace(secret, _MASK)
    return text


def _in_address(text: str) -> set[str]:
    """The password of an address, and what its parameters say that are called like secrets; references are none."""
    try:
        parts = urlsplit(text) if "://" in text else None
        password = parts.password or "" if parts else ""
    except ValueError:
        return set()
    pairs = [pair.partition("=") for pair in parts.query.split("&")] if parts else []
    found = {value for name, _, value in pairs if is_secret_name(unquote(name)) and len(value) >= _SHORTEST_NAMED}
    return {value for value in {password, *found} if value and not value.startswith("${")}


def written_secrets(value: Any, key: str = "") -> set[str]:
    """The secrets in a dumped query by the names of their settings, to be kept out of logs."""
    if isinstance(value, Mapping):
        return set().union(*(written_secrets(inner, str(name)) for name, inner in value.items()))
    if isinstance(value, list):
        return set().union(*(written_secrets(inner, key) for inner in value))
    if not isinstance(value, str):
        return set()
    # `Bearer x`: what follows the scheme is the secret
    named = {value.rpartition(" ")[2]} - {""} if _is_sensitive(key, value) else set()
    return named | {unquote(secret) for secret in _in_address(value)}


def _is_sensitive(key: str, value: str) -> bool:
    # `replication_key: updated_at` names something, too
    like_one = len(value) >= _SHORTEST_NAMED and any(char.isdigit() for char in value)
    return key.lower() in _SENSITIVE or (like_one and is_secret_name(key))


def host_of(query: Mapping[str, Any], base_url: str = "") -> str:
    """The host that a query reads from, as far as it says so."""
    for name, value in query.items():
        if name.endswith("url") and isinstance(value, str) and value:
            base_url = value
            break
    try:
        return urlsplit(base_url).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
