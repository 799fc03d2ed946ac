"""Which mails of a folder a feed reads, and how searches and names of folders are written in IMAP (RFC 3501)."""

from __future__ import annotations

import base64
import re
from datetime import date
from typing import ClassVar

from pydantic import Field, field_validator

from harken.kit.mail import FIELDS, MailQuery

__all__ = ["Query", "folder_name", "imap_date", "search_keys"]

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\["\\])*")|([()])|([^\s()"\\{%]+))')
_NAMES = "ALL ANSWERED DELETED DRAFT FLAGGED NEW OLD RECENT SEEN UNANSWERED UNDELETED UNDRAFT UNFLAGGED UNSEEN"
_PLAIN = frozenset(_NAMES.split())
_TEXT = frozenset({"BCC", "BODY", "CC", "FROM", "SUBJECT", "TEXT", "TO", "X-GM-RAW"})
_DATE = frozenset({"BEFORE", "ON", "SENTBEFORE", "SENTON", "SENTSINCE", "SINCE"})
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY = re.compile(rf"\d{{1,2}}-({'|'.join(_MONTHS)})-\d{{4}}", re.IGNORECASE)
_ATOM = re.compile(r"[A-Za-z0-9_$.-]{1,100}")
_DEEPEST = 20


class Query(MailQuery):
    """Which mails of which folder, and which fields are extracted from them."""

    fields: ClassVar[frozenset[str]] = FIELDS | {"uid", "uid_validity", "folder"}
    folder: str = Field("INBOX", description="the folder to watch")
    search: str = Field("UNSEEN", max_length=1_000, description='IMAP search, such as UNSEEN SUBJECT "new lead"')

    @field_validator("folder")
    @classmethod
    def _is_folder(cls, value: str) -> str:
        folder_name(value)
        return value

    @field_validator("search")
    @classmethod
    def _is_search(cls, value: str) -> str:
        return search_keys(value)


def quote(text: str) -> str:
    """An IMAP quoted string. ValueError if it has characters that are not allowed there."""
    if not text.isascii() or not text.isprintable():
        raise ValueError("IMAP can search only for ASCII text: no accents, no line ends")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def imap_date(moment: date) -> str:
    return f"{moment.day:02}-{_MONTHS[moment.month - 1]}-{moment.year:04}"


def folder_name(name: str) -> str:
    """The quoted name of a folder in IMAP's encoding (modified UTF-7)."""
    if not name or not name.isprintable() or len(name) > 300:
        raise ValueError("the name of a folder is not empty, and has no line ends")
    pieces = re.split(r"([^\x20-\x7e]+)", name)
    return quote(
        "".join(_modified_base64(piece) if at % 2 else piece.replace("&", "&-") for at, piece in enumerate(pieces))
    )


def _modified_base64(text: str) -> str:
    packed = base64.b64encode(text.encode("utf-16-be")).decode().rstrip("=")
    return f"&{packed.replace('/', ',')}-"


def search_keys(text: str) -> str:
    """The search, parsed and written again. ValueError says what is wrong with it."""
    words: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"the search cannot have {text[at:].strip()[:1]!r} here")
        words.append(found[0].strip())
        at = found.end()
    if not words:
        raise ValueError("the search is empty: write ALL for everything")
    written: list[str] = []
    while words:
        written.append(_parse_key(words, _DEEPEST))
    return " ".join(written)


def _parse_key(words: list[str], depth: int) -> str:
    word = _next_word(words).upper()
    if not depth:
        raise ValueError("the search is nested too deep")
    if word == "(":
        inner = []
        while words and words[0] != ")":
            inner.append(_parse_key(words, depth - 1))
        if not words or not inner:
            raise ValueError("the search has a ( without a ), or with nothing in it")
        words.pop(0)
        return f"({' '.join(inner)})"
    if word == "NOT":
        return f"NOT {_parse_key(words, depth - 1)}"
    if word == "OR":
        return f"OR {_parse_key(words, depth - 1)} {_parse_key(words, depth - 1)}"
    return word if word in _PLAIN else f"{word} {_parse_value(word, words)}"


def _parse_value(word: str, words: list[str]) -> str:
    if word in _TEXT:
        return quote(_unquote_word(_next_word(words)))
    if word == "HEADER":
        return f"{quote(_unquote_word(_next_word(words)))} {quote(_unquote_word(_next_word(words)))}"
    if word in _DATE:
        return _expect_match(_DAY, _unquote_word(_next_word(words)), f"{word} needs a day such as 5-Jan-2026")
    if word in ("LARGER", "SMALLER"):
        return _expect_match(re.compile(r"\d{1,10}"), _next_word(words), f"{word} needs a number of bytes")
    if word in ("KEYWORD", "UNKEYWORD"):
        return _expect_match(_ATOM, _next_word(words), f"{word} needs the name of a flag")
    raise ValueError(f'{word[:40]!r} is not a word of an IMAP search: write UNSEEN, FROM ana, SUBJECT "new lead" …')


def _expect_match(pattern: re.Pattern[str], word: str, otherwise: str) -> str:
    if not pattern.fullmatch(word):
        raise ValueError(otherwise)
    return word


def _next_word(words: list[str]) -> str:
    if not words:
        raise ValueError("the search ends too early: something is missing at its end")
    return words.pop(0)


def _unquote_word(word: str) -> str:
    if word in "()":
        raise ValueError("the search has a ( or ) where a text should be")
    return word[1:-1].replace('\\"', '"').replace("\\\\", "\\") if word.startswith('"') else word
