"""Tickets: a board by what they show, and of each who was trusted, what it cost, and the pull request."""

from __future__ import annotations

import re

from playwright.async_api import Browser, expect

from tests.ui import axe
from tests.ui.conftest import PATIENCE_MS
from tests.ui.screenshots import ticket_demo


async def test_the_board_has_each_ticket_with_trust_cost_and_pull_request(browser: Browser) -> None:
    async with ticket_demo() as address:
        page = await browser.new_page(base_url=address, viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        try:
            await page.goto("/tickets")
            done = page.get_by_role("region", name="done")
            card = done.get_by_role("listitem").filter(has_text="acme/shop#1")
            await expect(card.get_by_text("label by leo")).to_be_visible()
            await expect(card.get_by_text(re.compile(r"^0\.\d\d USD, [\d,]+ tokens$"))).to_be_visible()
            await expect(card.get_by_role("link", name="Pull request 4")).to_be_visible()
            await done.get_by_role("button", name="acme/shop#1").click()
            ticket = page.get_by_role("dialog", name="acme/shop#1")
            await expect(ticket.get_by_text("leo put the label on, and was trusted")).to_be_visible()
            await expect(ticket.get_by_text(re.compile(r"^0\.\d\d USD, [\d,]+ tokens$"))).to_be_visible()
            made = ticket.get_by_role("link", name="https://github.com/acme/shop/pull/4")
            await expect(made).to_have_attribute("href", "https://github.com/acme/shop/pull/4")
            await expect(ticket.get_by_role("button", name="Retry")).to_be_visible()
            # its run is over: there is nothing to cancel
            await expect(ticket.get_by_role("button", name="Cancel its run")).to_have_count(0)
            assert await axe.findings(page) == []
            await page.reload()
            await expect(ticket.get_by_role("link", name="Open it there")).to_be_visible()
            await page.keyboard.press("Escape")
            await expect(ticket).to_have_count(0)
            refused = page.get_by_role("region", name="failed")
            await expect(refused.get_by_text("an issue form put the label on for eve").first).to_be_visible()
        finally:
            await page.close()
