"""Takes secrets and people out of the data of an event: the same stand-in for the same value, wherever it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from harken.http.known_secret_redaction import redact

__all__ = ["Anonymiser"]

Path = tuple[str | int, ...]
# of names of fields with words apart: X-Api-Key and apiKey are x_api_key and api_key
_SECRET = re.compile(
    r"token|secret|passw|passphrase|pwd|authori[sz]ation|api_?key|access_?key|credential|cookie|signature|private|bearer"
    r"|jwt|connection_?string|csrf|xsrf|iban|cvv|cvc|session_?(id|key)"
    r"|(^|_)(pass|auth|otp|pin|sid|dsn|ssn|(card|account)_?(number|no))$"
    r"|(^|_)(pass|otp|totp|mfa|2fa|pin|one_?time|verification|security|recovery|backup|access|login|device)_?codes?$",
    re.IGNORECASE,
)
_BEFORE_VALUE = re.compile(r"--?[a-z][\w.-]*|x-[\w-]+|(proxy-)?authorization|(set-)?cookie2?", re.IGNORECASE)
"""Names in a list of arguments or headers, of which the next item is the value."""
_PERSON = re.compile(
    r"(^|_)((first|last|full|middle)?name|user|username|login|email|mail|phone|mobile|fax|address|street|author|assignee|reporter|creator|owner"
    r"|sender|recipient|from|to|cc|bcc|by|actor|approver|contact|customer|employee|member|participant|patient|requester"
    r"|reviewer|person|surname|nickname|handle|ip)s?$|(^|_)(people|birth\w*|dob)$",
    re.IGNORECASE,
)
_OF_A_PERSON = re.compile(r"(^|_)(phone|mobile|fax)(_?(number|no))?s?$|(^|_)(birth\w*|dob)$", re.IGNORECASE)
"""Names of what also a number or a date tells of somebody."""
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-. ]")
_LABELS = frozenset({"name", "key", "header", "field", "label"})
"""Where lists of fields are written as {name: …, value: …}, what has the name."""
_VALUES = re.compile(r"values?$|^val$", re.IGNORECASE)
"""And what has the value: also `stringValue` and the like."""
# these begin only where a word does and have an end: a long text without a match takes no longer than another
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+")
_URL = re.compile(r"https?://[^\s\"'<>)]+|(?<![\w+.-])[A-Za-z][\w+.-]{0,30}://[^\s/@\"'<>)]*+@[^\s\"'<>)]*")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
_ADDRESS_6 = re.compile(r"(?<![\w:])(?=[a-f:]*+\d)(?:[\da-f]{0,4}:){3,7}[\da-f]{0,4}(?![\w:])", re.IGNORECASE)
_PHONE = re.compile(r"(?<![\w.-])\+?\d[\d ()/-]{7,40}\d(?![\w-])")
_HANDLE = re.compile(r"(?<!\w)@[A-Za-z][\w.-]+")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ][\d:.]+(Z|[+-]\d{2}:?\d{2})?)?")
_ASSIGNED = re.compile(r"(?:(?<![\w.-])|(?<=%3D))([\w.-]++)[\"']?(=|%3D|:|>) ?[\"']?", re.IGNORECASE)
_VALUE = re.compile(r"[^\s&;,\"'}]++")
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[opsur]_|github_pat_|glpat-|xox[a-z]-|xapp-|sk-|[srp]k_(?:live|test)_|whsec_|hkn_|npm_|pypi-"
    r"|SG\.|ya29\.|GOCSPX-|AKIA|ASIA|AIza)(?=[A-Za-z_.+/=-]{0,64}+\d)[\w.+/=-]{12,}+"
    r"|(?<![\w+])u\+(?=[A-Za-z_-]*+\d)[\w-]{18}(?![\w-])"
    r"|(?<![A-Za-z0-9])eyJ[\w-]{8,1024}+\.[\w.=-]++"
    r"|(?<![A-Za-z0-9])(?:Bearer|Basic|Digest|Token) (?=\S{0,200}?(?:\d|[a-z][A-Z]|=))[\w.+/=~-]{8,}+"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*+(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
)
"""What the tokens of well-known services look like, whatever their field is called.

