"""schemathesis with all its checks, also stateful, on a whole Harken: what the specification says is what happens.

`make soak` gives it many more examples, and PostgreSQL; HARKEN_EXAMPLES=30 so many.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.api.openapi import specification
from harken.app import App
from tests.api.fuzzed_world import inhabited
from tests.servers.postgres import PostgresServer
from tests.soak import SOAK, longer, patience

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")
COMMAND = Path(sys.executable).with_name("st")
OPERATIONS = [one for methods in specification()["paths"].values() for one in methods.values()]
EXAMPLES = os.environ.get("HARKEN_EXAMPLES") or str(longer(__file__, 3))
pytestmark = [
    pytest.mark.timeout(600 if EXAMPLES == "3" else patience(14_400)),
    pytest.mark.skipif(shutil.which(COMMAND) is None, reason="schemathesis is not installed"),
]


@pytest.fixture(params=["sqlite", "postgres"] if SOAK else ["sqlite"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield "harken.db"
        return
    with PostgresServer() as server:
        yield f"{server.url('postgres')}?sslmode=disable"


async def test_schemathesis_finds_nothing(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "classic")
    async with inhabited(tmp_path, store) as app:
        monkeypatch.setattr(app.controller, "changed", _ended)
        done = await asyncio.to_thread(_fuzz, app, tmp_path)
        assert done.returncode == 0, done.stdout[-200_000:] + done.stderr[-2_000:]
        assert f"  Tested: {len(OPERATIONS)}\n" in done.stdout


async def _ended(seconds: float) -> bool:
    """A tail ends as it does when the engine stops: nobody could wait for its end otherwise."""
    return False


def _fuzz(app: App, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [
        str(COMMAND), "--config-file", str(CONFIG), "run", f"{app.url}/api/openapi.json", "--checks", "all",
        "--generation-deterministic", "--no-shrink", "--no-color", "--warnings", "off", "--max-examples", EXAMPLES,
        "--request-timeout", "60",
    ]  # fmt: skip
    # the guard against forms stands before everything else, also before the question which methods a path has
    command += ["--header", "Content-Type: application/json"]
    backups = directory / "backups"
    backups.mkdir()
    environ = {**os.environ, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    environ["HARKEN_FUZZED_BACKUPS"] = str(backups)
    return subprocess.run(command, capture_output=True, text=True, env=environ, cwd=directory, check=False)
