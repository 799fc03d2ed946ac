"""Pages that need no history: axe finds nothing, in both themes and at both widths, and nothing is cut off."""

from __future__ import annotations

from playwright.async_api import Page

from tests.ui import axe


async def test_axe_finds_nothing(shared_page: Page) -> None:
    await axe.check(
        shared_page,
        {
            "/workflows": "tbody tr",
            "/workflows/deploys": ".graph-box",
            "/integrations": "#possible",
            "/tickets": ".empty",
            "/settings": "tbody tr",
            "/settings?tab=tokens": "#tokens",
            "/settings?tab=audit": "#audit",
            "/settings?tab=configuration": "#running",
            "/settings?tab=you": "#you",
        },
    )
