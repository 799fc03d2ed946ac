"""Descriptions and comments are HTML at Azure DevOps, and plain text here."""

from __future__ import annotations

import re
from html import escape
from html.parser import HTMLParser

__all__ = ["html_of", "plain_text"]

_BREAKS = frozenset({"br", "p", "div", "li", "tr", "ul", "ol", "table", "pre", "h1", "h2", "h3", "h4", "h5", "h6"})
_UNSEEN = frozenset({"script", "style"})
_MARKUP = re.compile(r"<[a-zA-Z/!]|&[a-zA-Z#]")


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unseen += tag in _UNSEEN
        self.parts += "\n" if tag in _BREAKS else ""

    def handle_endtag(self, tag: str) -> None:
        self._unseen = max(0, self._unseen - (tag in _UNSEEN))
        self.parts += "\n" if tag in _BREAKS and tag != "br" else ""

    def handle_data(self, data: str) -> None:
        self.parts.append("" if self._unseen else data)


def plain_text(markup: str) -> str:
    """The words of HTML, a line for each block. Text without markup stays as it is."""
    if not _MARKUP.search(markup):
        return markup.strip()
    words = _Words()
    words.feed(markup)
    words.close()
    lines = [" ".join(line.split()) for line in "".join(words.parts).splitlines()]
    return "\n".join(line for line in lines if line)


def html_of(text: str) -> str:
    """Plain text as HTML that shows it."""
    return escape(text, quote=False).replace("\r\n", "\n").replace("\n", "<br>")
