"""What must be known of the files before the rest of them can be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harken.config.files import read
from harken.config.findings import Place, Report
from harken.config.interpolate import Lookup
from harken.config.loaded import MAIN
from harken.config.settings import Settings, store_location
from harken.config.validate import check
from harken.config.watching import POLLERS
from harken.config.yaml.nodes import Node, Scalar, Table

__all__ = ["hidden_store", "store_of", "written_accounts"]


def store_of(directory: Path, environ: Mapping[str, str]) -> str:
    """The store's file as harken.yaml names it, before the rest can be read: secrets are kept beside it."""
    named = _main(directory, environ).items.get("store") or _state_db(directory, environ)
    alone = Table(items={"store": named}, keys={"store": named.place}, place=named.place) if named else None
    settings = check(Settings, alone, Report()) if isinstance(named, Scalar) and alone else None
    return store_location(settings or Settings(), directory, environ)


def _state_db(directory: Path, environ: Mapping[str, str]) -> Node | None:
    found: Node | None = None
    for file in (MAIN, POLLERS):
        if not _mentions(directory / file, b"state_db"):
            # a thousand jobs need not be read twice
            continue
        section = _top(directory, file, environ).items.get("pollers")
        found = section.items.get("state_db", found) if isinstance(section, Table) else found
    return found


def hidden_store(file: Path) -> Report:
    """What is wrong when a file that cannot be read names the store: on another, everything would begin anew."""
    report = Report()
    if _mentions(file, b"state_db"):
        report.error(Place(file.name), (), "it names the store, and cannot be read", "Correct it first", "depends")
    return report


def _mentions(file: Path, word: bytes) -> bool:
    try:
        return word in file.read_bytes()
    except OSError:
        # what cannot be read is told where everything is read
        return False


def written_accounts(directory: Path, environ: Mapping[str, str]) -> Mapping[str, Table]:
    """What stands under integrations: by name, right or wrong."""
    section = _main(directory, environ).items.get("integrations")
    items = section.items.items() if isinstance(section, Table) else ()
    return {name: node for name, node in items if isinstance(node, Table)}


def _main(directory: Path, environ: Mapping[str, str]) -> Table:
    return _top(directory, MAIN, environ)


def _top(directory: Path, file: str, environ: Mapping[str, str]) -> Table:
    report = Report()
    tree = read(directory, file, Lookup(directory, environ), report) if (directory / file).exists() else None
    return tree if isinstance(tree, Table) else Table(items={}, keys={}, place=Place(file))
