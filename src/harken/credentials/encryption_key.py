"""The key of the sealed file: from HARKEN_ENCRYPTION_KEY, the keyring, or a private file outside the store's folder."""

from __future__ import annotations

import os
import secrets
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import scrypt
from pathlib import Path

from harken.credentials.system_keyring import Keyring
from harken.errors import Misconfigured
from harken.private_files import lock_for_writing, read_private, write_private

__all__ = ["Key", "KeySource"]

ENCRYPTION_KEY = "HARKEN_ENCRYPTION_KEY"
KEY_FILE = "HARKEN_KEY_FILE"
_KEYRING_ENTRY = ("harken", "encryption key")
_NONCE = 12


@dataclass(frozen=True, kw_only=True)
class Key:
    """`source` is environment, keyring or file. `open` raises ValueError for what another key or context sealed."""

    source: str
    raw: str = field(repr=False)
    salt: bytes = field(repr=False)
    advice: str = ""

    def seal(self, text: bytes, context: str) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE)
        return nonce + AESGCM(_derive_key(self.raw, self.salt)).encrypt(nonce, text, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(_derive_key(self.raw, self.salt)).decrypt(sealed[:_NONCE], sealed[_NONCE:], context.encode())
        except InvalidTag:
            raise ValueError("another key or another context") from None


class KeySource:
    """Finds and creates keys, never inside of `store_folder`."""

    def __init__(self, store_folder: Path, environ: Mapping[str, str]) -> None:
        self._store_folder = store_folder
        self._environ = environ

    def preferred(self, ring: Keyring | None) -> Key:
        """Return the key to seal with; create one if there is none."""
        if raw := self._environ.get(ENCRYPTION_KEY, ""):
            return self.from_operator(raw)
        if ring is not None:
            return Key(source="keyring", raw=_keyring_key(ring), salt=os.urandom(16))
        return Key(source="file", raw=self._file_key(make=True), salt=os.urandom(16))

    def from_operator(self, raw: str) -> Key:
        """Return the key for a value of HARKEN_ENCRYPTION_KEY."""
        return Key(source="environment", raw=raw, salt=os.urandom(16))

    def sealed_with(
        self, source: str, salt: bytes, ring: Callable[[Mapping[str, str]], Keyring | None], sealed: Path
    ) -> Key:
        """Return the key that `sealed` was sealed with. Raise Misconfigured when it is not available."""
        if source == "environment":
            raw = self._environ.get(ENCRYPTION_KEY, "")
            fix = f"Set {ENCRYPTION_KEY} to the key that it was sealed with"
        elif source == "keyring":
            found = ring(self._environ)
            raw = (found.get(*_KEYRING_ENTRY) or "") if found is not None else ""
            fix = "Unlock the keyring of the system, or delete the file and store the accounts again"
        else:
            raw = self._file_key(make=False)
            fix = f"Put its key back into {self.file()}, or delete the file and store the accounts again"
        if not raw:
            raise Misconfigured(f"the key of {sealed} is not there", fix=fix)
        return Key(source=source, raw=raw, salt=salt, advice=fix)

    def file(self) -> Path:
        """Return the path of the key file: one per user, and never in the folder of the store."""
        if named := self._environ.get(KEY_FILE, ""):
            found = Path(named).expanduser().absolute()
        else:
            home = self._environ.get("XDG_CONFIG_HOME", "") or Path(self._environ.get("HOME", "~")) / ".config"
            found = Path(home).expanduser().absolute() / "harken" / "key"
        if found.is_relative_to(self._store_folder.absolute()):
            message = f"the key {found} would lie beside what it protects, in the folder of the store"
            raise Misconfigured(message, fix=f"Set {ENCRYPTION_KEY}, or {KEY_FILE} to a file elsewhere")
        return found

    def _file_key(self, *, make: bool) -> str:
        path = self.file()
        found = read_private(path)
        if found is not None or not make:
            return (found or b"").decode("ascii", "replace").strip()
        with lock_for_writing(path):
            # another process may have created it while we waited
            found = read_private(path) or b64encode(os.urandom(32))
            write_private(path, found)
        return found.decode().strip()


def _keyring_key(ring: Keyring) -> str:
    raw = ring.get(*_KEYRING_ENTRY)
    if raw is None:
        raw = secrets.token_urlsafe(32)
        ring.put(*_KEYRING_ENTRY, raw)
    return raw


@lru_cache(maxsize=8)
def _derive_key(raw: str, salt: bytes) -> bytes:
    return scrypt(raw.encode(), salt=salt, n=2**14, r=8, p=1, dklen=32)
