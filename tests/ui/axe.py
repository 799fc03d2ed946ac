"""axe-core in a page: what stands in the way of people who cannot see it or use a mouse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from playwright.async_api import Page, expect

from tests.downloads import node_programs

__all__ = ["check", "findings"]

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = (1280, 390)
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


async def findings(page: Page) -> list[str]:
    """One line for each finding: the rule, and where."""
    source = (node_programs.recordings("axe-core") / "axe.min.js").read_text()
    # through the debugger, which the page's policy does not concern
    await page.evaluate(source)
    found: Any = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


async def check(page: Page, views: Mapping[str, str]) -> None:
    """Each address, as soon as it has what the selector names, has no finding in both themes and at both widths.

    Two looks are enough for that; which theme is with which width changes from address to address.
    """
    for number, (address, ready) in enumerate(views.items()):
        await page.goto(address)
        for theme, width in zip(THEMES, WIDTHS if number % 2 else reversed(WIDTHS), strict=True):
            await page.set_viewport_size({"width": width, "height": 844})
            await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            await expect(page.locator(ready).first).to_be_visible()
            # charts and lists learn of another width with the next frame
            await page.evaluate(TWO_FRAMES)
            assert await findings(page) == [], (address, theme, width)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, (address, width)
