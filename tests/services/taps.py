"""A tap as a child process, and the file that it sends."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from harken.services.singer import Query, TapSource
from harken.source import Host
from harken.testing import START, HandClock
from tests.services.programs import POLLERS

INSTALL_SECONDS = 400


class Orders:
    """A service for SourceContract: what is put is written into the file that the tap sends."""

    page_size = 3
    since = START - timedelta(seconds=1)

    def __init__(self, folder: Path, clock: HandClock, host: Host, **options: Any) -> None:
        self.file = folder / "orders.jsonl"
        self.file.touch()
        self._clock = clock
        self._numbers = count(1)
        config = {"file": str(self.file), **options.pop("config", {})}
        # the test's directory on its command line lets it be found among all processes
        tap = [sys.executable, str(POLLERS / "tap.py"), str(folder)]
        self.source = TapSource(Query.model_validate({"tap": tap, "config": config, **options}), host)

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        names = [f"i{next(self._numbers)}" for _ in range(count)]
        with self.file.open("a") as file:
            for name in names:
                self._clock.advance(0 if tied else 10)
                file.write(json.dumps({"id": name, "at": self._clock.now().isoformat()}) + "\n")
        return [f"orders/{name}" for name in names]

    async def expire(self) -> bool:
        return False


def installed(tap: str, version: str) -> Path:
    """The program of a tap from its package, in an environment of its own that is made once for a machine."""
    home = Path(tempfile.gettempdir()) / f"harken-taps-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    place = home / f"{tap}=={version}"
    with (home / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        why = "" if (place / "ready").exists() else _install(place)
    if why:
        missing = pytest.fail.Exception if os.environ.get("CI") else pytest.skip.Exception
        raise missing(f"{place.name} could not be installed: {why}")
    return place / "bin" / tap


def _install(place: Path) -> str:
    """Why it could not be had; nothing when it is there."""
    shutil.rmtree(place, ignore_errors=True)
    venv = [sys.executable, "-m", "venv", str(place)]
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", place.name]
    for command in (venv, pip):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"it took more than {INSTALL_SECONDS} s"
        if done.returncode:
            return next(iter(done.stderr.strip().splitlines()[-1:]), "nothing was said")
    (place / "ready").touch()
    return ""
