"""Validators for the fields of a query: one value for a list, unique names, text without control characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import AfterValidator, BaseModel

from harken.kit.digest import digest_of_json
from harken.kit.safe_text import has_control_character

__all__ = [
    "as_list",
    "as_text_list",
    "fingerprint_of",
    "label_name",
    "one_label",
    "plain_value",
    "unique_names",
]

LONGEST_VALUE = 255


def as_list(value: Any) -> Any:
    """A text or number alone becomes a list of one."""
    return [value] if isinstance(value, str) or type(value) is int else value


def as_text_list(value: Any) -> Any:
    """Like `as_list`, with numbers as text: YAML reads a name such as 2024 as a number."""
    values = as_list(value)
    return [str(one) if type(one) is int else one for one in values] if isinstance(values, list | tuple) else values


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names without repeats, as they were first written. Case makes no difference."""
    known: dict[str, str] = {}
    for name in names:
        known.setdefault(name.lower(), name)
    return tuple(known.values())


def label_name(name: str, whose: str) -> str:
    """Return the stripped label. Raise ValueError where it cannot be part of a list with commas between."""
    if not name.strip() or not name.isprintable():
        raise ValueError("a label is empty, or has characters that cannot be printed")
    if "," in name:
        raise ValueError(f"{whose} takes a comma for the end of a label: write several labels as a list")
    return name.strip()


def one_label(*, comma: bool = True) -> AfterValidator:
    """A validator for the label that an action sets: printable, and without a comma unless that is allowed."""

    def check(value: str) -> str:
        if not value.strip() or not value.isprintable() or ("," in value and not comma):
            raise ValueError("is no name of a label")
        return value.strip()

    return AfterValidator(check)


def plain_value(value: object) -> str:
    """Return the value as stripped text. Raise ValueError unless it is short and without control characters."""
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
    """A digest that changes with any field of the query. `QueryModel.fingerprint` is the same."""
    return digest_of_json(query.model_dump(mode="json"))
