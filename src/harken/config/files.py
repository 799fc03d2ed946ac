"""Which files a configuration directory has, and what is in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from harken.config.findings import Place, Report
from harken.config.interpolate import Lookup, interpolate
from harken.config.yaml.nodes import Node
from harken.config.yaml.parser import MAX_BYTES, parse

__all__ = ["read", "workflow_files"]

_ENDINGS = (".yaml", ".yml")


def read(directory: Path, file: str, lookup: Lookup, report: Report) -> Node | None:
    """Return the tree of a file with its references replaced; None when it cannot be read."""
    source = _bytes(directory / file, file, report)
    tree = parse(source, file, report) if source is not None else None
    return interpolate(tree, lookup, report) if tree is not None else None


def _bytes(path: Path, file: str, report: Report) -> bytes | None:
    try:
        # a pipe or a device would never end
        if not stat.S_ISREG(path.stat().st_mode):
            report.error(Place(file), (), "not a regular file", "Put a file here", "unreadable")
            return None
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        report.error(
            Place(file), (), f"cannot be read: {error.strerror}", "Check that it exists and is readable", "unreadable"
        )
        return None


def workflow_files(directory: Path, report: Report) -> list[str]:
    """Every .yaml and .yml below workflows/, relative to the directory and sorted. Hidden ones are left out."""
    root = directory / "workflows"
    if not os.path.lexists(root):
        return []
    return sorted(_walk(directory, root, report, set()))


def _walk(directory: Path, folder: Path, report: Report, seen: set[tuple[int, int]]) -> Iterator[str]:
    name = folder.relative_to(directory).as_posix()
    try:
        status = folder.stat()
        # links may lead back to where they stand
        if (status.st_dev, status.st_ino) in seen:
            return
        seen.add((status.st_dev, status.st_ino))
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        report.error(Place(name), (), f"cannot be read: {error.strerror}", "Check its permissions", "unreadable")
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if _is_folder(entry):
            yield from _walk(directory, folder / entry.name, report, seen)
        elif entry.name.endswith(_ENDINGS):
            yield f"{name}/{entry.name}"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
