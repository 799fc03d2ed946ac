"""Encryption at rest: every text that a store writes goes through a Seal, so that a stolen file reveals nothing.

Names that must be found again (subjects, keys, slots) are stored as a keyed hash; texts as AES-GCM ciphertext.
A data key and an identity key are wrapped by the operator's key, so rotating that one rewrites only the wrapping.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from hashlib import blake2b, scrypt
from typing import Protocol

from harken.errors import Misconfigured

__all__ = ["AesSeal", "PlainSeal", "Seal", "rewrap", "unwrap", "wrap"]

ID_BYTES = 16


class Seal(Protocol):
    """Encrypts texts and hashes names."""

    encrypted: bool

    def name(self, text: str) -> bytes:
        """The name's hash, 16 bytes. Equal names have equal hashes, so that they can be looked up."""
        ...

    def rename(self, plain: bytes) -> bytes:
        """This seal's hash of a name, given its hash without a key."""
        ...

    def shut(self, text: bytes) -> bytes:
        """Encrypt."""
        ...

    def open(self, sealed: bytes) -> bytes:
        """Decrypt."""
        ...


class PlainSeal:
    """Without a key: texts are stored as they are, names are hashed only for a fixed size."""

    encrypted = False

    def name(self, text: str) -> bytes:
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=ID_BYTES).digest()

    def rename(self, plain: bytes) -> bytes:
        return plain

    def shut(self, text: bytes) -> bytes:
        return text

    def open(self, sealed: bytes) -> bytes:
        return sealed


class AesSeal:
    """Texts are encrypted with AES-GCM, names are hashed with a key."""

    encrypted = True

    def __init__(self, data_key: bytes, identity_key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(data_key)
        self._identity_key = identity_key

    def name(self, text: str) -> bytes:
        return self.rename(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=ID_BYTES).digest())

    def rename(self, plain: bytes) -> bytes:
        return blake2b(plain, key=self._identity_key, digest_size=ID_BYTES).digest()

    def shut(self, text: bytes) -> bytes:
        nonce = os.urandom(12)
        return nonce + self._cipher.encrypt(nonce, text, None)

    def open(self, sealed: bytes) -> bytes:
        return self._cipher.decrypt(sealed[:12], sealed[12:], None)


def wrap(operator_key: str, data_key: bytes, identity_key: bytes) -> str:
    """Encrypt the two keys with the operator's key."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce = os.urandom(16), os.urandom(12)
    sealed = AESGCM(_stretch(operator_key, salt)).encrypt(nonce, data_key + identity_key, b"harken-keys-1")
    return b64encode(salt + nonce + sealed).decode()


def unwrap(operator_key: str, wrapped: str) -> tuple[bytes, bytes]:
    """Decrypt the two keys. Raise Misconfigured for a wrong operator's key."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    blob = b64decode(wrapped)
    try:
        keys = AESGCM(_stretch(operator_key, blob[:16])).decrypt(blob[16:28], blob[28:], b"harken-keys-1")
    except InvalidTag:
        fix = "Set HARKEN_ENCRYPTION_KEY to the key that this store was encrypted with"
        raise Misconfigured("the store is encrypted with another key", fix=fix) from None
    return keys[:32], keys[32:]


def rewrap(wrapped: str, old: str, new: str) -> str:
    """Wrap the same two keys with `new`. Raise Misconfigured when neither `old` nor `new` opens them."""
    try:
        return wrap(new, *unwrap(old, wrapped))
    except Misconfigured:
        # an earlier rekeying was interrupted after the store had its new key: repeating it succeeds
        unwrap(new, wrapped)
        return wrapped


def _stretch(operator_key: str, salt: bytes) -> bytes:
    return scrypt(operator_key.encode(), salt=salt, n=2**14, r=8, p=1, dklen=32)
