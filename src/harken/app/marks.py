"""How configuration files look from outside, without reading them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["SUFFIXES", "Marks", "marks"]

SUFFIXES = (".yaml", ".yml")

Marks = dict[str, tuple[int, int]]


def marks(directory: Path) -> Marks:
    """How the files in this directory look: another answer means that one of them changed."""
    found: Marks = {}
    try:
        files = [path for path in directory.iterdir() if path.suffix in SUFFIXES]
    except OSError:
        return found  # being replaced; the next look sees what became of it
    for path in files:
        # an editor's lock is a link that leads nowhere; it must not hide the others
        with suppress(OSError):
            stat = path.stat()
            found[path.name] = (stat.st_mtime_ns, stat.st_size)
    return found
