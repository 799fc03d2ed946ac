"""Recorded replies of real services, out of the source distributions of client libraries. None of them is kept here.

They are downloaded once for a machine and shared by all test processes. Where they cannot be had, a test that needs
them is skipped with the reason; in CI it fails.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

import pytest

__all__ = ["CORPORA", "fetch"]

# the version, so that the same tests see the same replies; and which files are wanted of it
CORPORA = {
    "PyGithub": ("2.10.0", "*/tests/ReplayData/*.txt"),
    "datadog-api-client": ("2.62.0", "*/cassettes/*.yaml"),
    "feedparser": ("6.0.14", "*/tests/*.xml"),
    "grimoire-elk": ("1.8.3", "*/tests/data/*.json"),
    "perceval": ("1.6.1", "*/tests/data/*.json"),
}
SECONDS = 120


def fetch(name: str) -> Path:
    """The directory of the unpacked source distribution, with the files and in the version that CORPORA names."""
    version, files = CORPORA[name]
    wanted = f"{name}=={version}"
    home = Path(tempfile.gettempdir()) / f"harken-corpora-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    place = home / wanted
    with _alone(home / f"{wanted}.lock"):
        if not place.exists():
            _unpack(wanted, files, home, place)
    return place


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time; the others find what it brought."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpack(wanted: str, files: str, home: Path, place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home) as work:
        archive = _download(wanted, Path(work))
        with tarfile.open(archive) as packed:
            members = [member for member in packed if fnmatch(member.name, files)]
            packed.extractall(Path(work) / "unpacked", members, filter="data")
        (inside,) = (Path(work) / "unpacked").iterdir()
        # whole or not at all: whoever is killed before this line leaves nothing behind
        inside.rename(place)


def _download(wanted: str, work: Path) -> Path:
    why = ""
    # pip asks a source distribution for its name by building: quickly with what is installed, else with what it needs
    for building in ("--no-build-isolation", "--use-pep517"):
        why = _pip(wanted, work, building)
        for archive in work.glob("*.tar.gz"):
            return archive
    missing = pytest.fail.Exception if os.environ.get("CI") else pytest.skip.Exception
    raise missing(f"{wanted} could not be downloaded: {why}")


def _pip(wanted: str, work: Path, building: str) -> str:
    words = ["download", "--no-binary", ":all:", "--no-deps", "--quiet", building, "--dest", str(work), wanted]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", *words], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {SECONDS} s"
    return next(iter(done.stderr.strip().splitlines()[-1:]), "pip said nothing")
