"""Find the secrets in a configuration by type, name or place, to keep them out of logs and the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

from harken.config.interpolate import is_secret_name
from harken.config.yaml.nodes import Node, strings

__all__ = ["password_in", "revealed_query", "secrets_by_name", "secrets_in", "secrets_in_query", "storable_query"]

_MASK = "**********"
# shorter values are names, such as `?key=PROJ`, not credentials
_SHORTEST_CREDENTIAL = 12
_SENSITIVE = frozenset(
    {"secret", "token", "password", "api_key", "app_key", "client_secret", "access_token", "authorization"}
    | {"proxy-authorization", "x-api-key", "cookie"}
)


def secrets_in(value: Any) -> set[str]:
    """Return every SecretStr value in a validated model."""
    if isinstance(value, BaseModel):
        return secrets_in([getattr(value, name) for name in type(value).model_fields])
    if isinstance(value, SecretStr):
        return {value.get_secret_value()} - {""}
    if isinstance(value, Mapping):
        return secrets_in(list(value.values()))
    found = (secrets_in(inner) for inner in value) if isinstance(value, (list, tuple, set, frozenset)) else ()
    return set().union(*found)


def secrets_by_name(node: Node) -> set[str]:
    """Return the values in a file whose setting is named like a secret."""
    return {str(found.value) for path, found in strings(node) if path and is_secret_name(str(path[-1]))}


def password_in(address: str | None) -> str:
    """Return the password of an address (`user:password@` or `?password=`), or an empty text."""
    try:
        parts = urlsplit(address or "")
        return unquote(parts.password or "") or dict(parse_qsl(parts.query)).get("password", "")
    except ValueError:
        return ""


def revealed_query(model: BaseModel | None) -> dict[str, Any]:
    """Return the query as JSON values with defaults and secrets: for comparing only, never stored."""
    return to_jsonable_python(_reveal(model.model_dump())) if model is not None else {}


def _reveal(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        return {key: _reveal(inner) for key, inner in value.items()}
    return [_reveal(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def storable_query(model: BaseModel | None, hide: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
    """Return the query as JSON values with defaults, for the store. Secrets are masked.

    `hide` puts references such as `${secret:NAME}` in place of the values that they gave.
    """
    return _mask_value(hide(model.model_dump(mode="json"))) if model is not None else {}


def _mask_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _mask_setting(str(key), inner) for key, inner in value.items()}
    if isinstance(value, str):
        return _mask_address(value)
    return [_mask_value(inner) for inner in value] if isinstance(value, list) else value


def _mask_setting(key: str, value: Any) -> Any:
    return _MASK if isinstance(value, str) and value and key.lower() in _SENSITIVE else _mask_value(value)


def _mask_address(text: str) -> str:
    for secret in _secrets_in_address(text):
        text = text.replace(secret, _MASK)
    return text


def secrets_in_query(value: Any, key: str = "") -> set[str]:
    """Return the values in a query (as JSON values) whose setting or place says that they are secret."""
    if isinstance(value, Mapping):
        return set().union(*(secrets_in_query(inner, str(name)) for name, inner in value.items()))
    if isinstance(value, list):
        return set().union(*(secrets_in_query(inner, key) for inner in value))
    if not isinstance(value, str):
        return set()
    # in `Bearer x` the secret follows the scheme
    named = {value.rpartition(" ")[2]} - {""} if _is_sensitive(key, value) else set()
    return named | {unquote(secret) for secret in _secrets_in_address(value)}


def _is_sensitive(key: str, value: str) -> bool:
    # `replication_key: updated_at` is a name, not a credential
    like_credential = len(value) >= _SHORTEST_CREDENTIAL and any(char.isdigit() for char in value)
    return key.lower() in _SENSITIVE or (like_credential and is_secret_name(key))


def _secrets_in_address(text: str) -> set[str]:
    """Return the password of an address and the parameters that are named like secrets, but no references."""
    try:
        parts = urlsplit(text) if "://" in text else None
        password = parts.password or "" if parts else ""
    except ValueError:
        return set()
    pairs = [pair.partition("=") for pair in parts.query.split("&")] if parts else []
    found = {value for name, _, value in pairs if is_secret_name(unquote(name)) and len(value) >= _SHORTEST_CREDENTIAL}
    return {value for value in {password, *found} if value and not value.startswith("${")}
