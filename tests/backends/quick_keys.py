"""Keys of operators that are stretched less: hundreds of contracts run on encrypted stores, not for the stretching."""

from __future__ import annotations

from hashlib import scrypt
from typing import Any

import pytest

from harken.backends import encryption

__all__ = ["quick_keys"]


@pytest.fixture(autouse=True)
def quick_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much a key is stretched otherwise is tested in test_encryption.py."""

    def quick(password: bytes, **cost: Any) -> bytes:
        return scrypt(password, **{**cost, "n": 2})

    monkeypatch.setattr(encryption, "scrypt", quick)
