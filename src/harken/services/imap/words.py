"""What is said to a server, word by word: a search or a folder's name can never become another command."""

from __future__ import annotations

import base64
import re
from datetime import date

__all__ = ["day", "folder_name", "quoted", "search_keys"]

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\["\\])*")|([()])|([^\s()"\\{%]+))')
_NAMES = "ALL ANSWERED DELETED DRAFT FLAGGED NEW OLD RECENT SEEN UNANSWERED UNDELETED UNDRAFT UNFLAGGED UNSEEN"
_PLAIN = frozenset(_NAMES.split())
_TEXT = frozenset({"BCC", "BODY", "CC", "FROM", "SUBJECT", "TEXT", "TO", "X-GM-RAW"})
_DATE = frozenset({"BEFORE", "ON", "SENTBEFORE", "SENTON", "SENTSINCE", "SINCE"})
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY = re.compile(rf"\d{{1,2}}-({'|'.join(_MONTHS)})-\d{{4}}", re.IGNORECASE)
_ATOM = re.compile(r"[A-Za-z0-9_$.-]{1,100}")
_DEEPEST = 20


def quoted(text: str) -> str:
    """A quoted string. ValueError for what cannot stand in one."""
    if not text.isascii() or not text.isprintable():
        raise ValueError("only plain letters can be searched for by IMAP: no accents, no line ends")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def day(moment: date) -> str:
    return f"{moment.day:02}-{_MONTHS[moment.month - 1]}-{moment.year:04}"


def folder_name(name: str) -> str:
    """The quoted name of a folder in the alphabet of IMAP (modified UTF-7)."""
    if not name or not name.isprintable() or len(name) > 300:
        raise ValueError("a folder has a name, without line ends")
    pieces = re.split(r"([^\x20-\x7e]+)", name)
    return quoted("".join(_shifted(piece) if at % 2 else piece.replace("&", "&-") for at, piece in enumerate(pieces)))


def _shifted(text: str) -> str:
    packed = base64.b64encode(text.encode("utf-16-be")).decode().rstrip("=")
    return f"&{packed.replace('/', ',')}-"


def search_keys(text: str) -> str:
    """The search, understood and written again. ValueError says what is wrong with it."""
    words: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"a search has no {text[at:].strip()[:1]!r} here")
        words.append(found[0].strip())
        at = found.end()
    if not words:
        raise ValueError("the search is empty: write ALL for everything")
    written: list[str] = []
    while words:
        written.append(_key(words, _DEEPEST))
    return " ".join(written)


def _key(words: list[str], depth: int) -> str:
    word = _next(words).upper()
    if not depth:
        raise ValueError("the search is nested too deep")
    if word == "(":
        inner = []
        while words and words[0] != ")":
            inner.append(_key(words, depth - 1))
        if not words or not inner:
            raise ValueError("the search has a ( without a ), or with nothing in it")
        words.pop(0)
        return f"({' '.join(inner)})"
    if word == "NOT":
        return f"NOT {_key(words, depth - 1)}"
    if word == "OR":
        return f"OR {_key(words, depth - 1)} {_key(words, depth - 1)}"
    return word if word in _PLAIN else f"{word} {_value(word, words)}"


def _value(word: str, words: list[str]) -> str:
    if word in _TEXT:
        return quoted(_bare(_next(words)))
    if word == "HEADER":
        return f"{quoted(_bare(_next(words)))} {quoted(_bare(_next(words)))}"
    if word in _DATE:
        return _matching(_DAY, _bare(_next(words)), f"{word} needs a day such as 5-Jan-2026")
    if word in ("LARGER", "SMALLER"):
        return _matching(re.compile(r"\d{1,10}"), _next(words), f"{word} needs a number of bytes")
    if word in ("KEYWORD", "UNKEYWORD"):
        return _matching(_ATOM, _next(words), f"{word} needs the name of a flag")
    raise ValueError(f'{word[:40]!r} is no word of an IMAP search: write UNSEEN, FROM ana, SUBJECT "new lead" …')


def _matching(pattern: re.Pattern[str], word: str, otherwise: str) -> str:
    if not pattern.fullmatch(word):
        raise ValueError(otherwise)
    return word


def _next(words: list[str]) -> str:
    if not words:
        raise ValueError("the search ends too early: something is missing at its end")
    return words.pop(0)


def _bare(word: str) -> str:
    if word in "()":
        raise ValueError("the search has a ( or ) where a text should be")
    return word[1:-1].replace('\\"', '"').replace("\\\\", "\\") if word.startswith('"') else word
