"""What people write in a query, as a service needs it: one value for several, each once, and nothing but plain text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from harken.kit.digest import digest_of_json
from harken.kit.text import has_control_character

__all__ = [
    "as_list",
    "as_text_list",
    "fingerprint_of",
    "label_name",
    "plain_value",
    "unique_names",
]

LONGEST_VALUE = 255


def as_list(value: Any) -> Any:
    """A text or number alone stands for a list of one."""
    return [value] if isinstance(value, str) or type(value) is int else value


def as_text_list(value: Any) -> Any:
    """Like `several`; a number is a name that YAML takes for one."""
    found = as_list(value)
    return [str(one) if type(one) is int else one for one in found] if isinstance(found, list | tuple) else found


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names as they were first written; capitals make no other name."""
    known: dict[str, str] = {}
    for name in names:
        known.setdefault(name.lower(), name)
    return tuple(known.values())


def label_name(name: str, whose: str) -> str:
    """The label without blanks around it. ValueError where it cannot stand in a list with commas between."""
    if not name.strip() or not name.isprintable():
        raise ValueError("a label is empty, or has characters that cannot be printed")
    if "," in name:
        raise ValueError(f"{whose} takes a comma for the end of a label: write several labels as a list")
    return name.strip()


def plain_value(value: object) -> str:
    """A value as it may stand in a query: short text without control characters. ValueError says what is wrong."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("must be text")
    text = str(value).strip()
    if not text:
        raise ValueError("must not be empty")
    if len(text) > LONGEST_VALUE:
        raise ValueError(f"is longer than {LONGEST_VALUE} characters")
    if has_control_character(text):
        raise ValueError("holds a control character, such as a line end. Remove it")
    return text


def fingerprint_of(query: BaseModel) -> str:
    """Changes when anything of the query does."""
    return digest_of_json(query.model_dump(mode="json"))
