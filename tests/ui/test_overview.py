"""The overview: is everything all right, what needs a person, and what happened."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Literal

from playwright.async_api import Browser, Page, expect

from tests.ui import axe
from tests.ui.conftest import PATIENCE_MS
from tests.ui.harken_process import HarkenProcess

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def test_all_is_right_until_a_run_dies_and_again_after_it_is_dealt_with(
    page: Page, harken: HarkenProcess
) -> None:
    await page.goto("/")
    await expect(page.get_by_text("Everything is all right")).to_be_visible()
    await expect(page.get_by_text("No events yet.")).to_be_visible()
    await expect(page.get_by_text("0 events, 0 runs done, 0 failed; each bar is 10 s.", exact=True)).to_be_visible()
    await harken.send("broken", id="b-1", title="not a number")
    await expect(page.get_by_text("One thing needs you")).to_be_visible()
    attention = page.get_by_role("region", name="Needs you")
    await expect(attention.get_by_text("1 dead run")).to_be_visible()
    await attention.get_by_role("button", name="Retry 1 run").click()
    await expect(page.get_by_text("The dead runs of broken are tried again")).to_be_visible()


async def test_a_paused_trigger_is_resumed_by_its_button(page: Page, harken: HarkenProcess) -> None:
    await harken.call("POST", "/api/triggers/deploys/pause", {"reason": "moving house"})
    await page.goto("/")
    await expect(page.get_by_text("Nothing needs you; one trigger is not quite right")).to_be_visible()
    others = page.get_by_role("region", name="Not quite right")
    await expect(others.get_by_text("paused by a person: moving house")).to_be_visible()
    await expect(page.get_by_role("region", name="Needs you")).to_have_count(0)
    await page.get_by_role("button", name="Resume", exact=True).click()
    await expect(page.get_by_text("deploys is resumed")).to_be_visible()
    await expect(page.get_by_text("Everything is all right")).to_be_visible()


async def test_events_and_runs_appear_as_they_happen_with_why_not(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    await harken.send("deploys", id="d-1", service="checkout", title="first deploy")
    await harken.send("deploys", id="d-2", service="search", title="<img src=x onerror=alert(1)>\u202e")
    events, runs = page.get_by_role("region", name="What came in"), page.get_by_role("region", name="What ran")
    await expect(events.get_by_role("listitem")).to_have_count(2)
    await expect(events.get_by_text("deploys ran")).to_be_visible()
    await expect(events.get_by_text('event.service == "checkout" is false')).to_be_visible()
    await expect(events.get_by_text("<img src=x onerror=alert(1)>·")).to_be_visible()
    await expect(runs.get_by_text("done in")).to_be_visible()
    await expect(page.get_by_text("2 events, 1 run done, 0 failed")).to_be_visible()
    # the choice says 30 minutes, and the chart of a new Harken has less
    await expect(page.get_by_text(re.compile(r"Nothing happened before [\d:]+, where the chart"))).to_be_visible()


REDRAWN = """() => {
  window.redrawn = 0;
  const watch = new MutationObserver(() => (window.redrawn += 1));
  watch.observe(document.querySelector(".feed-list"), { subtree: true, childList: true, characterData: true });
  const draw = CanvasRenderingContext2D.prototype.clearRect;
  CanvasRenderingContext2D.prototype.clearRect = function (...box) {
    window.redrawn += 1;
    return draw.apply(this, box);
  };
}"""
"""Counts how often the chart or the newest events are drawn again."""


async def test_nothing_is_drawn_again_only_because_time_goes_on(page: Page, harken: HarkenProcess) -> None:
    await harken.send("deploys", id="d-1", service="checkout", title="first deploy")
    await page.clock.install()
    await page.goto("/")
    await expect(page.get_by_text("1 event, 1 run done, 0 failed")).to_be_visible()
    await expect(page.locator(".uplot")).to_be_visible()
    # what is looked at every five seconds stays as it is
    await page.route("**/api/**", lambda route: route.abort())
    await page.evaluate(REDRAWN)
    await page.clock.run_for(30_000)
    assert await page.evaluate("window.redrawn") == 0


INVOICES = """name: invoices
trigger: {webhook: {id: invoices, scheme: none, allow_unsigned: true, id_field: id}}
steps:
  - {id: pay, action: approve, prompt: "Pay it?"}
