"""Server programs from Debian packages: unpacked with their libraries, but not installed.

They are downloaded once for a machine and shared by all test processes. If that fails, a test that needs them is
skipped with the reason; in CI it fails.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = ["environment", "program", "skip_or_fail"]

SECONDS = 300
# only needed to compile queries at run time, and larger than all the rest together
NEEDLESS = ("libllvm", "libz3", "perl")


def program(package: str, file: str) -> Path:
    """The path of a program of the package, installed or downloaded. `file` is its path below /, and may have a *."""
    for root in (Path("/"), _directory() / package):
        found = sorted(root.glob(file))
        if found:
            return found[-1]
    _download(package)
    found = sorted((_directory() / package).glob(file))
    if not found:
        skip_or_fail(
            f"{file} of the Debian package {package} could not be downloaded. Install it: apt-get install {package}"
        )
    return found[-1]


def skip_or_fail(why: str) -> NoReturn:
    """End the test: a failure in CI, skipped anywhere else."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def environment(program: Path) -> dict[str, str]:
    """The environment in which a downloaded program finds its libraries."""
    directory = _directory()
    if not program.is_relative_to(directory):
        return dict(os.environ)
    root = directory / program.relative_to(directory).parts[0]
    libraries = sorted({str(library.parent) for library in root.glob("usr/lib/**/lib*.so*")})
    return {**os.environ, "LD_LIBRARY_PATH": ":".join([*libraries, *sorted(map(str, root.glob("lib/*-linux-gnu")))])}


def _directory() -> Path:
    # readable for all: a server that refuses to run as root has another user
    directory = Path(tempfile.gettempdir()) / f"harken-servers-{os.getuid()}"
    directory.mkdir(mode=0o755, exist_ok=True)
    return directory


def _download(package: str) -> None:
    directory = _directory()
    with (directory / f"{package}.lock").open("w") as lock, tempfile.TemporaryDirectory(dir=directory) as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (directory / package).exists() or not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            return
        out = Path(work, "out")
        out.mkdir()
        for archive in _fetch_archives(package, Path(work)):
            subprocess.run(["dpkg-deb", "-x", archive, out], check=True, timeout=SECONDS)
        if any(out.iterdir()):
            # the rename is atomic: a process that is killed before it leaves no half of a package
            out.chmod(0o755)
            out.rename(directory / package)


def _fetch_archives(package: str, work: Path) -> list[Path]:
    names = _missing(package)
    if not names:
        _apt("update", "-qq")
        names = _missing(package)
    if names and not _apt("download", "-qq", *names, cwd=work):
        # the package lists were older than the packages
        _apt("update", "-qq")
        _apt("download", "-qq", *_missing(package), cwd=work)
    return sorted(work.glob("*.deb"))


def _missing(package: str) -> list[str]:
    """The package and its dependencies that are not installed."""
    command = ["apt-get", "install", "--simulate", "--no-install-recommends", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    names = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("Inst ")]
    return [name for name in names if not name.startswith(NEEDLESS)]


def _apt(*words: str, cwd: Path | None = None) -> bool:
    # apt's own user for downloads may not write into our directory
    command = ["apt-get", "-o", "APT::Sandbox::User=root", *words]
    return not subprocess.run(command, cwd=cwd, capture_output=True, check=False, timeout=SECONDS).returncode
