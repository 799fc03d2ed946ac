"""From what a mail is made of to what people read in it. Nothing that a stranger sends makes it fail, or slow."""

from __future__ import annotations

import codecs
import re
from email.errors import HeaderParseError
from email.header import decode_header

from harken.kit.text import clean_text

__all__ = ["charset_text", "header_text"]

LONGEST_HEADER = 2_000
_ENCODED = re.compile(r"(=\?[^?\s]{1,80}\?[BbQq]\?[^?\s]{0,1000}\?=)")
# these look like ASCII, and so like UTF-8, in any language
_SHIFTING = ("iso2022", "utf7", "hz")


def charset_text(data: bytes, charset: str, *, utf8_first: bool = False) -> str:
    """The text in these bytes. `utf8_first`: whoever handed them over may have converted them already."""
    named = _known(charset)
    shifting = named.replace("_", "").replace("-", "").startswith(_SHIFTING)
    guesses = ["utf-8", named] if utf8_first and not shifting else [named, "utf-8"]
    for guess in guesses:
        try:
            return data.decode(guess)
        except (UnicodeError, LookupError):
            continue
    return data.decode("cp1252", "replace")


def _known(charset: str) -> str:
    try:
        # some codecs of Python turn bytes into other things than text
        found = codecs.lookup(charset.strip().strip("\"'") or "utf-8")
        return found.name if getattr(found, "_is_text_encoding", True) else "utf-8"
    except (LookupError, ValueError):
        return "utf-8"


def header_text(value: str) -> str:
    """A header as people read it: on one line, encoded words (RFC 2047) decoded, broken ones as they are."""
    folded = " ".join(value[:LONGEST_HEADER].split())
    return " ".join(clean_text(_words(folded)).split())


def _words(text: str) -> str:
    pieces = _ENCODED.split(text)
    # between two encoded words, spaces are only there to fold the line
    joined = [piece for at, piece in enumerate(pieces) if at % 2 or piece.strip() or not 0 < at < len(pieces) - 1]
    raw: list[tuple[bytes, str]] = []
    for piece in joined:
        decoded, charset = _word(piece)
        if raw and charset and raw[-1][1] == charset:
            # a character may be cut in two by the end of a word
            decoded = raw.pop()[0] + decoded
        raw.append((decoded, charset))
    return "".join(charset_text(data, charset) for data, charset in raw)


def _word(piece: str) -> tuple[bytes, str]:
    if not _ENCODED.fullmatch(piece):
        return piece.encode("utf-8", "surrogateescape"), ""
    try:
        ((data, charset),) = decode_header(piece)
    except (HeaderParseError, ValueError):
        return piece.encode("utf-8", "surrogateescape"), ""
    if not data and not piece.endswith("??="):
        return piece.encode("utf-8", "surrogateescape"), ""  # letters that are none of base64
    # RFC 2231 allows a language behind the charset
    return (data if isinstance(data, bytes) else data.encode()), (charset or "").partition("*")[0].lower()
