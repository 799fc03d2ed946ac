"""Programs of Debian packages for a test: unpacked into a private folder, so that nothing is installed or started."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


def provided(package: str, file: str, *, installed: str = "") -> Path:
    """The file of the package. Where it cannot be had, a test fails in CI and is skipped anywhere else."""
    found = shutil.which(installed) if installed else None
    if found:
        return Path(found)
    home = Path(tempfile.gettempdir()) / f"harken-packages-{os.getuid()}" / package
    if not list(home.glob(file)):
        _unpack(package, home)
    files = sorted(home.glob(file))
    if not files:
        why = f"{file} of the Debian package {package} could not be had here"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    return files[0]


def _unpack(package: str, home: Path) -> None:
    home.parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as work:
        if not _downloaded(package, Path(work)):
            return
        archive = next(Path(work).glob("*.deb"))
        subprocess.run(["dpkg-deb", "-x", archive, Path(work, "out")], check=True, timeout=60)
        # whoever else unpacked it meanwhile did the same
        shutil.rmtree(home, ignore_errors=True)
        os.replace(Path(work, "out"), home)


def _downloaded(package: str, work: Path) -> bool:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return False
    download = ["apt-get", "download", "-qq", package]
    for command in (download, ["apt-get", "update", "-qq"], download):
        subprocess.run(command, cwd=work, capture_output=True, check=False, timeout=90)
        if list(work.glob("*.deb")):
            return True
    return False
