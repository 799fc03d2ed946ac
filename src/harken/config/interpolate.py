"""Replace `${VAR}`, `${VAR:-default}`, `${file:path}` and `${secret:name}` in the texts of the configuration.

The value of a secret is used but never stored: `Scalar.shown` keeps the reference.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path as FilePath

from harken.config.findings import Code, Path, Report
from harken.config.yaml.nodes import Items, Node, Scalar, Table
from harken.errors import HarkenError

__all__ = ["OUTSIDE_FIX", "Lookup", "interpolate", "is_inside", "is_secret_name"]

OUTSIDE_FIX = "Move it below that directory, or allow where it is in harken.yaml: files: {allow: [/run/secrets]}"

_REFERENCE = re.compile(r"\$(\$\{)|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET_NAME = re.compile(r"(TOKEN|SECRET|KEY|PASSWORD|PASSPHRASE)[_0-9]*", re.ASCII | re.IGNORECASE)
_MAX_FILE = 1024 * 1024


class _Unset(Exception):
    """A reference without a value."""

    def __init__(self, message: str, fix: str, code: Code = "unset") -> None:
        super().__init__(message)
        self.message, self.fix, self.code = message, fix, code


class Lookup:
    """Finds the values of references, and remembers the secrets among them: reference → value."""

    def __init__(
        self,
        directory: FilePath,
        environ: Mapping[str, str],
        secrets: Callable[[str], str | None] | None = None,
        allowed: Sequence[FilePath] = (),
    ) -> None:
        self.references: dict[str, str] = {}
        # everything that was looked up, with its value, or None in place of a secret
        self.used: dict[str, str | None] = {}
        self._directory = directory
        self._allowed = (directory, *allowed)
        self._environ = environ
        self._secrets = secrets

    unset = _Unset

    def resolve(self, inner: str) -> tuple[str, bool]:
        """Return the value of what is between the braces, and whether it is a secret."""
        if inner.startswith("file:"):
            value, secret = self._file(inner.removeprefix("file:").strip()), True
        elif inner.startswith("secret:"):
            value, secret = self._secret(inner.removeprefix("secret:").strip()), True
        else:
            value, secret = self._variable(inner)
        secret = secret and bool(value)
        if secret:
            self.references["${" + inner + "}"] = value
        self.used[inner] = None if secret else value
        return value, secret

    def _variable(self, inner: str) -> tuple[str, bool]:
        name, has_default, default = inner.partition(":-")
        if not _NAME.fullmatch(name):
            fix = "Write ${NAME}, ${NAME:-default}, ${file:path} or ${secret:name}; $${ stands for a plain ${"
            raise _Unset("this is not a reference that can be read", fix, "invalid")
        value = self._environ.get(name)
        if has_default:
            value = value or default
        if value is None:
            raise _Unset(f"the environment has no {name}", f"Set {name}, or write ${{{name}:-default}}")
        return value, is_secret_name(name)

    def _file(self, path: str) -> str:
        target = self._directory / os.path.expanduser(path) if path else None
        try:
            if target is not None and not is_inside(target, self._allowed):
                raise _Unset(f"{path} is outside the directory of harken.yaml", OUTSIDE_FIX)
            # reading a pipe or a device may never end
            if target is None or not stat.S_ISREG(target.stat().st_mode):
                raise _Unset("${file:…} needs the path of a file", "Name a regular file")
            with target.open("rb") as file:
                content = file.read(_MAX_FILE + 1)
            if len(content) > _MAX_FILE:
                raise _Unset(f"{path} is larger than 1 MB", "Name a smaller file")
            return content.decode("utf-8-sig").rstrip("\r\n")
        except OSError as error:
            raise _Unset(f"{path} cannot be read: {error.strerror}", "Check the path and its permissions") from None
        except ValueError:
            raise _Unset(f"{path!r} is not a UTF-8 text file", "Name a text file") from None

    def _secret(self, name: str) -> str:
        try:
            value = self._secrets(name) if self._secrets and name else None
        except HarkenError as error:
            raise _Unset(f"the secret {name} cannot be read: {error.message}", error.fix) from None
        if value is None:
            raise _Unset(f"there is no secret {name!r}", f"Store it: harken secrets set {name or 'NAME'}")
        return value


def is_inside(path: FilePath, directories: Iterable[FilePath]) -> bool:
    """Whether the path, after all its symbolic links, is one of the directories or below it."""
    real = FilePath(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(directory)) for directory in directories)


def is_secret_name(name: str) -> bool:
    """Whether the name is that of a credential: it ends in TOKEN, SECRET, KEY, PASSWORD or PASSPHRASE."""
    return any(match.end() == len(name) for match in _SECRET_NAME.finditer(name))


def interpolate(node: Node, lookup: Lookup, report: Report, path: Path = ()) -> Node:
    """Return the tree with every reference replaced. A reference without a value is reported as an error."""
    if isinstance(node, Table):
        items = {key: interpolate(value, lookup, report, (*path, key)) for key, value in node.items.items()}
        return Table(items=items, keys=node.keys, place=node.place)
    if isinstance(node, Items):
        found = tuple(interpolate(item, lookup, report, (*path, at)) for at, item in enumerate(node.items))
        return Items(items=found, place=node.place)
    if isinstance(node.value, str) and "${" in node.value:
        return _interpolate_text(node, node.value, lookup, report, path)
    return node


def _interpolate_text(node: Scalar, text: str, lookup: Lookup, report: Report, path: Path) -> Scalar:
    used: list[str] = []
    kept: list[str] = []
    position = 0
    for match in _REFERENCE.finditer(text):
        literal = text[position : match.start()]
        used.append(literal)
        kept.append(literal)
        position = match.end()
        try:
            value, secret = _resolve_match(match, lookup)
        except _Unset as error:
            report.error(node.place, path, error.message, error.fix, error.code)
            continue
        used.append(value)
        kept.append(match[0] if secret else value)
    value, shown = "".join((*used, text[position:])), "".join((*kept, text[position:]))
    return Scalar(value=value, place=node.place, shown=shown if shown != value else None)


def _resolve_match(match: re.Match[str], lookup: Lookup) -> tuple[str, bool]:
    if match[1]:
        return match[1], False
    if not match[3]:
        raise _Unset("${ without its }", "Close it; $${ stands for a plain ${", "invalid")
    return lookup.resolve(match[2])
