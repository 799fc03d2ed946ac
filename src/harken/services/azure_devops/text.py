"""Descriptions and comments are HTML at Azure DevOps, and plain text in events and steps."""

from __future__ import annotations

import re
from html import escape

from harken.kit.html import html_to_text

__all__ = ["html_of", "plain_text"]

_MARKUP = re.compile(r"<[a-zA-Z/!]|&[a-zA-Z#]")
_UNCLOSED_TAG = re.compile(r"<(?=[^<>]*$)")


def plain_text(markup: str) -> str:
    """The words of HTML, one line for each block. Text without markup stays as it is."""
    if not _MARKUP.search(markup):
        return markup.strip()
    return html_to_text(_UNCLOSED_TAG.sub("&lt;", markup), compact=True)


def html_of(text: str) -> str:
    """Plain text as HTML that shows it."""
    return escape(text, quote=False).replace("\r\n", "\n").replace("\n", "<br>")
