"""Lighthouse on the start page of the site, in `make soak`, as on a phone with a slow connection.

What the browser did is recorded first, and judged then with the CPU time of each task: on a machine that does something
else too, a task of 30 ms takes half a second by the clock.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs.static_files import StaticFiles, build_site
from tests.downloads import debian, node_programs
from tests.soak import SOAK

pytestmark = [
    pytest.mark.process,
    pytest.mark.worker_group("site"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(not SOAK, reason="it takes a minute or two"),
]

FLAGS = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking"
TRIES = 3
"""What the page waits for still depends on what else the machine does, so the best of so many counts."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = build_site(tmp_path_factory.mktemp("site"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(StaticFiles, directory=place))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def lighthouse(url: str, *options: str) -> str:
    browser = debian.program("chromium")
    command = [*node_programs.command("lighthouse"), url, "--quiet", f"--chrome-flags={FLAGS}"]
    environment = {**debian.environment(browser), "CHROME_PATH": str(browser)}
    done = subprocess.run(
        [*command, "--no-enable-error-reporting", *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def count_cpu_time(recorded: Path) -> None:
    """In what was recorded, let each task take the time for which it had a CPU."""
    trace = json.loads(recorded.read_text("utf-8"))
    tasks = [event for event in trace["traceEvents"] if "dur" in event and "tdur" in event]
    assert tasks, "the browser has recorded no CPU time"
    for task in tasks:
        task["dur"] = task["tdur"]
    recorded.write_text(json.dumps(trace), "utf-8")


def audit(url: str, place: Path) -> dict[str, Any]:
    """Lighthouse's report: `scores` from 0 to 100, and `costs` with what is not perfect."""
    lighthouse(url, f"--gather-mode={place}")
    count_cpu_time(place / "trace.json")
    found = json.loads(lighthouse(url, f"--audit-mode={place}", "--output=json"))
    audits = {name: one for name, one in found["audits"].items() if one["score"] is not None and one["score"] < 1}
    return {
        "scores": {name: round(100 * category["score"]) for name, category in found["categories"].items()},
        "costs": [f"{name} {one.get('displayValue', '')}".strip() for name, one in audits.items()],
    }


def test_the_start_page_is_good_in_every_category(address: str, tmp_path: Path) -> None:
    reports = [audit(address, tmp_path / "1")]
    while reports[-1]["scores"]["performance"] < 95 and len(reports) < TRIES:
        reports.append(audit(address, tmp_path / str(len(reports) + 1)))
    best = max(reports, key=lambda report: int(report["scores"]["performance"]))
    wanted = ("performance", "accessibility", "best-practices", "seo")
    assert {name: best["scores"][name] for name in wanted if best["scores"][name] < 95} == {}, reports
