"""Translate what was written for other programs to workflows. Each module here is pure: text in, `Imported` out."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Any

import msgspec

from harken.config.findings import Finding, Place

__all__ = ["Imported", "Variable", "free_name", "pattern_of", "plain_text", "slug", "variable_name"]

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 60


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is not written into a workflow because it may be secret. `value` is empty if the file has none."""

    meaning: str
    value: str = ""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """Workflows by name, what harken.yaml needs for them, the variables they use, and what was not taken over."""

    workflows: Mapping[str, Mapping[str, Any]]
    places: Mapping[str, Place] = {}
    settings: Mapping[str, Any] = {}
    variables: Mapping[str, Variable] = {}
    findings: tuple[Finding, ...] = ()


def slug(text: str, separator: str = "-") -> str:
    """`Send e-mail (daily)` as `send-e-mail-daily`; empty if nothing of it can be kept."""
    return _NOT_IN_NAMES.sub(separator, text.lower()).strip(separator)[:_LONGEST_NAME].strip(separator)


def free_name(wanted: str, taken: Container[str], separator: str = "-") -> str:
    """The name, with a number after it if it is taken."""
    name, number = wanted, 2
    while name in taken:
        name = f"{wanted}{separator}{number}"
        number += 1
    return name


def plain_text(text: str) -> str:
    """A text of somebody else as a value in which nothing is a reference: `${` of it stays what it is."""
    return text.replace("${", "$${")


def pattern_of(text: str) -> str:
    """A regular expression for exactly this text."""
    return re.escape(text).replace("\\ ", " ")


def variable_name(*parts: str) -> str:
    """`("n8n", "Send page", "Authorization")` as `N8N_SEND_PAGE_AUTHORIZATION`."""
    name = slug(" ".join(parts), "_").upper()
    return name if name[:1].isalpha() else f"IMPORTED_{name}"
