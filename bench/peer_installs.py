"""Other tools, installed on demand into a cache: Node-RED and n8n with npm, huey and DBOS with pip.

Where they come from is what npm and pip are set to on this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["NotInstalled", "cache_directory", "npm_package", "python_with"]

PATIENCE = 1_200.0


class NotInstalled(Exception):
    """The peer cannot be had here; the text says why."""


def cache_directory() -> Path:
    """Where peers are kept from one measurement to the next. It may be deleted at any time."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "harken-bench-peers"


def npm_package(package: str) -> Path:
    """The directory of an npm package, installed if it is not there yet."""
    folder = cache_directory() / package
    found = folder / "node_modules" / package
    if not (folder / ".installed").exists():
        npm = shutil.which("npm")
        if npm is None:
            raise NotInstalled("npm is not installed here")
        folder.mkdir(parents=True, exist_ok=True)
        # a package.json of its own, or npm would look for one in the directories above
        folder.joinpath("package.json").write_text('{"private": true}\n')
        _install([npm, "install", "--no-audit", "--no-fund", "--loglevel=error", package], folder)
    return found


def python_with(*packages: str) -> Path:
    """The Python of an environment with these packages, made if it is not there yet."""
    folder = cache_directory() / "-".join(packages)
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        _install([str(python), "-m", "pip", "install", "-q", *packages], folder)
    return python


def _install(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"its installation took longer than {PATIENCE / 60:.0f} minutes") from None
    if done.returncode:
        # the whole goes to the terminal, one line of it into the table
        sys.stderr.buffer.write(done.stderr[-4_000:])
        raise NotInstalled(f"its installation ended with code {done.returncode}")
    folder.joinpath(".installed").touch()
