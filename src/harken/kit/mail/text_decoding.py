"""Decoding of mail: bytes by their charset, headers by RFC 2047. No input makes it fail, or slow."""

from __future__ import annotations

import codecs
import re
from email.errors import HeaderParseError
from email.header import decode_header

from harken.kit.safe_text import clean_text

__all__ = ["charset_text", "header_text"]

LONGEST_HEADER = 2_000
_ENCODED = re.compile(r"(=\?[^?\s]{1,80}\?[BbQq]\?[^?\s]{0,1000}\?=)")
# their bytes are all ASCII, so they would pass as UTF-8
_SHIFTING = ("iso2022", "utf7", "hz")


def charset_text(data: bytes, charset: str, *, utf8_first: bool = False) -> str:
    """Decode the bytes. `utf8_first`: the service may have converted them to UTF-8, whatever the charset says."""
    named = _codec_name(charset)
    shifting = named.replace("_", "").replace("-", "").startswith(_SHIFTING)
    guesses = ["utf-8", named] if utf8_first and not shifting else [named, "utf-8"]
    for guess in guesses:
        try:
            return data.decode(guess)
        except (UnicodeError, LookupError):
            continue
    return data.decode("cp1252", "replace")


def _codec_name(charset: str) -> str:
    try:
        # some of Python's codecs do not decode to text
        found = codecs.lookup(charset.strip().strip("\"'") or "utf-8")
        return found.name if getattr(found, "_is_text_encoding", True) else "utf-8"
    except (LookupError, ValueError):
        return "utf-8"


def header_text(value: str) -> str:
    """Return a header on one line, with encoded words (RFC 2047) decoded and broken ones as they are."""
    unfolded = " ".join(value[:LONGEST_HEADER].split())
    return " ".join(clean_text(_decode_words(unfolded)).split())


def _decode_words(text: str) -> str:
    pieces = _ENCODED.split(text)
    # between two encoded words, spaces are only there to fold the line
    joined = [piece for at, piece in enumerate(pieces) if at % 2 or piece.strip() or not 0 < at < len(pieces) - 1]
    raw: list[tuple[bytes, str]] = []
    for piece in joined:
        decoded, charset = _decode_word(piece)
        if raw and charset and raw[-1][1] == charset:
            # a character may be split over two words
            decoded = raw.pop()[0] + decoded
        raw.append((decoded, charset))
    return "".join(charset_text(data, charset) for data, charset in raw)


def _decode_word(piece: str) -> tuple[bytes, str]:
    if not _ENCODED.fullmatch(piece):
        return piece.encode("utf-8", "surrogateescape"), ""
    try:
        ((data, charset),) = decode_header(piece)
    except (HeaderParseError, ValueError):
        return piece.encode("utf-8", "surrogateescape"), ""
    if not data and not piece.endswith("??="):
        return piece.encode("utf-8", "surrogateescape"), ""  # not base64
    # RFC 2231 allows a language behind the charset
    return (data if isinstance(data, bytes) else data.encode()), (charset or "").partition("*")[0].lower()
