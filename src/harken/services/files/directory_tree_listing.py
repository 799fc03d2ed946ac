"""Lists a directory tree, as a manifest. Runs in a thread; everything that it meets on the way is hostile input."""

from __future__ import annotations

import os
import stat
import struct
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from harken.errors import NeedsAttention, RetryLater
from harken.kit.file_manifest import Folder, Manifest, as_folder
from harken.kit.globs import Globs

__all__ = ["STAMP", "Scan", "Scanner", "Stamp", "decode_name", "pack_stamp", "unpack_stamp"]

STAMP = struct.Struct("<qqQ")


class Stamp(NamedTuple):
    """What tells one version of a file from another."""

    size: int
    mtime_ns: int
    inode: int


def pack_stamp(found: os.stat_result) -> bytes:
    return STAMP.pack(found.st_size, found.st_mtime_ns, found.st_ino & 0xFFFF_FFFF_FFFF_FFFF)


def unpack_stamp(stamp: bytes) -> Stamp:
    return Stamp(*STAMP.unpack(stamp))


def decode_name(path: bytes) -> str:
    """Return the path as a text that gives the same bytes again with the same handler."""
    return path.decode("utf-8", "surrogateescape")


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree has. Of folders that could not be read, `files` has what they had before.

    `root` is the inode of the directory itself. `unreadable` and `refused` say why, by path."""

    files: Manifest
    root: int
    unreadable: dict[bytes, str]
    refused: dict[bytes, str]


class Scanner:
    """Which files of a directory count."""

    def __init__(
        self,
        root: bytes,
        *,
        include: Globs,
        exclude: Globs,
        hidden: bool,
        recursive: bool,
        max_files: int,
        own_files: Callable[[bytes], bool],
    ) -> None:
        self.root = root
        self._include, self._exclude = include, exclude
        self._hidden, self._recursive, self._max_files = hidden, recursive, max_files
        self._is_own = own_files

    def scan(self, known: Manifest, ended: threading.Event) -> Scan:
        """List the tree; `known` is what it had before. Raise RetryLater while the directory itself is not there."""
        root = self._look_at_root()
        self._real = os.path.realpath(self.root)
        self._left = self._max_files
        found: dict[bytes, Folder] = {}
        unreadable: dict[bytes, str] = {}
        refused: dict[bytes, str] = {}
        folders = [b""]
        while folders and not ended.is_set():
            folder = folders.pop()
            try:
                with os.scandir(os.path.join(self.root, folder) if folder else self.root) as listed:
                    entries = self._read_folder(folder, listed, folders, refused)
            except FileNotFoundError:
                # it was removed meanwhile
                entries = {}
            except OSError as error:
                if not folder:
                    raise self._away(error) from error
                unreadable[folder] = error.strerror or type(error).__name__
                found |= _below(known, folder)
                continue
            if entries:
                found[folder] = as_folder(entries)
        if ended.is_set():
            raise RetryLater("the scan was ended")
        return Scan(files=found, root=root, unreadable=unreadable, refused=refused)

    def selects(self, path: bytes) -> bool:
        """Whether a file with this path would count."""
        parts = decode_name(path).split("/")
        if (len(parts) > 1 and not self._recursive) or (not self._hidden and any(part[:1] == "." for part in parts)):
            return False
        if any(self._exclude.match("/".join(parts[: end + 1])) for end in range(len(parts))):
            return False
        return not self._include or self._include.match("/".join(parts))

    def _look_at_root(self) -> int:
        try:
            found = os.stat(self.root)
        except OSError as error:
            raise self._away(error) from error
        if not stat.S_ISDIR(found.st_mode):
            fix = "Name its directory in path, and the file in include"
            raise NeedsAttention(f"{_shown(self.root)} is not a directory", fix=fix)
        return found.st_ino

    def _away(self, error: OSError) -> RetryLater:
        fix = "Create it, mount it, or give the user that Harken runs as the right to list it"
        return RetryLater(f"{_shown(self.root)} cannot be listed: {error.strerror or type(error).__name__}", fix=fix)

    def _read_folder(
        self,
        folder: bytes,
        listed: Iterable[os.DirEntry[bytes]],
        folders: list[bytes],
        refused: dict[bytes, str],
    ) -> dict[bytes, bytes]:
        start, entries = folder + b"/" if folder else b"", dict[bytes, bytes]()
        for entry in listed:
            name = entry.name
            if not self._hidden and name.startswith(b"."):
                continue
            path = start + name
            text = decode_name(path)
            if self._exclude and self._exclude.match(text):
                continue
            if entry.is_dir(follow_symlinks=False):
                if self._recursive:
                    folders.append(path)
                continue
            if (self._include and not self._include.match(text)) or self._is_own(path):
                continue
            stamp = self._stamp(entry, path, refused)
            if stamp:
                entries[name] = stamp
                self._count()
        return entries

    def _stamp(self, entry: os.DirEntry[bytes], path: bytes, refused: dict[bytes, str]) -> bytes:
        """Return the stamp of a regular file; nothing for anything else."""
        try:
            if entry.is_symlink():
                return self._linked(entry.path, path, refused)
            found = entry.stat(follow_symlinks=False)
        except OSError:
            # it was removed meanwhile, or a link leads nowhere
            return b""
        return pack_stamp(found) if stat.S_ISREG(found.st_mode) else b""

    def _linked(self, link: bytes, path: bytes, refused: dict[bytes, str]) -> bytes:
        target = os.path.realpath(link, strict=True)
        if os.path.commonpath([self._real, target]) != self._real:
            refused[path] = "is a link to something outside of the directory"
            return b""
        found = os.stat(target, follow_symlinks=False)
        return pack_stamp(found) if stat.S_ISREG(found.st_mode) else b""

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            message = f"{_shown(self.root)} has more than {self._max_files} files that match"
            raise NeedsAttention(message, fix="Narrow include or add to exclude, or raise max_files")


def _below(known: Manifest, folder: bytes) -> dict[bytes, Folder]:
    start = folder + b"/"
    return {path: entries for path, entries in known.items() if path == folder or path.startswith(start)}


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
