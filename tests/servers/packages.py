"""Server programs of Debian packages, with the libraries they need: unpacked, so that nothing is installed or started.

They are downloaded once for a machine and shared by all test processes. Where they cannot be had, a test that needs
them is skipped with the reason; in CI it fails.
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

__all__ = ["environment", "program", "unable"]

SECONDS = 300
# only for compiling queries at run time, and larger than all the rest together
NEEDLESS = ("libllvm", "libz3", "perl")


def program(package: str, file: str) -> Path:
    """The program, from the system if it is installed there; `file` is its path, which may have a * in it."""
    for root in (Path("/"), _directory() / package):
        found = sorted(root.glob(file))
        if found:
            return found[-1]
    _bring(package)
    found = sorted((_directory() / package).glob(file))
    if not found:
        unable(f"{file} of the Debian package {package} could not be downloaded. Install it: apt-get install {package}")
    return found[-1]


def unable(why: str) -> NoReturn:
    """End the test: a failure in CI, skipped anywhere else."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def environment(program: Path) -> dict[str, str]:
    """What a program of ours needs to find its libraries."""
    directory = _directory()
    if not program.is_relative_to(directory):
        return dict(os.environ)
    root = directory / program.relative_to(directory).parts[0]
    libraries = sorted({str(library.parent) for library in root.glob("usr/lib/**/lib*.so*")})
    return {**os.environ, "LD_LIBRARY_PATH": ":".join([*libraries, *sorted(map(str, root.glob("lib/*-linux-gnu")))])}


def _directory() -> Path:
    # readable for all: a server that refuses to run as root is another user
    directory = Path(tempfile.gettempdir()) / f"harken-servers-{os.getuid()}"
    directory.mkdir(mode=0o755, exist_ok=True)
    return directory


def _bring(package: str) -> None:
    directory = _directory()
    with (directory / f"{package}.lock").open("w") as lock, tempfile.TemporaryDirectory(dir=directory) as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (directory / package).exists() or not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            return
        out = Path(work, "out")
        out.mkdir()
        for archive in _downloaded(package, Path(work)):
            subprocess.run(["dpkg-deb", "-x", archive, out], check=True, timeout=SECONDS)
        if any(out.iterdir()):
            # whole or not at all: whoever is killed before this line leaves nothing behind
            out.chmod(0o755)
            out.rename(directory / package)


def _downloaded(package: str, work: Path) -> list[Path]:
    names = _missing(package)
    if not names:
        _apt("update", "-qq")
        names = _missing(package)
    if names and not _apt("download", "-qq", *names, cwd=work):
        # the lists of packages were older than the packages
        _apt("update", "-qq")
        _apt("download", "-qq", *_missing(package), cwd=work)
    return sorted(work.glob("*.deb"))


def _missing(package: str) -> list[str]:
    """The package and what it needs beside what the system has."""
    command = ["apt-get", "install", "--simulate", "--no-install-recommends", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    names = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("Inst ")]
    return [name for name in names if not name.startswith(NEEDLESS)]


def _apt(*words: str, cwd: Path | None = None) -> bool:
    # without its own user for downloads, which may not write into our folder
    command = ["apt-get", "-o", "APT::Sandbox::User=root", *words]
    return not subprocess.run(command, cwd=cwd, capture_output=True, check=False, timeout=SECONDS).returncode
