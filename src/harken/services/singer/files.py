"""What a tap is given in files: private to us, and gone when the tap is. Secrets never stand on a command line."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["PrivateFolder"]

_LOCK = "in-use"


class PrivateFolder:
    """A directory that only we may enter. One that a killed process left behind is removed by the next that is made."""

    def __init__(self) -> None:
        home = Path(tempfile.gettempdir()) / f"harken-singer-{os.getuid()}"
        home.mkdir(mode=0o700, exist_ok=True)
        if home.is_symlink() or home.stat().st_uid != os.getuid():
            # someone else was there first, and could read along
            home = Path(tempfile.mkdtemp(prefix="harken-singer-"))
        _sweep(home)
        self.path = Path(tempfile.mkdtemp(dir=home))
        # the kernel lets go of it when we die, however that happens; it has its name only once it is held
        self._lock = os.open(self.path / "claimed", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(self.path / "claimed", self.path / _LOCK)

    def put(self, name: str, value: Any) -> str:
        """Write the value as JSON and return the file's path."""
        path = self.path / name
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.encode(value))
        return str(path)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def _sweep(home: Path) -> None:
    for left in home.iterdir():
        with contextlib.suppress(OSError), open(left / _LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
