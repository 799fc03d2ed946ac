"""What the tests need from elsewhere: server programs, recordings, toolchains. `make servers` brings all of it.

Everything is in one directory of this clone (`cache()`), so that two clones share nothing. A test only looks for what
it needs there: it never downloads, because a download inside a timed test fails on a slow machine. Where something is
missing, the test fails in CI and is skipped with the reason anywhere else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeAlias

import pytest

__all__ = ["Bring", "NotBrought", "bring", "cache", "find", "skip_or_fail"]

ROOT = Path(__file__).parents[2]

Bring: TypeAlias = Callable[[Path], None]
"""Fills the empty directory that it is given; raises NotBrought where that is not possible."""


class NotBrought(Exception):
    """Something could not be downloaded or built, with the reason."""


def cache() -> Path:
    """The directory of this clone. Not below the clone itself: servers run as `nobody`, who may not read that."""
    clone = hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"harken-tests-{os.getuid()}-{clone}"
    path.mkdir(mode=0o755, exist_ok=True)
    return path


def find(name: str) -> Path:
    """The directory that `bring` has filled."""
    path = cache() / name
    if not path.exists():
        skip_or_fail(f"{name} is not here. Run: make servers")
    return path


def bring(name: str, fill: Bring) -> Path:
    """Fill the directory of that name, unless it is there. An interrupted attempt leaves nothing behind."""
    path = cache() / name
    if path.exists():
        return path
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=path.parent, prefix=".new-"))
    try:
        # readable for all, as cache() is
        work.chmod(0o755)
        fill(work)
        work.rename(path)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return path


def skip_or_fail(why: str) -> NoReturn:
    """End the test: a failure in CI, skipped anywhere else."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
