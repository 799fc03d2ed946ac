"""Harken as its users get it: the wheel, and a machine on which nothing of this clone is to be found."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from tests.downloads import skip_or_fail

__all__ = ["build_wheel", "fresh_machine", "installed"]

ROOT = Path(__file__).parents[2]
OURS = ("harken", "_editable_impl_harken", "__editable__", "pip", "setuptools", "__pycache__")
TOOLS = ("pytest", "ruff", "mypy")


def build_wheel(into: Path) -> Path:
    """Build it with the build tool of this environment: nothing is downloaded."""
    if find_spec("hatchling") is None:
        skip_or_fail("hatchling is not here, which builds the wheel. Run: make setup")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = into.glob("harken-*.whl")
    return wheel


def fresh_machine(place: Path) -> dict[str, str]:
    """The environment of a person who has Python and nothing of Harken.

    What a package index would give them, they find below PYTHONPATH: the dependencies of this environment without
    Harken itself. pip takes them as installed, and may ask nobody.
    """
    tools, home, packages = place / "tools", place / "home", place / "packages"
    for directory in (tools, home, packages):
        directory.mkdir(parents=True)
    _script(tools / "python3", f'exec "{sys._base_executable}" "$@"')  # type: ignore[attr-defined]
    for tool in TOOLS:
        # pip writes the commands of what it installs, and these count as installed
        _script(tools / tool, f'exec python -m {tool} "$@"')
    for installed in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(installed).iterdir():
            if not entry.name.startswith(OURS) and entry.suffix != ".pth":
                (packages / entry.name).symlink_to(entry)
    # a program, which its package looks for beside itself
    (packages / "bin").mkdir()
    (packages / "bin" / "ruff").symlink_to(Path(sysconfig.get_path("scripts")) / "ruff")
    return {
        "PATH": os.pathsep.join([str(tools), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(home),
        "PYTHONPATH": str(packages),
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        # only what is imported is compiled then, and not all of Harken
        "PIP_COMPILE": "0",
        # read by pip as the option --no-build-isolation: the build tool, too, counts as installed
        "PIP_NO_BUILD_ISOLATION": "0",
    }


def installed(wheel: Path, place: Path) -> dict[str, str]:
    """The environment of a person who has installed the wheel into an environment of its own, and activated that."""
    environ = fresh_machine(place / "machine")
    programs = place / "venv" / "bin"
    # a pip of its own would take longer to install than Harken; that is done as README says in test_walk_through.py
    commands = f'python3 -m venv --without-pip "{place}/venv" && "{programs}/pip" install --quiet "{wheel}"'
    programs.mkdir(parents=True)
    _script(programs / "pip", f'exec "{sys.executable}" -m pip --python "{programs}/python" "$@"')
    done = subprocess.run(["bash", "-ec", commands], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {**environ, "PATH": os.pathsep.join([str(programs), environ["PATH"]])}


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
