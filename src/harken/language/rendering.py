"""One run of a template: what it made, what was missing, and what it may still spend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.errors import Refused
from harken.language.cel.values import kind_of
from harken.language.go_template.format import LONGEST
from harken.language.go_template.functions import Absent
from harken.language.paths import suggest

__all__ = ["FUEL", "Rendering"]

FUEL = 300_000
_MOST_WARNINGS = 20


class Rendering:
    """What changes while a template runs; nothing in it outlives the run."""

    __slots__ = ("dot", "fuel", "out", "room", "root", "slots", "strict", "warnings")

    def __init__(self, root: Mapping[str, Any], slots: int, strict: bool) -> None:
        self.root = self.dot = root
        self.slots: list[Any] = [None] * slots
        self.strict = strict
        self.out: list[str] = []
        self.room = LONGEST
        self.fuel = FUEL
        self.warnings: dict[str, None] = {}

    def burn(self, amount: int) -> None:
        self.fuel -= amount
        if self.fuel < 0:
            raise Refused("the template takes too many steps", fix="Loop over fewer items")

    def emit(self, text: str) -> None:
        self.room -= len(text)
        if self.room < 0:
            raise Refused(f"the template makes more than {LONGEST} characters")
        self.out.append(text)

    def note(self, absent: Absent) -> None:
        """Complain about a field that is not there: an error in a mapping, a warning in prose."""
        text = f"{absent.path} is not there{_hint(absent)}"
        if self.strict:
            raise Refused(text)
        if len(self.warnings) < _MOST_WARNINGS:
            self.warnings[text] = None

    def text(self) -> str:
        text = "".join(self.out)
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-8", "replace").decode()
        return text


def _hint(absent: Absent) -> str:
    if isinstance(absent.among, Mapping):
        return suggest(absent.name, absent.among)
    if isinstance(absent.among, list | tuple):
        return f": the list has {len(absent.among)} items"
    return f": it would be in a {kind_of(absent.among)}" if absent.among is not None else ""
