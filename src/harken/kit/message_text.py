"""For destinations: the text of a message with its title, cut to the allowed length, and a mark against repeats."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from harken.errors import NeedsAttention
from harken.source import Host, Message

__all__ = ["cut", "message_mark", "one_line", "retry_seconds", "title_and_text", "utf8_length", "utf16_length"]

# how far before the cut the end of a word is looked for
_WORD = 40
_JOINER = "\u200d"


def utf16_length(text: str) -> int:
    """The length in UTF-16 code units, as most messengers count. It is never less than the number of characters."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8_length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def title_and_text(message: Message) -> str:
    """Return the title, an empty line and the text. Raise NeedsAttention when both are empty."""
    joined = "\n\n".join(part for part in (one_line(message.title), message.text.strip("\r\n")) if part.strip())
    if not joined:
        raise NeedsAttention("there is nothing to say", fix="Give the step a text:")
    # a lone surrogate would be refused by every encoder after us
    return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def one_line(text: str) -> str:
    """Return the text without line ends and other control characters."""
    plain = "".join(" " if unicodedata.category(char) in ("Cc", "Zl", "Zp", "Cs") else char for char in text)
    return " ".join(plain.split())


def cut(text: str, most: int, size: Callable[[str], int] = utf16_length) -> str:
    """Return the text if it fits, else as much as fits with a note of how many characters are missing."""
    if size(text) <= most:
        return text
    room = most - size(_note(len(text)))
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle]) <= room else (low, middle - 1)
    end = _cut_position(text, low)
    return text[:end].rstrip() + _note(len(text) - end)


def _note(missing: int) -> str:
    return f"… [{missing:,} more characters]"


def _cut_position(text: str, end: int) -> int:
    """Return where a word ends shortly before `end`; else where a visible character of several code points does."""
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
    """Return 32 hexadecimal digits, the same for every try of a message; random for a message without a key."""
    if not message.idempotency_key:
        return f"{host.random.getrandbits(128):032x}"
    return blake2b(message.idempotency_key.encode(), digest_size=16).hexdigest()


def retry_seconds(value: Any) -> float | None:
    """Return the seconds to wait that a body names; None if the value is no such number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) and value >= 0 else None
