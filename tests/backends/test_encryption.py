"""The key of an operator: only what it is stretched to opens a store."""

from __future__ import annotations

from base64 import b64decode
from hashlib import scrypt

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from harken.backends.encryption import unwrap, wrap
from harken.errors import Misconfigured

WORD = "a word of the operator"
PAIR = (b"a" * 32, b"b" * 32)


def test_each_guess_at_the_key_costs_16_mib_of_memory() -> None:
    blob = b64decode(wrap(WORD, *PAIR))
    stretched = scrypt(WORD.encode(), salt=blob[:16], n=2**14, r=8, p=1, dklen=32)
    assert AESGCM(stretched).decrypt(blob[16:28], blob[28:], b"harken-keys-1") == b"".join(PAIR)


def test_the_same_key_opens_it_and_no_other() -> None:
    wrapped = wrap(WORD, *PAIR)
    assert unwrap(WORD, wrapped) == PAIR
    with pytest.raises(Misconfigured, match="encrypted with another key"):
        unwrap(WORD.upper(), wrapped)
