"""The tutorial, done by a machine: its files, its commands, its kill -9."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("tutorial")]

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial" / "first-workflow.md").read_text("utf-8")
WORKFLOW = re.search(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
HARKEN = [sys.executable, "-m", "harken.cli"]
FIRST = {"id": 1, "total": 20}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        return None


class Tutorial:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writes = 0

    def orders(self, *orders: dict[str, int]) -> None:
        file = self.directory / "shop" / "orders.json"
        file.write_text(json.dumps(orders), "utf-8")
        # servers tell changes by the second; a person is never that quick
        self._writes += 1
        at = time.time() - 1000 + 10 * self._writes
        os.utime(file, (at, at))

    def harken(self, *words: str) -> str:
        done = subprocess.run(
            [*HARKEN, *words], cwd=self.directory, capture_output=True, text=True, timeout=100, check=True
        )
        return done.stdout

    def runs(self) -> list[str]:
        return sorted(key for run in json.loads(self.harken("runs", "list", "--json")) for key in run["event_keys"])

    def start(self) -> subprocess.Popen[str]:
        command = [*HARKEN, "start", "--port", "0"]
        process = subprocess.Popen(command, cwd=self.directory, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        return process

    def wait(self, text: str, *words: str) -> str:
        deadline = time.monotonic() + 120
        while text not in (said := self.harken(*words)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return said


@pytest.fixture
def tutorial(tmp_path: Path) -> Iterator[Tutorial]:
    assert WORKFLOW is not None
    (tmp_path / "shop").mkdir()
    (tmp_path / "workflows").mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path / "shop")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    workflow = WORKFLOW[1].replace(":8765/", f":{server.server_port}/")
    (tmp_path / "workflows" / "orders.yaml").write_text(workflow, "utf-8")
    yield Tutorial(tmp_path)
    server.shutdown()
    server.server_close()


def end(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)
    process.communicate(timeout=100)


def test_the_tutorial_goes_as_it_says(tutorial: Tutorial):
    tutorial.orders(FIRST)
    assert "event.total >= 100 is false (event.total = 20)" in tutorial.harken("triggers", "test", "orders")

    process = tutorial.start()
    tutorial.wait("was there before the trigger", "explain", "orders", "1")
    tutorial.orders(FIRST, {"id": 2, "total": 250}, {"id": 3, "total": 5})
    third = tutorial.wait("the condition was not met", "explain", "orders", "3")
    second = tutorial.wait("which is done", "explain", "orders", "2")
    never = tutorial.harken("explain", "orders", "99")
    end(process, signal.SIGKILL)

    assert "event.total >= 100 is false (event.total = 5)" in third
    assert "fired" in second
    assert "was never read" in never

    tutorial.orders(FIRST, {"id": 2, "total": 250}, {"id": 3, "total": 5}, {"id": 4, "total": 400})
    process = tutorial.start()
    tutorial.wait("which is done", "explain", "orders", "4")
    runs = tutorial.runs()
    end(process, signal.SIGTERM)

    assert runs == ["2", "4"]


def test_a_dry_run_leaves_no_trace(tutorial: Tutorial):
    tutorial.orders(FIRST)

    tutorial.harken("triggers", "test", "orders")

    assert sorted(path.name for path in tutorial.directory.iterdir()) == ["shop", "workflows"]
