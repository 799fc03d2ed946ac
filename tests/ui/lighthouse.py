"""Lighthouse on a page, in Debian's Chromium: how good it is for people who cannot see it, and how soon it can be used.

python -m tests.ui.lighthouse http://127.0.0.1:8484/     # the scores, and what costs most
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import msgspec

from tests.downloads import debian, node_programs

__all__ = ["Report", "audit"]

FLAGS = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking"
CATEGORIES = "performance,accessibility"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Scores from 0 to 100. `costs`: what is not perfect, such as "first-contentful-paint 1.2 s".

    `machine`: how fast it was meanwhile, by Lighthouse's own benchmark."""

    accessibility: int
    performance: int
    machine: float
    costs: list[str]


async def audit(url: str, *options: str) -> Report:
    """What Lighthouse says of the page, as on a phone with a slow connection unless an option says otherwise."""
    browser = debian.program("chromium")
    environment = {**debian.environment(browser), "CHROME_PATH": str(browser)}
    command = [*node_programs.command("lighthouse"), url, "--output=json", "--quiet", f"--chrome-flags={FLAGS}"]
    command += [f"--only-categories={CATEGORIES}", "--no-enable-error-reporting", *options]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
    )
    said, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode()
    return _read(json.loads(said))


def _read(found: dict[str, Any]) -> Report:
    scores = {name: round(100 * category["score"]) for name, category in found["categories"].items()}
    shown = [
        f"{name} {one.get('displayValue', '')}".strip()
        for name, one in found["audits"].items()
        if one["score"] is not None and one["score"] < 1
    ]
    return Report(**scores, costs=shown, machine=found["environment"]["benchmarkIndex"])


if __name__ == "__main__":
    report = asyncio.run(audit(*sys.argv[1:]))
    sys.stdout.write(
        f"accessibility {report.accessibility}, performance {report.performance}, machine {report.machine}\n"
    )
    sys.stdout.writelines(f"  {cost}\n" for cost in report.costs)
