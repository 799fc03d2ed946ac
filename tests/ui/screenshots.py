"""Photograph every page: `python -m tests.ui.screenshots` writes docs/screenshots.

`--all DIRECTORY` writes each page in full, at 1280 and 390 pixels in both themes, for whoever wants to look at them.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Browser, Page, async_playwright, expect

from tests.downloads import debian
from tests.ui.conftest import FLAGS
from tests.ui.story import Story, telling

__all__ = ["PAGES", "photograph"]

DOCS = Path(__file__).parents[2] / "docs" / "screenshots"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = (1280, 390)

PAGES: Mapping[str, tuple[str, str]] = {
    "overview": ("/?span=24h", ".chart canvas"),
    "events": ("/events", ".virtual-row"),
    "event": ("/events/EVENT", ".json"),
    "triggers": ("/triggers", ".sparkline"),
    "trigger-new": ("/triggers/new?like=EVENT", ".said"),
    "trigger": ("/triggers/deploys", "#bank-filtered"),
    "trigger-reads": ("/triggers/triage?tab=reads", ".coverage"),
    "trigger-try": ("/triggers/deploys?tab=try", ".editor"),
    "trigger-definition": ("/triggers/deploys?tab=definition", ".editor"),
    "runs": ("/runs", ".virtual-row"),
    "run": ("/runs/RUN?step=words", ".run-steps, #run-part li"),
    "run-waits": ("/runs/WAITING", "h1"),
    "run-dead": ("/runs/DEAD", "h1"),
    "explain": ("/explain?trigger=deploys&key=d-401", ".stages"),
    "dead-letters": ("/dead", ".virtual-row"),
    "tickets": ("TICKETS/tickets", ".board a, .board li"),
    "workflows": ("/workflows", "tbody tr"),
    "workflow": ("/workflows/deploys", ".graph-box"),
    "integrations": ("/integrations", "#possible"),
    "settings": ("/settings", "tbody tr"),
    "settings-tokens": ("/settings?tab=tokens", "#tokens"),
    "settings-audit": ("/settings?tab=audit", "#audit"),
    "settings-configuration": ("/settings?tab=configuration", "#running"),
    "settings-you": ("/settings?tab=you", "#you"),
}
"""Where each page is, and what is there when it is complete."""
ALSO = ("overview", "triggers", "run")
"""Pages that docs show also in the dark, and on a phone."""


async def addresses(story: Story) -> dict[str, str]:
    """The ids that stand for words in PAGES."""
    runs = (await story.call("GET", "/api/runs?limit=100"))["items"]
    events = (await story.call("GET", "/api/events?limit=100"))["items"]

    def newest(rows: list[dict[str, Any]], **wanted: str) -> str:
        return next(str(row["id"]) for row in rows if all(row[name] == value for name, value in wanted.items()))

    return {
        "EVENT": newest(events, key="d-416"),
        "RUN": newest(runs, trigger="deploys", status="done"),
        "WAITING": newest(runs, trigger="invoices", status="waiting"),
        "DEAD": newest(runs, trigger="backups", status="dead"),
    }


@asynccontextmanager
async def ticket_demo() -> AsyncIterator[str]:
    """`harken demo tickets`, when its first pull request is ready; yields its address."""
    command = [sys.executable, "-m", "harken.cli", "demo", "tickets", "--port", "0"]
    demo = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert demo.stdout is not None
    said = b""
    while b"a pull request is ready" not in said:
        line = await demo.stdout.readline()
        said += line
        assert line, said.decode()
    address = re.search(rb"http://127\.0\.0\.1:\d+", said)
    assert address is not None, said
    try:
        yield address[0].decode()
    finally:
        demo.terminate()
        await demo.communicate()


async def photograph(page: Page, address: str, ready: str, path: Path, *, full: bool) -> None:
    await page.goto(address)
    await expect(page.locator(ready).first).to_be_visible()
    await page.wait_for_timeout(400)
    await page.screenshot(path=path, full_page=full, animations="disabled", caret="hide")


async def _photograph_all(
    browser: Browser, story: Story, tickets: str, names: list[str], target: Path, *, everything: bool
) -> None:
    ids = await addresses(story) | {"TICKETS": tickets}
    for theme, width in product(THEMES, WIDTHS):
        size: Any = {"width": width, "height": 860 if width > 400 else 844}
        context = await browser.new_context(
            base_url=story.url, viewport=size, color_scheme=theme, reduced_motion="reduce", timezone_id="UTC"
        )
        page = await context.new_page()
        plain = theme == "light" and width == WIDTHS[0]
        chosen = names if everything or plain else [name for name in names if name in ALSO]
        for name in chosen:
            address, ready = PAGES[name]
            for word, id in ids.items():
                address = address.replace(word, id)
            suffix = "" if plain else f"-{theme}" if width == WIDTHS[0] else f"-phone-{theme}"
            if everything or suffix != "-phone-dark":
                await photograph(page, address, ready, target / f"{name}{suffix}.png", full=everything)
        await context.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="DIRECTORY", help="every page in full, in all four forms")
    parser.add_argument("--only", default="", metavar="NAMES", help="some of the pages, separated by commas")
    given = parser.parse_args()
    target = given.all or DOCS
    target.mkdir(parents=True, exist_ok=True)
    names = given.only.split(",") if given.only else list(PAGES)
    program = debian.program("chromium")
    with tempfile.TemporaryDirectory(prefix="acme-") as directory:
        async with telling(Path(directory)) as story, ticket_demo() as tickets, async_playwright() as playwright:
            environment: dict[str, str | float | bool] = {**debian.environment(program)}
            browser = await playwright.chromium.launch(executable_path=program, args=FLAGS, env=environment)
            await _photograph_all(browser, story, tickets, names, target, everything=given.all is not None)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
