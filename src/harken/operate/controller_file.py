"""The run file, which tells commands whether a controller runs for this configuration, and at which URL."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec

__all__ = ["drop_run_file", "run_file", "run_file_of", "store_file", "write_run_file"]

STORE_VARIABLES = ("HARKEN_STORE", "REDIS_URL")

_NAMES_A_STORE = re.compile(r"\b(store|state_db)\b")


def run_file(base: Path) -> Path:
    """The path of the run file: beside the store's file, or beside `base` where the store is a server."""
    return base.with_name(base.name + ".run.json")


def run_file_of(directory: Path) -> Path:
    """The run file of the configuration in this directory."""
    return run_file(store_file(directory) or directory.absolute() / "harken.db")


def store_file(directory: Path) -> Path | None:
    """The store's file, or None for a server. The configuration is loaded only if something in it names a store."""
    files = [file for name in ("harken.yaml", "pollers.yaml") if (file := directory / name).exists()]
    named = any(_NAMES_A_STORE.search(file.read_text(encoding="utf-8", errors="replace")) for file in files)
    if not named and not any(os.environ.get(variable) for variable in STORE_VARIABLES):
        return (directory / "harken.db").absolute()
    from harken.config.settings import is_url
    from harken.operate.load_and_check_configuration import load_directory

    location = load_directory(directory).store
    return None if is_url(location) else Path(location)


def write_run_file(path: Path, url: str, *, shared: bool, token: str = "") -> None:
    """Write that this process serves at `url`. Raises OSError unless the store is shared, where it is optional.

    `token` is that of the operator for as long as this process lives: who can read the file can open the store too.
    """
    try:
        # a new file, so that its mode is ours and no reader of an earlier one has it
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        if not shared:
            raise
        # commands import this module too, and have to start fast
        import structlog

        # the files of a replica are often mounted read-only; commands then ask the store
        structlog.get_logger("harken.operate").info("run_file.unwritable", path=str(path), reason=error.strerror)
        return
    with os.fdopen(handle, "wb") as file:
        file.write(msgspec.json.encode({"pid": os.getpid(), "url": url} | ({"token": token} if token else {})))


def drop_run_file(path: Path) -> None:
    """Remove the run file, unless another replica on this machine has written it since."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        if msgspec.json.decode(path.read_bytes())["pid"] == os.getpid():
            path.unlink()
