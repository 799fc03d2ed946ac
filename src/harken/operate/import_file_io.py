"""Files that an import reads, and those that it writes: never over what is there."""

from __future__ import annotations

from pathlib import Path

from harken.errors import Refused

__all__ = ["read_source", "write_new"]


def read_source(file: Path, what: str) -> bytes:
    """The bytes of the file that is imported; `what` is what a person should have named."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}", fix=f"Give the path of {what}") from error


def write_new(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        fix = "Leave --write out, and paste what is printed into it"
        raise Refused(f"{path} is there already", fix=fix) from error
    return str(path)
