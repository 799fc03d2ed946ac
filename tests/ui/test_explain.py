"""Explain: the way of an item through the stages, in words, with what to do next."""

from __future__ import annotations

import re

from playwright.async_api import Browser, Page, expect

from tests.ui import axe
from tests.ui.harken_process import HarkenProcess

ORDERS = """name: orders
trigger: {webhook: {id: orders, scheme: none, allow_unsigned: true, id_field: id, subject_field: order}}
steps:
  - {id: note, action: transform, set: {text: hi}}
"""


async def test_a_filtered_event_a_missing_one_and_a_time_are_explained(
    shared_page: Page, shared_harken: HarkenProcess
) -> None:
    page = shared_page
    await shared_harken.send("deploys", id="explain-1", service="search", title="not ours")
    await page.goto("/explain")
    await expect(page.get_by_text("Ask about something that should have happened.")).to_be_visible()
    await page.get_by_label("Key, subject or #event").fill("explain-1")
    await page.get_by_role("button", name="Explain", exact=True).click()
    await expect(page).to_have_url("/explain?key=explain-1")
    answer = page.get_by_role("region", name="Answer of deploys")
    await expect(answer.get_by_text("Condition: filtered")).to_be_visible()
    await expect(answer.get_by_text('event.service == "checkout" is false').first).to_be_visible()
    await expect(answer.get_by_role("button", name="harken events replay")).to_be_visible()
    await page.get_by_label("Key, subject or #event").fill("explain-9")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("No event is stored under exactly explain-9.")).to_be_visible()
    await page.get_by_label("Trigger").select_option("deploys")
    await page.get_by_role("button", name="Explain", exact=True).click()
    await expect(answer.get_by_text("Read: never seen")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_text("No event is stored under exactly explain-9.")).to_be_visible()
    await page.goto("/explain?trigger=deploys&key=2026-01-01T10:00:00Z")
    await expect(page.get_by_label("or a time")).to_have_value(re.compile(r"^202[56]-\d\d-\d\dT\d\d:\d\d$"))
    await expect(answer.locator(".answer")).to_be_visible()


async def test_it_is_accessible(shared_page: Page, shared_harken: HarkenProcess) -> None:
    await shared_harken.send("deploys", id="explain-2", service="search")
    await axe.check(shared_page, {"/explain?trigger=deploys&key=explain-2": ".answer"})


async def test_what_a_service_calls_a_thing_is_found_also_as_the_subject_of_events(
    page: Page, harken: HarkenProcess
) -> None:
    harken.write({"workflows/orders.yaml": ORDERS})
    await harken.call("POST", "/api/reload", {})
    await harken.send("orders", id="delivery-1", order="ORD-7")
    await page.goto("/explain?key=ORD-7")
    await expect(page.get_by_role("region", name="Answer of orders").get_by_text("Run: fired")).to_be_visible()
    await page.goto("/explain?key=ORD-8")
    await expect(page.get_by_text("No event is stored under exactly ORD-8.")).to_be_visible()


async def test_a_time_is_typed_in_the_zone_that_the_page_shows(browser: Browser, shared_harken: HarkenProcess) -> None:
    page = await browser.new_page(base_url=shared_harken.url, timezone_id="Asia/Tokyo")
    try:
        await page.goto("/explain?trigger=deploys")
        for zone, asked, other in (("GMT+9", "01%3A30", "UTC"), ("UTC", "10%3A30", "local time")):
            await page.get_by_label(f"or a time, {zone}").fill("2026-01-01T10:30:00")
            await page.get_by_role("button", name="Explain", exact=True).click()
            await expect(page).to_have_url(re.compile(f"key=2026-01-01T{asked}"))
            await expect(page.get_by_label(f"or a time, {zone}")).to_have_value("2026-01-01T10:30")
            await page.get_by_title(f"Show times in {other}").click()
        await page.goto("/explain?key=2026-01-01T10:00:00Z")
        await expect(page.get_by_text("Which trigger should have run then?")).to_be_visible()
    finally:
        await page.close()
