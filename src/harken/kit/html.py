"""The text that a reader sees of HTML. Nothing that a stranger sends makes it fail, or slow.

`html_to_text` parses with lxml and keeps the lines: for mails and descriptions. `html_to_line` cuts tags out with
regular expressions, because the titles and summaries of news feeds are often no markup at all ("a < b"). The `page`
service has to find the parts of a page that a CSS selector names, which lxml cannot do, so it walks the tree of
selectolax and shares only `harken.kit.safe_text.tidy_lines`.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from harken.kit.safe_text import clean_text, tidy_lines

__all__ = ["html_to_line", "html_to_text"]

# characters of markup that are read; the rest of a longer document is left out
LONGEST = 500_000
LONGEST_LINK = 500
_HIDDEN_TAGS = frozenset({"head", "script", "style", "template", "noscript", "object", "svg"})
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_BLOCK_NAMES = (
    "address article aside blockquote body br center dd div dl dt footer form h1 h2 h3 h4 h5 h6 header hr li main nav"
    " ol p pre section table tbody thead tr ul"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_PARAGRAPHS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "table", "blockquote", "pre"})
_SPACE = re.compile(r"\s+")
_BLANKS = re.compile(r"[^\S\n]+")
_LINE_END = re.compile(r" ?\n ?")
_GAPS = re.compile(r"\n{3,}")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_UNSEEN = re.compile(
    r"<(script|style)\b.*?(?:</\1\s*>|$)|<!--.*?(?:-->|$)|<!doctype\b[^<>]*>", re.IGNORECASE | re.DOTALL
)


def html_to_text(markup: str, *, compact: bool = False) -> str:
    """Return the visible text: paragraphs with an empty line between, "- " before list items, links with their URLs.

    `compact`: one line per block and nothing else; line ends within a text stay line ends.
    """
    from lxml import etree  # type: ignore[import-untyped]

    text = clean_text(markup[:LONGEST])
    if not text.strip():
        return ""
    parser = etree.HTMLParser(recover=True, huge_tree=True, no_network=True, remove_comments=True, remove_pis=True)
    # parsed as text, not bytes: otherwise a meta element could name a wrong charset
    root = etree.HTML(text, parser)
    if root is None:
        return ""
    walk = etree.iterwalk(root, events=("start", "end"))
    if compact:
        return tidy_lines("".join(_pieces(walk, compact=True)))
    joined = "".join(_pieces(walk, compact=False))
    return _GAPS.sub("\n\n", _LINE_END.sub("\n", _BLANKS.sub(" ", joined))).strip()


def html_to_line(markup: str) -> str:
    """Return the visible text on one line. Text that is no markup stays as it is."""
    return _SPACE.sub(" ", unescape(_TAG.sub(" ", _UNSEEN.sub(" ", markup)))).strip()


def _pieces(walk: Any, *, compact: bool) -> list[str]:
    pieces: list[str] = []
    for event, element in walk:
        tag = element.tag if isinstance(element.tag, str) else ""
        if event == "start" and _is_hidden(tag, element):
            walk.skip_subtree()
            continue
        if event == "start":
            pieces.append(_before(tag, compact) + _text(element.text, compact))
            continue
        after = "" if _is_hidden(tag, element) else _link(tag, element, compact) + _after(tag)
        pieces.append(after + _text(element.tail, compact))
    return pieces


def _is_hidden(tag: str, element: Any) -> bool:
    return tag in _HIDDEN_TAGS or "hidden" in element.attrib or bool(_HIDDEN_STYLE.search(element.get("style") or ""))


def _before(tag: str, compact: bool) -> str:
    if tag == "li" and not compact:
        return "\n- "
    return "\n\n" if tag in _PARAGRAPHS else "\n" if tag in _BLOCKS else ""


def _after(tag: str) -> str:
    if tag in ("td", "th"):
        return " "
    return "\n\n" if tag in _PARAGRAPHS else "\n" if tag in _BLOCKS and tag not in ("br", "li") else ""


def _link(tag: str, element: Any, compact: bool) -> str:
    target = (element.get("href") or "").strip() if tag == "a" and not compact else ""
    if not target.startswith(("http://", "https://")) or len(target) > LONGEST_LINK:
        return ""
    label = (element.text or "").strip() if not len(element) else ""
    return "" if target.rstrip("/") == label.rstrip("/") else f" ({target})"


def _text(text: str | None, compact: bool) -> str:
    # in compact text a line end is kept until `tidy_lines`
    return (text or "") if compact else _SPACE.sub(" ", text or "")
