"""The secrets that a configuration holds, to be kept out of logs: by their type, their name or their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, SecretStr

from harken.config.interpolate import is_secret_name
from harken.config.yaml.nodes import Node, strings

__all__ = ["password_in", "secrets_by_name", "secrets_in"]


def secrets_in(value: Any) -> set[str]:
    """Every secret text in a validated model, to be kept out of logs."""
    if isinstance(value, BaseModel):
        return secrets_in([getattr(value, name) for name in type(value).model_fields])
    if isinstance(value, SecretStr):
        return {value.get_secret_value()} - {""}
    if isinstance(value, Mapping):
        return secrets_in(list(value.values()))
    found = (secrets_in(inner) for inner in value) if isinstance(value, (list, tuple, set, frozenset)) else ()
    return set().union(*found)


def secrets_by_name(node: Node) -> set[str]:
    """Credentials that stand in the file itself, by the name of their setting."""
    return {str(found.value) for path, found in strings(node) if path and is_secret_name(str(path[-1]))}


def password_in(address: str | None) -> str:
    """The password that is written into an address; empty when there is none."""
    try:
        parts = urlsplit(address or "")
        return unquote(parts.password or "") or dict(parse_qsl(parts.query)).get("password", "")
    except ValueError:
        return ""
