"""The files of a configuration directory, and single settings that are needed before everything is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harken.config.findings import Place, Report
from harken.config.interpolate import OUTSIDE_FIX, Lookup, interpolate, is_inside
from harken.config.loaded import MAIN
from harken.config.model_validation import check
from harken.config.pollers.load import POLLERS
from harken.config.settings import Settings, store_location
from harken.config.yaml.nodes import Items, Node, Scalar, Table
from harken.config.yaml.parser import parse, read_source

__all__ = [
    "allowed_directories",
    "check_hidden_store",
    "configured_accounts",
    "find_store",
    "read_tree",
    "tree_of",
    "workflow_files",
]


_ENDINGS = (".yaml", ".yml")


def read_tree(directory: Path, file: str, lookup: Lookup, report: Report, text: bytes | None = None) -> Node | None:
    """Return the tree of a file with its references replaced; None when it cannot be read.

    `text` is what the file would have."""
    source = read_source(directory / file, file, report) if text is None else text
    return tree_of(source, file, lookup, report) if source is not None else None


def tree_of(source: bytes, file: str, lookup: Lookup, report: Report) -> Node | None:
    """Return the tree of what is in a file, with its references replaced; None when it is no tree."""
    tree = parse(source, file, report)
    return interpolate(tree, lookup, report) if tree is not None else None


def allowed_directories(directory: Path) -> tuple[Path, ...]:
    """Return `files.allow` of harken.yaml: read without its references, because these depend on it."""
    if not _mentions(directory / MAIN, b"allow"):
        return ()
    source = read_source(directory / MAIN, MAIN, Report())
    tree = parse(source, MAIN, Report()) if source is not None else None
    section = tree.items.get("files") if isinstance(tree, Table) else None
    named = section.items.get("allow") if isinstance(section, Table) else None
    texts = [one.value for one in named.items if isinstance(one, Scalar)] if isinstance(named, Items) else []
    return tuple(directory / os.path.expanduser(text) for text in texts if isinstance(text, str) and text)


def workflow_files(directory: Path, report: Report, allowed: Sequence[Path] = ()) -> list[str]:
    """Return every .yaml and .yml below workflows/, relative to the directory and sorted, without hidden ones.

    A directory that is a link out of this one is reported, unless it leads to an `allowed` one.
    """
    root = directory / "workflows"
    if not os.path.lexists(root):
        return []
    return sorted(_walk(directory, root, report, set(), (directory, *allowed)))


def _walk(
    directory: Path, folder: Path, report: Report, seen: set[tuple[int, int]], allowed: Sequence[Path]
) -> Iterator[str]:
    name = folder.relative_to(directory).as_posix()
    if folder.is_symlink() and not is_inside(folder, allowed):
        report.error(Place(name), (), "it leads out of the directory of harken.yaml", OUTSIDE_FIX, "unreadable")
        return
    try:
        status = folder.stat()
        # symbolic links may lead back to a parent
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
            yield from _walk(directory, folder / entry.name, report, seen, allowed)
        elif entry.name.endswith(_ENDINGS):
            yield f"{name}/{entry.name}"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def find_store(directory: Path, environ: Mapping[str, str]) -> str:
    """Return the store that harken.yaml names. Needed before loading, because stored secrets are beside the store."""
    named = _main(directory, environ).items.get("store") or _state_db(directory, environ)
    alone = Table(items={"store": named}, keys={"store": named.place}, place=named.place) if named else None
    settings = check(Settings, alone, Report()) if isinstance(named, Scalar) and alone else None
    return store_location(settings or Settings(), directory, environ)


def _state_db(directory: Path, environ: Mapping[str, str]) -> Node | None:
    found: Node | None = None
    for file in (MAIN, POLLERS):
        if not _mentions(directory / file, b"state_db"):
            # do not parse a large file twice for nothing
            continue
        section = _root_table(directory, file, environ).items.get("pollers")
        found = section.items.get("state_db", found) if isinstance(section, Table) else found
    return found


def check_hidden_store(file: Path) -> Report:
    """Report an unreadable file that names the store: with the default store, everything would be read anew."""
    report = Report()
    if _mentions(file, b"state_db"):
        report.error(Place(file.name), (), "it names the store, and cannot be read", "Correct it first", "depends")
    return report


def _mentions(file: Path, word: bytes) -> bool:
    try:
        return word in file.read_bytes()
    except OSError:
        # the loader reports it
        return False


def configured_accounts(directory: Path, environ: Mapping[str, str]) -> Mapping[str, Table]:
    """Return the tables under `integrations:` by name, whether valid or not."""
    section = _main(directory, environ).items.get("integrations")
    items = section.items.items() if isinstance(section, Table) else ()
    return {name: node for name, node in items if isinstance(node, Table)}


def _main(directory: Path, environ: Mapping[str, str]) -> Table:
    return _root_table(directory, MAIN, environ)


def _root_table(directory: Path, file: str, environ: Mapping[str, str]) -> Table:
    report = Report()
    lookup = Lookup(directory, environ, allowed=allowed_directories(directory))
    tree = read_tree(directory, file, lookup, report) if (directory / file).exists() else None
    return tree if isinstance(tree, Table) else Table(items={}, keys={}, place=Place(file))
