"""Where things are on this machine, and what the configuration says about itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harken.operate.rows import Plain

if TYPE_CHECKING:
    from harken.config.findings import Finding
    from harken.config.loaded import Loaded

__all__ = ["Site", "findings", "models", "row", "run_file", "run_file_of", "site", "store_file"]

_NAMES_A_STORE = re.compile(r"\b(store|state_db)\b")

VARIABLES = ("HARKEN_STORE", "REDIS_URL")
TIERS = ("default", "fast", "balanced", "strategic")


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """`store_path` is None when the store is not a file."""

    directory: Path
    store_path: Path | None = None
    host: str = "127.0.0.1"
    port: int = 9091


def site(loaded: Loaded | None) -> Site:
    if loaded is None:
        return Site(directory=Path.cwd())
    from harken.config.settings import is_url

    return Site(
        directory=loaded.directory,
        store_path=None if is_url(loaded.store) else Path(loaded.store),
        host=loaded.settings.server.host,
        port=loaded.settings.server.port,
    )


def run_file(base: Path) -> Path:
    """The file beside the store in which a running controller says who and where it is."""
    return base.with_name(base.name + ".run.json")


def run_file_of(directory: Path) -> Path:
    """The run file of the configuration in this directory."""
    return run_file(store_file(directory) or directory.absolute() / "harken.db")


def store_file(directory: Path) -> Path | None:
    """The store's file, or None for a server; without the cost of loading everything where nothing names a store."""
    files = [file for name in ("harken.yaml", "pollers.yaml") if (file := directory / name).exists()]
    named = any(_NAMES_A_STORE.search(file.read_text(encoding="utf-8", errors="replace")) for file in files)
    if not named and not any(os.environ.get(variable) for variable in VARIABLES):
        return (directory / "harken.db").absolute()
    from harken.config.settings import is_url
    from harken.operate.configuration import load_directory

    location = load_directory(directory).store
    return None if is_url(location) else Path(location)


def findings(loaded: Loaded | None) -> Iterator[Plain]:
    """Each finding as a flat row; `text` is the whole line that a terminal shows."""
    for found in loaded.findings if loaded else ():
        yield row(found)


def row(found: Finding) -> Plain:
    return {
        "severity": found.severity,
        "code": found.code,
        "file": found.file,
        "line": found.line,
        "column": found.column,
        "message": found.message,
        "fix": found.fix,
        "text": str(found),
    }


def models(loaded: Loaded | None) -> Mapping[str, str]:
    """The model that each configured tier stands for."""
    if loaded is None:
        return {}
    configured = {tier: getattr(loaded.settings.models, tier) for tier in TIERS}
    return {tier: str(model) for tier, model in configured.items() if model}
