"""Singer taps that others wrote, each from its package in a virtual environment of its own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.downloads import cache, skip_or_fail
from tests.downloads.commands import run

__all__ = ["TAPS", "fetch", "program"]

TAPS = {"tap-rest-api-msdk": "1.4.2"}


def program(tap: str) -> Path:
    place = _place(tap)
    if not (place / "ready").exists():
        skip_or_fail(f"{place.name} is not here. Run: make servers")
    return place / "bin" / tap


def fetch(tap: str) -> Path:
    """Install it in its final place: the programs of a virtual environment cannot be moved."""
    place = _place(tap)
    if not (place / "ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        run([sys.executable, "-m", "venv", place])
        run([place / "bin" / "python", "-m", "pip", "install", "--quiet", place.name])
        (place / "ready").touch()
    return place


def _place(tap: str) -> Path:
    return cache() / "taps" / f"{tap}=={TAPS[tap]}"
