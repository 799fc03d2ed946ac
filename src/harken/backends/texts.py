"""Texts and values in rows: sealed when they are written, and opened when they are read."""

from __future__ import annotations

from typing import Any

import msgspec

from harken.backends.codec import decode_json
from harken.backends.encryption import Seal

__all__ = ["Texts"]


class Texts:
    """What is not there is an empty text, or None."""

    seal: Seal

    def text(self, sealed: bytes | None) -> str:
        return "" if sealed is None else self.seal.open(sealed).decode("utf-8", "surrogatepass")

    def shut(self, text: str) -> bytes:
        return self.seal.shut(text.encode("utf-8", "surrogatepass"))

    def shut_json(self, value: Any) -> bytes:
        return self.seal.shut(msgspec.json.encode(value))

    def json(self, sealed: bytes | None) -> Any:
        return None if sealed is None else decode_json(self.seal.open(sealed))
