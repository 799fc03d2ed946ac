"""What every page has: addresses, keys, a stream that tabs share, and a server that may go away."""

from __future__ import annotations

import time

import pytest
from playwright.async_api import BrowserContext, Page, Route, expect

from tests.ui.harken_process import HarkenProcess

MOST_SECONDS = 5.0
WATCH = """() => {
  const watched = (window.watched = { at: 0, late: 0 });
  let before = performance.now();
  setInterval(() => {
    const now = performance.now();
    watched.late = Math.max(watched.late, now - before - 100);
    before = now;
  }, 100);
  const look = () => { if (!watched.at && document.querySelector(".banner")) watched.at = Date.now(); };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
}"""
"""Notes when the banner comes, and how late this machine is with the page's timers."""
NEXT_PING = """() => new Promise((done) => {
  const real = window.fetch;
  window.fetch = (address, options) => {
    if (address !== "/health") return real(address, options);
    window.fetch = real;
    return real(address, options).finally(() => setTimeout(done, 60));
  };
})"""
ANSWER = """async () => {
  const main = document.querySelector("script[type=module]").src;
  (await import(main.replace("main.js", "connection.js"))).noteAnswer();
}"""


async def seconds_to_banner(page: Page, away: float) -> float:
    """How long after `away` the banner came, without what the machine was late."""
    await expect(page.get_by_text("Harken does not answer.")).to_be_visible()
    watched = await page.evaluate("window.watched")
    return float(watched["at"] - watched["late"]) / 1000 - away


async def open_overview(page: Page) -> None:
    await page.goto("/")
    await expect(page.locator("h1.verdict")).to_be_visible()


async def test_an_address_keeps_its_choices_through_reload_and_back(shared_page: Page) -> None:
    page = shared_page
    await page.goto("/?span=24h")
    chosen = page.get_by_role("tab", selected=True)
    await expect(chosen).to_have_text("24 h")
    await page.get_by_role("tab", name="30 days").click()
    await expect(page).to_have_url("/?span=30d")
    await page.reload()
    await expect(chosen).to_have_text("30 days")
    await page.go_back()
    await expect(chosen).to_have_text("24 h")
    await page.go_forward()
    await expect(chosen).to_have_text("30 days")


async def test_an_address_without_a_page_says_so(shared_page: Page) -> None:
    page = shared_page
    await page.goto("/no/such/page")

    await expect(page.get_by_text("There is no page at this address.")).to_be_visible()


async def test_keys_open_the_help_and_the_palette_and_go_to_pages(shared_page: Page) -> None:
    page = shared_page
    await page.goto("/no/such/page")
    await expect(page.get_by_text("There is no page at this address.")).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox").fill("utc")
    await expect(page.get_by_role("option")).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.keyboard.press("g")
    await page.keyboard.press("o")
    await expect(page.locator("h1.verdict")).to_be_visible()
    await expect(page).to_have_url("/")


async def test_two_tabs_share_one_stream_and_the_second_goes_on_when_the_first_is_closed(
    window: BrowserContext, harken: HarkenProcess
) -> None:
    streams: list[str] = []
    window.on("request", lambda request: streams.append(request.url) if "/api/live" in request.url else None)
    first, second = await window.new_page(), await window.new_page()
    await open_overview(first)
    await expect(first.get_by_text("live", exact=True)).to_be_visible()
    await open_overview(second)
    await expect(second.get_by_text("live", exact=True)).to_be_visible()
    await harken.send("deploys", id="d-1", service="checkout", title="one")
    for tab in (first, second):
        await expect(tab.get_by_text("d-1").first).to_be_visible()
    assert len(streams) == 1
    await first.close()
    await harken.send("deploys", id="d-2", service="checkout", title="two")
    await expect(second.get_by_text("d-2").first).to_be_visible()
    assert len(streams) == 2


async def test_the_page_says_that_the_server_is_away_keeps_what_was_typed_and_goes_on_by_itself(
    page: Page, harken: HarkenProcess
) -> None:
    await open_overview(page)
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    # what is only loaded when it is needed has come
    await expect(page.locator(".uplot")).to_be_visible()
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox").fill("typed")
    await page.evaluate(WATCH)
    away = time.time()
    await harken.stop()
    assert await seconds_to_banner(page, away) <= MOST_SECONDS
    banner = page.get_by_text("Harken does not answer.")
    await expect(page.get_by_text("stale since")).to_be_visible()
    await harken.start()
    await expect(banner).to_have_count(0)
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    await expect(page.get_by_role("combobox")).to_have_value("typed")


@pytest.mark.parametrize(
    ("part", "path", "shown"), [("pages/integrations", "/integrations", "h1"), ("components/chart", "/", ".uplot")]
)
async def test_a_part_that_could_not_be_loaded_comes_when_the_server_answers(
    page: Page, harken: HarkenProcess, part: str, path: str, shown: str
) -> None:
    failed: list[str] = []

    async def fail_once(route: Route) -> None:
        if failed:
            await route.continue_()
        else:
            failed.append(route.request.url)
            await route.abort()

    await page.route(f"**/{part}.js", fail_once)
    await harken.send("deploys", id="d-1", service="checkout")
    await page.goto(path)
    # on a busy machine more may be missing, and a page loads itself anew once a minute
    await expect(page.locator(shown).first).to_be_visible(timeout=150_000)
    assert len(failed) == 1


async def test_a_server_that_hangs_is_away_too(page: Page, harken: HarkenProcess) -> None:
    await open_overview(page)
    await page.evaluate(WATCH)
    await page.evaluate(NEXT_PING)
    away = time.time()
    harken.freeze()
    # the worst moment: the last answer comes shortly after the page looked when it had the last one
    await page.evaluate(ANSWER)
    assert await seconds_to_banner(page, away) <= MOST_SECONDS
    banner = page.get_by_text("Harken does not answer.")
    harken.thaw()
    await expect(banner).to_have_count(0)


async def test_a_stranger_signs_in_with_a_token_and_sees_no_button_that_it_may_not_press(
    page: Page, harken: HarkenProcess
) -> None:
    made = await harken.call("POST", "/api/tokens", {"name": "looker", "role": "viewer"})
    await harken.send("broken", id="b-1", title="not a number")
    await harken.stop()
    harken.write({"harken.yaml": "metrics: {enabled: false}\nserver: {require_tokens: true}\n"})
    await harken.start()
    await page.goto("/")
    await page.get_by_label("Token").fill("hkn_wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    await page.get_by_label("Token").fill(made["token"])
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_text("One thing needs you")).to_be_visible()
    await expect(page.get_by_text("looker")).to_be_visible()
    await expect(page.get_by_role("button", name="Retry 1 run")).to_have_count(0)
