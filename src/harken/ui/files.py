"""The UI's files as they are served: below a path that has a hash of all of them, so that no browser asks twice."""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

__all__ = ["File", "Files"]

SERVED = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
SMALLEST = 500
"""Below so many bytes compressing is not worth it."""
SHELL = "index.html"
STYLES = "styles.css"
"""All style sheets of the shell in one file: a page is not painted before the last of them is there."""
START = "main.js"
PAGES = "pages/index.js"

_STYLE = re.compile(r'<link rel="stylesheet" href="\{\{assets\}\}([^"]+)">\n?')
_IMPORT = re.compile(r'^(?:import|(?:import|export)\b[^;"()=]*\bfrom)\s+"(\.[^"]+)"', re.MULTILINE)
_PAGE = re.compile(r'path: "([^"]+)".*import\("\./([^"]+)"\)')
_PLACE = re.compile(r":\w+(\*?)")


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
        text = found[SHELL].decode()
        served[STYLES] = b"\n".join(served[name] for name in _STYLE.findall(text))
        digest = hashlib.sha256()
        for name, body in sorted({**served, SHELL: found[SHELL]}.items()):
            digest.update(f"{name}\0{len(body)}\0".encode() + body)
        self.prefix = f"/assets/{digest.hexdigest()[:16]}/"
        self._bodies = served
        self._made: dict[str, File] = {}
        self._text = _with_one_style(text)
        self._pages = list(_pages(served.get(PAGES, b"").decode()))
        self._shells: dict[str, File] = {}

    def get(self, name: str) -> File | None:
        """The file of this name, such as `pages/overview.js`; None if there is none."""
        if name not in self._made and name in self._bodies:
            self._made[name] = _file(SERVED[_suffix(name)], self._bodies[name])
        return self._made.get(name)

    @property
    def names(self) -> Iterable[str]:
        return self._bodies

    def shell(self, path: str) -> File:
        """The HTML for an address. It names the modules of that page, so that the browser asks for all at once."""
        page = next((module for pattern, module in self._pages if pattern.fullmatch(path)), START)
        if page not in self._shells:
            links = (f'<link rel="modulepreload" href="{self.prefix}{name}">' for name in self.first(page))
            text = self._text.replace("{{assets}}", self.prefix).replace("{{preload}}", "\n".join(links))
            self._shells[page] = _file("text/html; charset=utf-8", text.encode())
        return self._shells[page]

    def first(self, page: str) -> list[str]:
        """The modules that are needed before the page of this module can be shown."""
        found: dict[str, None] = {}
        left = [START, page]
        while left:
            name = left.pop(0)
            if name not in found and name in self._bodies:
                found[name] = None
                left += _imports(name, self._bodies)
        return list(found)


def _with_one_style(text: str) -> str:
    """The shell with one link in place of all its style sheets."""
    link = f'<link rel="stylesheet" href="{{{{assets}}}}{STYLES}">\n'
    first = _STYLE.search(text)
    return text if first is None else text[: first.start()] + link + _STYLE.sub("", text[first.end() :])


def _pages(text: str) -> Iterator[tuple[re.Pattern[str], str]]:
    """The addresses of each page in the order in which they are tried, and its module."""
    for path, module in _PAGE.findall(text):
        yield re.compile(_PLACE.sub(lambda place: ".+" if place[1] else "[^/]+", path) + "/?"), f"pages/{module}"


def _imports(name: str, bodies: Mapping[str, bytes]) -> list[str]:
    """What a module imports at once, and not when it is first needed. The libraries import nothing."""
    if name.startswith("vendor/"):
        return []
    found = _IMPORT.findall(bodies[name].decode())
    return [posixpath.normpath(posixpath.join(posixpath.dirname(name), each)) for each in found]


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
