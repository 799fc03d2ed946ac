"""Text functions in templates. Null in, null out; numbers are taken as their text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from harken.errors import Refused
from harken.language.cel.values import kind_of
from harken.language.go_template.format import check_length, to_text

__all__ = ["FUNCTIONS"]

# what Go calls space: Python's own set has four control characters more
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

# words begin after ASCII that is no letter, digit or underscore, and after any space
_WORD_START = re.compile(rf"(?:^|(?<=[\x00-/:-@\[-^`{{-\x7f{_SPACE}]))[^\W\d_]")


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | tuple | Mapping):
        raise Refused(f"{name} takes a text, not a {kind_of(value)}")
    return to_text(value)


def _on_text(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        if arguments[-1] is None:
            return None
        return change(*[_text(name, argument) for argument in arguments])

    return call


def _asks_text(name: str, ask: Callable[[str, str], bool]) -> Callable[..., bool]:
    def call(wanted: Any, value: Any) -> bool:
        return value is not None and ask(_text(name, wanted), _text(name, value))

    return call


def _each(text: str, changed: str, change: Callable[[str], str]) -> str:
    # Go changes case letter by letter and never makes one letter two, as in ß and SS
    if len(changed) == len(text):
        return changed
    letters = [(letter, change(letter)) for letter in text]
    return "".join(new if len(new) == 1 else letter for letter, new in letters)


def _upper(text: str) -> str:
    return _each(text, text.upper(), str.upper)


def _lower(text: str) -> str:
    return _each(text, text.lower(), str.lower)


def _title(text: str) -> str:
    return _WORD_START.sub(lambda found: _one_letter(found.group()), text)


def _one_letter(letter: str) -> str:
    return letter.title() if len(letter.title()) == 1 else letter


def _replace(old: str, new: str, text: str) -> str:
    check_length(len(text) + text.count(old) * max(0, len(new) - len(old)))
    return text.replace(old, new)


def _split(separator: str, text: str) -> list[str]:
    return text.split(separator) if separator else list(text)


def _join(separator: Any, items: Any) -> str:
    if not isinstance(items, list | tuple):
        raise Refused(f"join takes a list, not a {kind_of(items)}")
    between = _text("join", separator)
    length = len(between) * len(items)
    parts: list[str] = []
    for item in items:
        parts.append(to_text(item))
        length += len(parts[-1])
        check_length(length)
    return between.join(parts)


def _contains(wanted: Any, value: Any) -> bool:
    if isinstance(value, list | tuple):
        # the plain test is the fast one; the careful one tells 1 from true
        return wanted in value and any(_alike(wanted, item) for item in value)
    if isinstance(value, Mapping):
        raise Refused("contains takes a text or a list; use hasKey for an object")
    return value is not None and _text("contains", wanted) in _text("contains", value)


def _alike(one: Any, other: Any) -> bool:
    plain = (bool, int, float, str)
    return isinstance(one, plain) and isinstance(other, plain) and kind_of(one) == kind_of(other) and one == other


FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "upper": (_on_text("upper", _upper), 1),
    "lower": (_on_text("lower", _lower), 1),
    "title": (_on_text("title", _title), 1),
    "trim": (_on_text("trim", lambda text: text.strip(_SPACE)), 1),
    "trimPrefix": (_on_text("trimPrefix", lambda prefix, text: text.removeprefix(prefix)), 2),
    "trimSuffix": (_on_text("trimSuffix", lambda suffix, text: text.removesuffix(suffix)), 2),
    "replace": (_on_text("replace", _replace), 3),
    "split": (_on_text("split", _split), 2),
    "join": (_join, 2),
    "contains": (_contains, 2),
    "hasPrefix": (_asks_text("hasPrefix", lambda prefix, text: text.startswith(prefix)), 2),
    "hasSuffix": (_asks_text("hasSuffix", lambda suffix, text: text.endswith(suffix)), 2),
}