They may seem to begin again and again: so each is looked at only so far before it is known to be one."""
_OPAQUE = re.compile(
    r"(?<![A-Za-z0-9])(?=[A-Za-z]*+\d)(?=\d*+[A-Za-z])[A-Za-z0-9]{20,}+"
    r"|(?<![\w+/=-])(?=[\d_A-Z+/=-]*+[a-z])(?=[\d_a-z+/=-]*+[A-Z])(?=[A-Za-z_+/=-]*+\d)[\w+/=-]{32,}+",
    re.ASCII,
)
"""Random letters and digits: a key of somebody, or an id that is as good with another value."""
MASK = "***"
NAME_END = 64
"""So much of the end of a field's name tells what it has."""
DEEPEST = 5
"""So often JSON may be a text in JSON."""
MOST_LEVELS = 100
"""What is deeper than so many objects and lists, also those of texts that are JSON, is not shown."""


class Anonymiser:
    """Replaces what may be of a person, and everything that is a secret. Values at paths to `keep` stay readable.

    Secrets of the installation are found by their values, others by the names of their fields, or by what they look
    like. A text that is JSON is looked through as the rest.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = frozenset(secrets)
        self._stand_ins: dict[str, dict[str, str]] = {"person": {}, "text": {}, "page": {}, "number": {}, "code": {}}
        self._made: set[str] = set()

    def data(self, value: Any, keep: Collection[Path] = ()) -> Any:
        """The value without secrets and people, except for what is to be kept, which only loses its secrets."""
        return self._data(value, keep, _Place())

    def _data(self, value: Any, keep: Collection[Path], place: _Place) -> Any:
        if len(place.path) > MOST_LEVELS:
            return MASK
        if isinstance(value, Mapping):
            return self._mapping(value, keep, place)
        if isinstance(value, list | tuple):
            if len(value) == 2 and isinstance(value[0], str) and _is_secret(value[0]):
                # a header as some servers write it
                return [self._bare(value[0]), MASK]
            return self._list(value, keep, place)
        if place.secret and value not in (None, "", True, False):
            return MASK
        kept = _is_kept(place.path, keep)
        if isinstance(value, str):
            bare = self._bare(value)
            return bare if kept else self._without_people(bare, place)
        personal = not isinstance(value, bool) and isinstance(value, int | float) and place.is_about(_OF_A_PERSON, 1)
        return 0 if personal and not kept else value

    def _list(self, value: Sequence[Any], keep: Collection[Path], place: _Place) -> list[Any]:
        found: list[Any] = []
        for number, inner in enumerate(value):
            before = value[number - 1] if number else None
            named = isinstance(before, str) and _BEFORE_VALUE.fullmatch(before) is not None and _is_secret(before)
            found.append(self._data(inner, keep, place.at(number)._replace(secret=place.secret or named)))
        return found

    def _mapping(self, value: Mapping[Any, Any], keep: Collection[Path], place: _Place) -> dict[str, Any]:
        labels = [text for name, text in value.items() if str(name).lower() in _LABELS and isinstance(text, str)]
        found: dict[str, Any] = {}
        counts: dict[str, int] = {}
        for name, inner in value.items():
            named_beside = labels and _VALUES.search(str(name))
            called = next(filter(_is_secret, labels), labels[0]) if named_beside else str(name)
            key = _unique(self._key(str(name), keep, place), found, counts)
            found[key] = self._data(inner, keep, place.below(str(name), called))
        return found

    def _key(self, name: str, keep: Collection[Path], place: _Place) -> str:
        """The name of a field, which may be somebody's address too."""
        clean, path = self._bare(name), (*place.path, name)
        if _is_kept(path, keep) or any(one[: len(path)] == path for one in keep):
            return clean
        return self._without_patterns(clean)

    def text(self, value: str) -> str:
        """A name such as a subject: only what looks like a person or a secret in it is replaced."""
        return self._without_patterns(self._bare(value))

    def _bare(self, value: str) -> str:
        return _TOKEN.sub(MASK, redact(value, self._secrets))

    def _without_people(self, value: str, place: _Place) -> str:
        if not value or (_TIME.fullmatch(value) and not place.is_about(_OF_A_PERSON, 1)):
            return value
        if value[0] in "{[" and place.depth < DEEPEST and (inner := _json(value)) is not None:
            return json.dumps(self._data(inner, (), place.inside()), ensure_ascii=False)
        # `user: {name: …}` and `name: …` are people; so is any text below `author`
        if _EMAIL.fullmatch(value) or _URL.fullmatch(value):
            return self._without_patterns(value)
        if place.is_about(_PERSON, 2):
            return self._stand_in("person", value)
        if " " in value.strip() or "\n" in value:
            return self._stand_in("text", value)
        return self._without_patterns(value)

    def _without_patterns(self, value: str) -> str:
        value = _URL.sub(lambda found: f"https://example.com/{self._stand_in('page', found[0])}", value)
        value = "".join(self._assigned(value))
        value = _EMAIL.sub(lambda found: f"{self._stand_in('person', found[0])}@example.com", value)
        value = _HANDLE.sub(lambda found: f"@{self._stand_in('person', found[0])}", value)
        value = _OPAQUE.sub(lambda found: self._stand_in("code", found[0]), value)
        value = _ADDRESS.sub(lambda found: "192.0.2.1", value)
        value = _ADDRESS_6.sub(lambda found: "2001:db8::1", value)
        return _PHONE.sub(
            lambda found: found[0] if _TIME.match(found[0]) else self._stand_in("number", found[0]), value
        )

    def _assigned(self, text: str) -> Iterator[str]:
        """The text in parts, without the secrets and people of `name=value`, `name:value` and `<name>value` in it."""
        end = 0
        for found in _ASSIGNED.finditer(text):
            name, sign = found.groups()
            secret = _is_secret(name)
            # what stands in the value of a pair that was replaced is gone; else it may be a pair of its own
            if found.start() < end or not (secret or (sign != ":" and _PERSON.search(_words(name)))):
                continue
            if (value := _VALUE.match(text, found.end())) is not None:
                yield text[end : found.end()]
                yield MASK if secret else self._stand_in("person", value[0])
                end = value.end()
        yield text[end:]

    def _stand_in(self, kind: str, value: str) -> str:
        if value in self._made and value.startswith(f"{kind}-"):
            return value
        known = self._stand_ins[kind]
        found = known.setdefault(value, f"{kind}-{len(known) + 1}")
        self._made.add(found)
        return found


