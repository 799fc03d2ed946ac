"""Messages as a service takes them: a title above the text, not longer than allowed, and a mark against repeats."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from harken.errors import NeedsAttention
from harken.source import Host, Message

__all__ = ["cut", "message_mark", "one_line", "retry_seconds", "title_and_text", "utf8_length", "utf16_length"]

# how far back a cut looks for the end of a word
_WORD = 40
_JOINER = "\u200d"


def utf16_length(text: str) -> int:
    """The length as phones count it: an emoji is two. Where a service counts otherwise, this is never too little."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8_length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def title_and_text(message: Message) -> str:
    """The title above the text. NeedsAttention when both are empty: every service refuses that."""
    said = "\n\n".join(part for part in (one_line(message.title), message.text.strip("\r\n")) if part.strip())
    if not said:
        raise NeedsAttention("there is nothing to say", fix="Give the step a text:")
    # half a character would be refused by every encoder after us
    return said.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def one_line(text: str) -> str:
    """The text without line ends and other control characters."""
    plain = "".join(" " if unicodedata.category(char) in ("Cc", "Zl", "Zp", "Cs") else char for char in text)
    return " ".join(plain.split())


def cut(text: str, most: int, size: Callable[[str], int] = utf16_length) -> str:
    """The text if it fits, else as much of it as fits with a mark that says how much is missing."""
    if size(text) <= most:
        return text
    room = most - size(_cut_mark(len(text)))
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle]) <= room else (low, middle - 1)
    end = _seam(text, low)
    return text[:end].rstrip() + _cut_mark(len(text) - end)


def _cut_mark(missing: int) -> str:
    return f"… [{missing:,} more characters]"


def _seam(text: str, end: int) -> int:
    """The end of a word shortly before; else the end of a character that people see, which may be several of ours."""
    space = max(text.rfind(" ", end - _WORD, end), text.rfind("\n", end - _WORD, end))
    if space > 0:
        return space
    while end > 0 and (_continues(text[end]) or text[end - 1] == _JOINER):
        end -= 1
    return end


def _continues(char: str) -> bool:
    # skin tones follow the emoji that they colour
    return char == _JOINER or unicodedata.category(char) in ("Mn", "Me", "Mc") or "\U0001f3fb" <= char <= "\U0001f3ff"


def message_mark(message: Message, host: Host) -> str:
    """32 characters that are the same for every try of a message; a message without a key is like no other."""
    if not message.idempotency_key:
        return f"{host.random.getrandbits(128):032x}"
    return blake2b(message.idempotency_key.encode(), digest_size=16).hexdigest()


def retry_seconds(value: Any) -> float | None:
    """A number of seconds that stands in a body; None when it is none."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) and value >= 0 else None
