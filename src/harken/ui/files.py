"""The UI's files as they are served: below a path that has a hash of all of them, so that no browser asks twice."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

__all__ = ["File", "Files"]

SERVED = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
SMALLEST = 500
"""Below so many bytes compressing is not worth it."""
SHELL = "index.html"
LOADED_FIRST = ("components/", "vendor/preact.js")
"""What every page needs, beside the modules at the top: the browser asks for all of it at once."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """`packed` is the body compressed by gzip, empty where that is not worth it."""

    type: str
    body: bytes
    packed: bytes
    etag: str


class Files:
    """Everything below a folder, read and compressed once. `prefix` is the path below which it is served."""

    def __init__(self, folder: Traversable | None = None) -> None:
        found = dict(_walk(folder or files("harken.ui") / "static", ""))
        served = {name: body for name, body in found.items() if _suffix(name) in SERVED}
        digest = hashlib.sha256()
        for name, body in sorted({**served, SHELL: found[SHELL]}.items()):
            digest.update(f"{name}\0{len(body)}\0".encode() + body)
        self.prefix = f"/assets/{digest.hexdigest()[:16]}/"
        self._bodies = served
        self._made: dict[str, File] = {}
        self.shell = _file("text/html; charset=utf-8", self._shell(found[SHELL].decode()).encode())

    def get(self, name: str) -> File | None:
        """The file of this name, such as `pages/overview.js`; None if there is none."""
        if name not in self._made and name in self._bodies:
            self._made[name] = _file(SERVED[_suffix(name)], self._bodies[name])
        return self._made.get(name)

    @property
    def names(self) -> Iterable[str]:
        return self._bodies

    def _shell(self, text: str) -> str:
        first = sorted(name for name in self._bodies if _is_first(name))
        links = "\n".join(f'<link rel="modulepreload" href="{self.prefix}{name}">' for name in first)
        return text.replace("{{assets}}", self.prefix).replace("{{preload}}", links)


def _is_first(name: str) -> bool:
    on_top = "/" not in name
    return name.endswith(".js") and (on_top or name.startswith(LOADED_FIRST)) and name not in ON_DEMAND


ON_DEMAND = frozenset({"components/editor.js", "components/chart.js"})
"""Modules that bring a large library along."""


def _file(type: str, body: bytes) -> File:
    packed = gzip.compress(body, 9, mtime=0) if len(body) >= SMALLEST else b""
    return File(type=type, body=body, packed=packed, etag=f'"{hashlib.sha256(body).hexdigest()[:20]}"')


def _walk(folder: Traversable, before: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{before}{entry.name}/")
        else:
            yield f"{before}{entry.name}", entry.read_bytes()


def _suffix(name: str) -> str:
    return name[name.rfind(".") :] if "." in name else ""
