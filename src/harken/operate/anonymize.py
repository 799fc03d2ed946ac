"""Takes secrets and people out of the data of an event: the same stand-in for the same value, wherever it stands."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from harken.http.known_secret_redaction import redact

__all__ = ["Anonymiser"]

Path = tuple[str | int, ...]
_SECRET = re.compile(r"token|secret|passw|authori[sz]ation|api_?key|credential|cookie|signature|private", re.IGNORECASE)
_PERSON = re.compile(
    r"(^|_)(name|user|username|login|email|mail|phone|mobile|address|author|assignee|reporter|creator|owner|sender"
    r"|recipient|from|to|cc|customer|person|first_?name|last_?name|full_?name|display_?name|handle|ip|birth\w*)$",
    re.IGNORECASE,
)
# these begin only where a word does and have an end: a long text without a match takes no longer than another
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+")
_URL = re.compile(r"https?://[^\s\"'<>)]+")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
_PHONE = re.compile(r"(?<![\w.-])\+?\d[\d ()/-]{7,40}\d(?![\w-])")
_HANDLE = re.compile(r"(?<!\w)@[A-Za-z][\w.-]+")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ][\d:.]+(Z|[+-]\d{2}:?\d{2})?)?")
MASK = "***"
NAME_END = 64
"""So much of the end of a field's name tells what it has."""


class Anonymiser:
    """Replaces what may be of a person, and everything that is a secret. Values at paths to `keep` stay readable.

    Secrets of the installation are found by their values, others by the names of their fields.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = frozenset(secrets)
        self._stand_ins: dict[str, dict[str, str]] = {"person": {}, "text": {}, "page": {}, "number": {}}
        self._made: set[str] = set()

    def data(self, value: Any, keep: Collection[Path] = (), path: Path = ()) -> Any:
        """The value without secrets and people, except for what is to be kept, which only loses its secrets."""
        if isinstance(value, Mapping):
            return {self._bare(str(name)): self.data(inner, keep, (*path, str(name))) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(inner, keep, (*path, at)) for at, inner in enumerate(value)]
        name = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
        if _SECRET.search(name) and value not in (None, "", True, False):
            return MASK
        if not isinstance(value, str):
            return value
        bare = self._bare(value)
        return bare if any(path[: len(one)] == one for one in keep) else self._without_people(bare, path)

    def text(self, value: str) -> str:
        """A name such as a subject: only what looks like a person in it is replaced."""
        return self._without_patterns(self._bare(value))

    def _bare(self, value: str) -> str:
        return redact(value, self._secrets)

    def _without_people(self, value: str, path: Path) -> str:
        if not value or _TIME.fullmatch(value):
            return value
        names = [str(part) for part in path if isinstance(part, str)]
        # `user: {name: …}` and `name: …` are people; so is any text below `author`
        if _EMAIL.fullmatch(value) or _URL.fullmatch(value):
            return self._without_patterns(value)
        if any(_PERSON.search(name[-NAME_END:]) for name in names[-2:]):
            return self._stand_in("person", value)
        if " " in value.strip() or "\n" in value:
            return self._stand_in("text", value)
        return self._without_patterns(value)

    def _without_patterns(self, value: str) -> str:
        value = _URL.sub(lambda found: f"https://example.com/{self._stand_in('page', found[0])}", value)
        value = _EMAIL.sub(lambda found: f"{self._stand_in('person', found[0])}@example.com", value)
        value = _HANDLE.sub(lambda found: f"@{self._stand_in('person', found[0])}", value)
        value = _ADDRESS.sub(lambda found: "192.0.2.1", value)
        return _PHONE.sub(
            lambda found: found[0] if _TIME.match(found[0]) else self._stand_in("number", found[0]), value
        )

    def _stand_in(self, kind: str, value: str) -> str:
        if value in self._made and value.startswith(f"{kind}-"):
            return value
        known = self._stand_ins[kind]
        found = known.setdefault(value, f"{kind}-{len(known) + 1}")
        self._made.add(found)
        return found
