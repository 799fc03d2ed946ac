"""Gmail's search as far as jobs use it: words, fields, labels, ages, quotation marks, (), {}, OR and -."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

__all__ = ["Searched", "finder"]

_TOKEN = re.compile(r'\s*(-?(?:\w+:)?"[^"]*"|-?\w+:(?=[({])|-?(?=[({])|[(){}]|[^\s(){}]+)')
_AGES = {"d": 86_400, "m": 2_592_000, "y": 31_536_000}
_PLACES = {"inbox": "INBOX", "sent": "SENT", "drafts": "DRAFT", "trash": "TRASH", "spam": "SPAM"}
_STATES = {"unread": "UNREAD", "starred": "STARRED", "important": "IMPORTANT"}


class Searched(Protocol):
    """What a search looks at: `texts` by field, the names and ids of labels, and the time in seconds."""

    texts: Mapping[str, str]
    labels: set[str]
    at: float


Test = Callable[[Any], bool]


def finder(query: str, now: float, names: Mapping[str, str]) -> Test:
    """The search as a function of a mail; `names` has the ids of labels by their names."""
    tokens = [token for token in _TOKEN.findall(query) if token]
    return _group(tokens, "", now, names)


def _group(tokens: list[str], end: str, now: float, names: Mapping[str, str], field: str = "") -> Test:
    """Everything up to `end`: in () all of it, in {} any of it; OR joins its neighbours."""
    tests: list[list[Test]] = []
    joined = False
    while tokens and (token := tokens.pop(0)) != end:
        if token == "OR":
            joined = True
            continue
        test = _term(token, tokens, now, names, field)
        if joined and tests:
            tests[-1].append(test)
        else:
            tests.append([test])
        joined = False
    choose = any if end == "}" else all
    return lambda mail: choose(any(test(mail) for test in either) for either in tests)


def _term(token: str, tokens: list[str], now: float, names: Mapping[str, str], field: str) -> Test:
    if token.startswith("-") and len(token) > 1:
        test = _term(token[1:], tokens, now, names, field)
        return lambda mail: not test(mail)
    if token == "-":
        test = _term(tokens.pop(0), tokens, now, names, field)
        return lambda mail: not test(mail)
    if token in "({":
        return _group(tokens, {"(": ")", "{": "}"}[token], now, names, field)
    name, colon, word = token.partition(":")
    if colon and not word:
        return _group(tokens, {"(": ")", "{": "}"}[tokens.pop(0)], now, names, name.lower())
    return _test(name.lower() if colon else field, (word if colon else token).strip('"').lower(), now, names)


def _test(field: str, word: str, now: float, names: Mapping[str, str]) -> Test:
    if field == "after":
        return lambda mail: mail.at > float(word)
    if field == "newer_than":
        return lambda mail: mail.at > now - int(word[:-1]) * _AGES[word[-1]]
    if field == "is" and word == "read":
        return lambda mail: "UNREAD" not in mail.labels
    if field in ("is", "in", "label"):
        found = (_PLACES | _STATES).get(word) or names.get(word, "no such label")
        return lambda mail: found in mail.labels
    if field in ("from", "to", "subject"):
        return lambda mail: word in mail.texts[field].lower()
    return lambda mail: any(word in text.lower() for text in mail.texts.values())