class _Place(NamedTuple):
    """Where a value stands. `names` are what the fields above it are called, `secret` if one of them has secrets.

    `depth`: in so many texts that are JSON."""

    path: Path = ()
    names: tuple[str, ...] = ()
    secret: bool = False
    depth: int = 0

    def below(self, name: str, called: str) -> _Place:
        words = _words(called)
        return _Place((*self.path, name), (*self.names, words), self.secret or _is_secret(called), self.depth)

    def at(self, number: int) -> _Place:
        return self._replace(path=(*self.path, number))

    def inside(self) -> _Place:
        return self._replace(depth=self.depth + 1)

    def is_about(self, what: re.Pattern[str], levels: int) -> bool:
        """Whether one of the names just above it says so."""
        return any(what.search(name) for name in self.names[-levels:])


def _unique(name: str, taken: Collection[str], counts: dict[str, int]) -> str:
    """The name, or the next one with a number that no other field of the object has. `counts`: the last of each."""
    unique = name
    while unique in taken:
        counts[name] = counts.get(name, 1) + 1
        unique = f"{name}-{counts[name]}"
    return unique


def _is_kept(path: Path, keep: Collection[Path]) -> bool:
    return any(path[: len(one)] == one for one in keep)


def _words(name: str) -> str:
    """The end of a field's name, with its words apart."""
    return _WORDS.sub("_", name[-NAME_END:])


def _is_secret(name: str) -> bool:
    return _SECRET.search(_words(name)) is not None


def _json(text: str) -> Any:
    """What the text has as JSON; None for a text that has none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
