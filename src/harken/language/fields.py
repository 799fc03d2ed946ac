"""`{field}` templates for pollers: one pass, so that nothing in a value is ever read as a placeholder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from harken.errors import Misconfigured, Refused
from harken.language.gotext import LONGEST, to_json
from harken.language.paths import MISSING, lookup, suggest
from harken.language.template import Rendered

__all__ = ["Fields", "compile_fields"]

_LONGEST_SOURCE = 64 * 1024
_WHOLE = "json"
_PART = re.compile(r"\{\{|\}\}|\{(?P<path>[^\W\d][\w.\-@/]*)\}")


class Fields:
    """A compiled template; `paths` are the fields it asks for."""

    __slots__ = ("_parts", "paths", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self._parts = _parts(source)
        self.paths = tuple(dict.fromkeys(path for _, path in self._parts if path and path != _WHOLE))

    def render(self, item: Mapping[str, Any]) -> Rendered:
        """Return the text. What is not there stays as `{field}` and leaves a warning; null prints as nothing."""
        texts: list[str] = []
        warnings: dict[str, None] = {}
        room = LONGEST
        for plain, path in self._parts:
            text = plain if path is None else _written(item, path, warnings)
            room -= len(text)
            if room < 0:
                raise Refused(f"the message would be longer than {LONGEST} characters")
            texts.append(text)
        return Rendered(text=_sound("".join(texts)), warnings=list(warnings))


def compile_fields(source: str) -> Fields:
    """Return the template. All but `{field}`, `{{` and `}}` is plain text, so only its size can be wrong."""
    if len(source) > _LONGEST_SOURCE:
        raise Misconfigured(f"the template is {len(source)} characters long; at most {_LONGEST_SOURCE} are allowed")
    return Fields(source)


def _parts(source: str) -> list[tuple[str, str | None]]:
    parts: list[tuple[str, str | None]] = []
    at = 0
    for found in _PART.finditer(source):
        parts.append((source[at : found.start()], None))
        path = found["path"]
        parts.append((found.group()[0] if path is None else found.group(), path))
        at = found.end()
    parts.append((source[at:], None))
    return [part for part in parts if part[0]]


def _written(item: Mapping[str, Any], path: str, warnings: dict[str, None]) -> str:
    value = item if path == _WHOLE else lookup(item, path)
    if value is MISSING:
        above, _, name = path.rpartition(".")
        among = lookup(item, above)
        warnings[f"{{{path}}} is not there{suggest(name, among) if isinstance(among, Mapping) else ''}"] = None
        return f"{{{path}}}"
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(value)


def _sound(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
