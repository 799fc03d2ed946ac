"""From what a mail is made of to what people read in it. Nothing that a stranger sends makes it fail, or slow."""

from __future__ import annotations

import codecs
import re
import unicodedata
from email.errors import HeaderParseError
from email.header import decode_header
from typing import Any

__all__ = ["charset_text", "clean_text", "header_text", "readable"]

LONGEST = 500_000
"""Characters of a part that are looked at; the rest of a longer one is left out."""
LONGEST_HEADER = 2_000
LONGEST_LINK = 500
_ENCODED = re.compile(r"(=\?[^?\s]{1,80}\?[BbQq]\?[^?\s]{0,1000}\?=)")
_HIDING = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_BLANKS = re.compile(r"[^\S\n]+")
_AROUND = re.compile(r" ?\n ?")
_GAPS = re.compile(r"\n{3,}")
_UNSEEN = frozenset({"head", "script", "style", "template", "noscript", "object", "svg"})
_NAMES = (
    "address article aside blockquote body br center dd div dl dt footer form h1 h2 h3 h4 h5 h6 header hr li main nav"
    " ol p pre section table tbody thead tr ul"
)
_BLOCKS = frozenset(_NAMES.split())
_APART = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "table", "blockquote", "pre"})
# these look like ASCII, and so like UTF-8, in any language
_SHIFTING = ("iso2022", "utf7", "hz")


def clean_text(text: str) -> str:
    """The text with plain line ends, and without control characters and halves of characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs"))


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


def readable(markup: str) -> str:
    """What a reader sees of HTML: a line for each block, links with their addresses, nothing that is hidden."""
    from lxml import etree  # type: ignore[import-untyped]

    text = clean_text(markup[:LONGEST])
    if not text.strip():
        return ""
    parser = etree.HTMLParser(recover=True, huge_tree=True, no_network=True, remove_comments=True, remove_pis=True)
    # as text, or a meta element could name another charset than the one it is in
    root = etree.HTML(text, parser)
    if root is None:
        return ""
    return _tidy("".join(_pieces(etree.iterwalk(root, events=("start", "end")))))


def _pieces(walk: Any) -> list[str]:
    pieces: list[str] = []
    for event, element in walk:
        tag = element.tag if isinstance(element.tag, str) else ""
        if event == "start" and _is_hidden(tag, element):
            walk.skip_subtree()
            continue
        if event == "start":
            pieces.append(_before(tag) + _squeezed(element.text))
        else:
            hidden = _is_hidden(tag, element)
            pieces.append(("" if hidden else _link(tag, element) + _after(tag)) + _squeezed(element.tail))
    return pieces


def _is_hidden(tag: str, element: Any) -> bool:
    return tag in _UNSEEN or "hidden" in element.attrib or bool(_HIDING.search(element.get("style") or ""))


def _before(tag: str) -> str:
    if tag == "li":
        return "\n- "
    return "\n\n" if tag in _APART else "\n" if tag in _BLOCKS else ""


def _after(tag: str) -> str:
    if tag in ("td", "th"):
        return " "
    return "\n\n" if tag in _APART else "\n" if tag in _BLOCKS and tag not in ("br", "li") else ""


def _link(tag: str, element: Any) -> str:
    target = (element.get("href") or "").strip() if tag == "a" else ""
    if not target.startswith(("http://", "https://")) or len(target) > LONGEST_LINK:
        return ""
    label = (element.text or "").strip() if not len(element) else ""
    return "" if target.rstrip("/") == label.rstrip("/") else f" ({target})"


def _squeezed(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "")


def _tidy(text: str) -> str:
    return _GAPS.sub("\n\n", _AROUND.sub("\n", _BLANKS.sub(" ", text))).strip()
