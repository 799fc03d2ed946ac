"""Lighthouse on a page, in Debian's Chromium: how good it is for people who cannot see it, and how soon it can be used.

What the browser did is recorded first, and judged then with the CPU time of each task: on a machine that does something
else too, a task of 30 ms takes half a second by the clock.

python -m tests.ui.lighthouse http://127.0.0.1:8484/     # the scores, what they are made of, and what costs most
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from tests.downloads import debian, node_programs

__all__ = ["Report", "audit"]

FLAGS = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking"
METRICS = {
    "first-contentful-paint": "FCP",
    "largest-contentful-paint": "LCP",
    "total-blocking-time": "TBT",
    "cumulative-layout-shift": "CLS",
    "speed-index": "SI",
}
"""What the score of performance is made of."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Scores from 0 to 100. `costs`: what is not perfect, such as "unused-javascript Est savings of 20 KiB".

    `machine`: how fast it was meanwhile, by Lighthouse's own benchmark."""

    scores: dict[str, int]
    metrics: dict[str, str]
    machine: float
    costs: list[str]

    @property
    def performance(self) -> int:
        return self.scores["performance"]


async def audit(url: str, *options: str) -> Report:
    """What Lighthouse says of the page, as on a phone with a slow connection unless an option says otherwise."""
    with tempfile.TemporaryDirectory(prefix="lighthouse-") as directory:
        place = Path(directory)
        await _lighthouse(url, f"--gather-mode={place}", *options)
        _count_cpu_time(place / "trace.json")
        return _read(json.loads(await _lighthouse(url, f"--audit-mode={place}", "--output=json", *options)))


async def _lighthouse(url: str, *options: str) -> bytes:
    browser = debian.program("chromium")
    environment = {**debian.environment(browser), "CHROME_PATH": str(browser)}
    command = [*node_programs.command("lighthouse"), url, "--quiet", f"--chrome-flags={FLAGS}"]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--no-enable-error-reporting",
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    said, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode()
    return said


def _count_cpu_time(recorded: Path) -> None:
    """In what was recorded, let each task take the time for which it had a CPU."""
    trace = json.loads(recorded.read_text("utf-8"))
    tasks = [event for event in trace["traceEvents"] if "dur" in event and "tdur" in event]
    assert tasks, "the browser has recorded no CPU time"
    for task in tasks:
        task["dur"] = task["tdur"]
    recorded.write_text(json.dumps(trace), "utf-8")


def _read(found: dict[str, Any]) -> Report:
    audits = found["audits"]
    return Report(
        scores={name: round(100 * category["score"]) for name, category in found["categories"].items()},
        metrics={short: audits[name]["displayValue"] for name, short in METRICS.items() if name in audits},
        costs=[
            f"{name} {one.get('displayValue', '')}".strip()
            for name, one in audits.items()
            if one["score"] is not None and one["score"] < 1
        ],
        machine=found["environment"]["benchmarkIndex"],
    )


def _words(of: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in of.items())


if __name__ == "__main__":
    report = asyncio.run(audit(*sys.argv[1:]))
    sys.stdout.write(f"{_words(report.scores)}; machine {report.machine}\n  {_words(report.metrics)}\n")
    sys.stdout.writelines(f"  {cost}\n" for cost in report.costs)
