"""Plain text that strangers wrote, made safe to store and to show."""

from __future__ import annotations

import unicodedata

__all__ = ["clean_text", "has_control_character", "tidy_lines"]


def clean_text(text: str) -> str:
    """Return the text with `\\n` as its only line end, and without control characters and lone surrogates."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs"))


def tidy_lines(text: str) -> str:
    """Return the lines without empty ones, and with single spaces between words."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def has_control_character(text: str) -> bool:
    """Whether the text has a control character, a line end or a lone surrogate."""
    return any(unicodedata.category(letter) in ("Cc", "Zl", "Zp", "Cs") for letter in text)