"""


async def test_what_waits_is_held_and_is_dead_is_one_click_away(page: Page, harken: HarkenProcess) -> None:
    harken.write({"workflows/invoices.yaml": INVOICES})
    await harken.call("POST", "/api/reload", {})
    await harken.call("POST", "/api/triggers/deploys/pause", {})
    await harken.send("invoices", id="i-1")
    await harken.send("deploys", id="d-1", service="checkout")
    await harken.send("broken", id="b-1")
    for name, address in (
        ("1 waits for something", "/runs?status=waiting"),
        ("Held", "/runs?status=held"),
        ("Dead letters", "/dead"),
    ):
        await page.goto("/")
        await page.locator(".tiles").get_by_role("link", name=name).click()
        await expect(page.locator(".virtual-row")).to_have_count(1)
        assert page.url == harken.url + address


async def test_what_a_credential_may_ask_for_is_told_of_its_account(page: Page, harken: HarkenProcess) -> None:
    settings = {
        "metrics": {"enabled": False},
        "integrations": {"status-page": {"kind": "json", "allow_private_networks": True}},
        "feeds": {"news": {"integration": "status-page", "query": {"url": "http://127.0.0.1:1/", "items_path": "x"}}},
    }
    flow = "name: triage\ntrigger: {feed: news}\nsteps:\n  - {id: note, action: transform, set: {text: hi}}\n"
    harken.write({"harken.yaml": json.dumps(settings), "workflows/triage.yaml": flow})
    await harken.call("POST", "/api/reload", {})
    await page.goto("/")
    budgets = page.get_by_role("region", name="Budgets per credential")
    await expect(budgets.get_by_text("status-page", exact=True)).to_be_visible()


async def test_after_an_absence_it_tells_what_happened_since(page: Page, harken: HarkenProcess) -> None:
    await page.add_init_script("localStorage['harken.last_visit'] ??= String(Date.now() - 3 * 3600_000)")
    await harken.send("deploys", id="d-1", service="checkout")
    await page.goto("/")

    await expect(page.get_by_text("Since you were here 3 h ago: 1 event")).to_be_visible()


async def test_it_is_accessible_in_both_themes_and_at_both_widths(page: Page, harken: HarkenProcess) -> None:
    await harken.send("deploys", id="d-1", service="checkout", title="first deploy")
    await harken.send("broken", id="b-1", title="not a number")
    for theme, width in zip(THEMES, (390, 1280), strict=True):
        await page.set_viewport_size({"width": width, "height": 844})
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        await page.goto("/")
        await expect(page.get_by_text("One thing needs you")).to_be_visible()
        await expect(page.locator(".chart canvas")).to_be_visible()

        assert await axe.findings(page) == [], (theme, width)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, "nothing is cut off at the side"
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert await axe.findings(page) == [], (theme, width)


async def test_the_demo_opens_on_it_and_tells_what_to_do_next(browser: Browser) -> None:
    command = [sys.executable, "-m", "harken.cli", "demo", "--port", "0"]
    demo = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert demo.stdout is not None
    address = re.search(rb"http://127\.0\.0\.1:\d+", await demo.stdout.readline())
    assert address is not None
    page = await browser.new_page(base_url=address[0].decode())
    page.set_default_timeout(PATIENCE_MS)
    try:
        await page.goto("/")
        await expect(page.get_by_text("a real Harken watches it")).to_be_visible()
        await page.get_by_text("What to do next").click()
        await expect(page.get_by_text("init my-automations")).to_be_visible()
        await expect(page.get_by_text("done in").first).to_be_visible()
    finally:
        await page.close()
        demo.terminate()
        await demo.communicate()
