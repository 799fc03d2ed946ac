"""The file .env beside harken.yaml: variables for whoever starts Harken by hand. The real environment wins."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harken.errors import Misconfigured

__all__ = ["ENV_FILE", "environment_of", "parse"]

ENV_FILE = ".env"
_LARGEST = 1_000_000
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)", re.ASCII)
_QUOTED = re.compile(r"""'([^']*)'\s*(?:#.*)?|"((?:[^"\\]|\\.)*)"\s*(?:#.*)?""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def parse(text: str, file: str = ENV_FILE) -> dict[str, str]:
    """Return the variables. Raise Misconfigured with the line, and never with the value, for what is none."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        written = line.strip()
        if not written or written.startswith("#"):
            continue
        match = _LINE.fullmatch(written)
        value = _value(match[2]) if match else None
        if match is None or value is None:
            fix = "Write NAME=value, NAME='value' or NAME=\"value\", on one line"
            raise Misconfigured(f"{file}:{number}: this is not a variable", fix=fix)
        found[match[1]] = value
    return found


def _value(written: str) -> str | None:
    """The text of a value; None for one whose quote does not end."""
    if quoted := _QUOTED.fullmatch(written):
        if quoted[1] is not None:
            return quoted[1]
        return re.sub(r"\\(.)", lambda sign: _ESCAPES.get(sign[1], sign[1]), quoted[2])
    if written[:1] in ("'", '"'):
        return None
    return re.sub(r"(^|\s)#.*", "", written).strip()


@contextmanager
def environment_of(directory: Path) -> Iterator[None]:
    """Add the variables of the directory's .env to the environment of this process while the block runs."""
    added = {name: value for name, value in _read(directory / ENV_FILE).items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _read(path: Path) -> Mapping[str, str]:
    # a directory, pipe or device of this name is not ours
    if not path.is_file():
        return {}
    try:
        text = path.read_bytes()[: _LARGEST + 1].decode("utf-8-sig")
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}", fix="Check its permissions") from None
    except UnicodeDecodeError:
        raise Misconfigured(f"{path} is not UTF-8 text", fix="Write NAME=value lines") from None
    if len(text) > _LARGEST:
        raise Misconfigured(f"{path} is larger than 1 MB", fix="Write NAME=value lines")
    return parse(text, str(path))
