"""Pages that need no history: axe finds nothing, in both themes and at both widths, and nothing is cut off."""

from __future__ import annotations

from itertools import product
from typing import Literal

import pytest
from playwright.async_api import Browser, expect

from tests.ui import axe
from tests.ui.harken_process import HarkenProcess

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PAGES = {
    "/workflows": "Workflows",
    "/workflows/deploys": "deploys",
    "/integrations": "Integrations",
    "/tickets": "Tickets",
    "/settings": "Settings",
    "/settings?tab=tokens": "Settings",
    "/settings?tab=audit": "Settings",
    "/settings?tab=configuration": "Settings",
    "/settings?tab=you": "Settings",
}


@pytest.mark.parametrize(("theme", "width"), list(product(THEMES, (1280, 390))))
async def test_axe_finds_nothing(
    theme: Literal["light", "dark"], width: int, browser: Browser, shared_harken: HarkenProcess
) -> None:
    context = await browser.new_context(
        base_url=shared_harken.url,
        viewport={"width": width, "height": 844},
        color_scheme=theme,
        reduced_motion="reduce",
    )
    page = await context.new_page()
    for path, heading in PAGES.items():
        await page.goto(path)
        await expect(page.get_by_role("heading", level=1, name=heading)).to_be_visible()
        await expect(page.locator(".spinner")).to_have_count(0)
        assert await axe.findings(page) == [], path
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} is cut off at the side"
    await context.close()
