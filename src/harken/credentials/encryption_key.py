"""The key of the sealed file: from HARKEN_ENCRYPTION_KEY, the keyring, or a private file far from the store."""

from __future__ import annotations

import os
import secrets
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import scrypt
from pathlib import Path

from harken.credentials.keyring import Keyring
from harken.errors import Misconfigured
from harken.private_files import read_private, write_private, writing

__all__ = ["ENCRYPTION_KEY", "KEY_FILE", "Key", "Keys"]

ENCRYPTION_KEY = "HARKEN_ENCRYPTION_KEY"
KEY_FILE = "HARKEN_KEY_FILE"
_IN_RING = ("harken", "encryption key")
_NONCE = 12


@dataclass(frozen=True, kw_only=True)
class Key:
    """`source` is environment, keyring or file. Opening something that was shut with another key is a ValueError."""

    source: str
    raw: str = field(repr=False)
    salt: bytes = field(repr=False)
    advice: str = ""

    def shut(self, text: bytes, bound: str) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE)
        return nonce + AESGCM(_stretched(self.raw, self.salt)).encrypt(nonce, text, bound.encode())

    def open(self, sealed: bytes, bound: str) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(_stretched(self.raw, self.salt)).decrypt(sealed[:_NONCE], sealed[_NONCE:], bound.encode())
        except InvalidTag:
            raise ValueError("not the key, or not what it was shut for") from None


class Keys:
    """Finds keys. `beside` is the folder of the store, where no key may lie."""

    def __init__(self, beside: Path, environ: Mapping[str, str]) -> None:
        self._beside = beside
        self._environ = environ

    def preferred(self, ring: Keyring | None) -> Key:
        """The key for what is sealed from now on; made where there is none yet."""
        if raw := self._environ.get(ENCRYPTION_KEY, ""):
            return self.given(raw)
        if ring is not None:
            return Key(source="keyring", raw=_from_ring(ring), salt=os.urandom(16))
        return Key(source="file", raw=self._from_file(make=True), salt=os.urandom(16))

    def given(self, raw: str) -> Key:
        """The key that a person gave as HARKEN_ENCRYPTION_KEY."""
        return Key(source="environment", raw=raw, salt=os.urandom(16))

    def made(self, source: str, salt: bytes, ring: Callable[[Mapping[str, str]], Keyring | None], sealed: Path) -> Key:
        """The key that `sealed` says it was sealed with; Misconfigured when that one cannot be had."""
        if source == "environment":
            raw = self._environ.get(ENCRYPTION_KEY, "")
            fix = f"Set {ENCRYPTION_KEY} to the key that it was sealed with"
        elif source == "keyring":
            found = ring(self._environ)
            raw = (found.get(*_IN_RING) or "") if found is not None else ""
            fix = "Unlock the keyring of the system, or delete the file and store the accounts again"
        else:
            raw = self._from_file(make=False)
            fix = f"Put its key back into {self.file()}, or delete the file and store the accounts again"
        if not raw:
            raise Misconfigured(f"the key of {sealed} is not there", fix=fix)
        return Key(source=source, raw=raw, salt=salt, advice=fix)

    def file(self) -> Path:
        """The key file: one for every store of this user, and never in the folder of the store."""
        if named := self._environ.get(KEY_FILE, ""):
            found = Path(named).expanduser().absolute()
        else:
            home = self._environ.get("XDG_CONFIG_HOME", "") or Path(self._environ.get("HOME", "~")) / ".config"
            found = Path(home).expanduser().absolute() / "harken" / "key"
        if found.is_relative_to(self._beside.absolute()):
            message = f"the key {found} would lie beside what it protects, in the folder of the store"
            raise Misconfigured(message, fix=f"Set {ENCRYPTION_KEY}, or {KEY_FILE} to a file elsewhere")
        return found

    def _from_file(self, *, make: bool) -> str:
        path = self.file()
        found = read_private(path)
        if found is not None or not make:
            return (found or b"").decode("ascii", "replace").strip()
        with writing(path):
            # somebody may have made it while we waited
            found = read_private(path) or b64encode(os.urandom(32))
            write_private(path, found)
        return found.decode().strip()


def _from_ring(ring: Keyring) -> str:
    raw = ring.get(*_IN_RING)
    if raw is None:
        raw = secrets.token_urlsafe(32)
        ring.put(*_IN_RING, raw)
    return raw


@lru_cache(maxsize=8)
def _stretched(raw: str, salt: bytes) -> bytes:
    return scrypt(raw.encode(), salt=salt, n=2**14, r=8, p=1, dklen=32)
