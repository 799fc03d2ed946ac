"""What a tree of files or a bucket had at the last committed read: names with stamps, compact in memory and as text.

There may be 100,000 names and more, so the entries of a folder are two byte strings, and a read that finds nothing new
compares these and nothing else. As text the manifest is part of the feed's cursor: it moves with the events it led to.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping

import msgspec

from harken.errors import CursorExpired

__all__ = [
    "Difference",
    "Folder",
    "FolderBuilder",
    "Manifest",
    "apply",
    "as_folder",
    "count",
    "differences",
    "dump",
    "entries_of",
    "load",
]

# the fastest level: the next ones save a tenth and take three times as long
LEVEL = 1


class Folder(msgspec.Struct, frozen=True, gc=False):
    """The entries of one folder, sorted: their names joined by NUL, and their stamps, each `width` bytes long."""

    names: bytes
    stamps: bytes


class FolderBuilder:
    """Packs entries of a folder as they come. In order, as services list them, each takes no more than its bytes."""

    def __init__(self) -> None:
        self._names = bytearray()
        self._stamps = bytearray()
        self._last = b""
        self._is_sorted = True

    def add(self, name: bytes, stamp: bytes) -> None:
        """Add an entry. All stamps have the same width; the last one of a name counts."""
        if self._stamps:
            self._is_sorted = self._is_sorted and name > self._last
            self._names += b"\0"
        self._names += name
        self._stamps += stamp
        self._last = name

    def build(self) -> Folder:
        """Return the folder with what was added so far, at least one entry."""
        found = Folder(bytes(self._names), bytes(self._stamps))
        return found if self._is_sorted else as_folder(entries_of(found))


Manifest = Mapping[bytes, Folder]
"""Folders by their paths; the path of the top is empty. Folders without entries are left out."""


class Difference(msgspec.Struct, frozen=True, gc=False):
    """An entry whose stamp differs between two manifests. The stamp is empty where there is no such entry."""

    path: bytes
    old: bytes
    new: bytes


class _Text(msgspec.Struct, frozen=True, array_like=True):
    width: int
    folders: list[tuple[bytes, bytes]]
    planes: bytes


def as_folder(entries: Mapping[bytes, bytes]) -> Folder:
    """Pack stamps by name. Names must not have a NUL."""
    names = sorted(entries)
    return Folder(b"\0".join(names), b"".join([entries[name] for name in names]))


def entries_of(folder: Folder | None) -> dict[bytes, bytes]:
    """Return the stamps by name."""
    if folder is None:
        return {}
    names, stamps = folder.names.split(b"\0"), folder.stamps
    width = len(stamps) // len(names)
    return {
        name: stamps[place : place + width] for name, place in zip(names, range(0, len(stamps), width), strict=True)
    }


def count(manifest: Manifest) -> int:
    """Return how many entries there are."""
    return sum(folder.names.count(b"\0") + 1 for folder in manifest.values())


def differences(old: Manifest, new: Manifest) -> list[Difference]:
    """Return every entry that is not the same in both."""
    found: list[Difference] = []
    for path in {**old, **new}:
        before, after = old.get(path), new.get(path)
        if before != after:
            found += _in_folder(path, entries_of(before), entries_of(after))
    return found


def _in_folder(folder: bytes, old: Mapping[bytes, bytes], new: Mapping[bytes, bytes]) -> Iterable[Difference]:
    start = folder + b"/" if folder else b""
    for name in {**old, **new}:
        before, after = old.get(name, b""), new.get(name, b"")
        if before != after:
            yield Difference(start + name, before, after)


def apply(manifest: Manifest, found: Iterable[Difference]) -> Manifest:
    """Return the manifest with the new side of these differences."""
    by_folder: dict[bytes, dict[bytes, bytes]] = {}
    for difference in found:
        folder, _, name = difference.path.rpartition(b"/")
        by_folder.setdefault(folder, {})[name] = difference.new
    result = dict(manifest)
    for folder, changed in by_folder.items():
        entries = {name: stamp for name, stamp in (entries_of(result.get(folder)) | changed).items() if stamp}
        if entries:
            result[folder] = as_folder(entries)
        else:
            result.pop(folder, None)
    return result


def dump(manifest: Manifest) -> str:
    """Return the manifest as a text that `load` reads."""
    stamps = b"".join(folder.stamps for folder in manifest.values())
    width = len(stamps) // count(manifest) if manifest else 0
    # all first bytes, then all second ones: neighbours are alike, which makes the result half as long
    planes = b"".join(stamps[place::width] for place in range(width))
    text = _Text(width, [(path, folder.names) for path, folder in manifest.items()], planes)
    return base64.b64encode(zlib.compress(msgspec.msgpack.encode(text), LEVEL)).decode("ascii")


def load(text: str) -> Manifest:
    """Return the manifest that was dumped. Raise CursorExpired if it is none."""
    try:
        raw = msgspec.msgpack.decode(zlib.decompress(base64.b64decode(text, validate=True)), type=_Text)
        return _unpack(raw)
    except (ValueError, zlib.error, binascii.Error, msgspec.MsgspecError) as error:
        raise CursorExpired("the list of what was there before cannot be read") from error


def _unpack(raw: _Text) -> Manifest:
    stamps, width = bytearray(len(raw.planes)), raw.width
    size = len(raw.planes) // width if width else 0
    for place in range(width):
        stamps[place::width] = raw.planes[place * size : (place + 1) * size]
    manifest, begin = {}, 0
    for path, names in raw.folders:
        end = begin + width * (names.count(b"\0") + 1)
        manifest[path] = Folder(names, bytes(stamps[begin:end]))
        begin = end
    if begin != len(stamps):
        raise ValueError("the stamps do not belong to the names")
    return manifest
