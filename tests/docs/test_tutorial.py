"""What the tutorial says of a dry run. All of its commands are typed by test_walk_through.py."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.process, pytest.mark.worker_group("tutorial")]

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

    def orders(self, *orders: dict[str, int]) -> None:
        (self.directory / "shop" / "orders.json").write_text(json.dumps(orders), "utf-8")

    def harken(self, *words: str) -> str:
        done = subprocess.run(
            [*HARKEN, *words], cwd=self.directory, capture_output=True, text=True, timeout=300, check=True
        )
        return done.stdout


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


def test_a_dry_run_leaves_no_trace(tutorial: Tutorial):
    tutorial.orders(FIRST)

    tutorial.harken("triggers", "test", "orders")

    assert sorted(path.name for path in tutorial.directory.iterdir()) == ["shop", "workflows"]
