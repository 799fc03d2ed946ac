"""What every page has: addresses, keys, a stream that tabs share, and a server that may go away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import BrowserContext, Page, Route, expect

from tests.ui.harken_process import HarkenProcess
from tests.ui.test_runs import newest_run

MOST_SECONDS = 5.0
WATCH = """() => {
  const watched = (window.watched = { at: 0, late: 0 });
  let before = performance.now();
  setInterval(() => {
    const now = performance.now();
    if (!watched.at) watched.late += Math.max(0, now - before - 100);
    before = now;
  }, 100);
  const look = () => { if (!watched.at && document.querySelector(".banner")) watched.at = Date.now(); };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
}"""
"""Notes when the banner comes, and how late this machine was with the page's timers until then, all together."""
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


def failing_once(failed: list[str]) -> Callable[[Route], Awaitable[None]]:
    """Lets the first request fail, notes its address, and lets all others through."""

    async def answer(route: Route) -> None:
        if failed:
            await route.continue_()
        else:
            failed.append(route.request.url)
            await route.abort()

    return answer


def hanging_once(hanging: list[Route]) -> Callable[[Route], Awaitable[None]]:
    """Never answers the first request, keeps it, and lets all others through."""

    async def answer(route: Route) -> None:
        if hanging:
            await route.continue_()
        else:
            hanging.append(route)

    return answer


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

    await expect(page.get_by_role("heading", level=1, name="There is no page at this address.")).to_be_visible()


async def test_keys_open_the_help_and_the_palette_and_go_to_pages(shared_page: Page) -> None:
    page = shared_page
    await page.goto("/no/such/page")
    await expect(page.get_by_role("heading", level=1, name="There is no page at this address.")).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox").fill("utc")
    await expect(page.get_by_role("option")).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox").fill("INC-42 again")
    await expect(page.get_by_role("option")).to_have_text(["Explain INC-42 againwhy it ran, or not"])
    await page.keyboard.press("Enter")
    await expect(page).to_have_url("/explain?key=INC-42+again")
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
    # lists are also loaded again when a busy server answers late, so that what is shown does not tell of the stream
    async with second.expect_request("**/api/live"):
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
    ("path", "empty", "shown"),
    [
        ("/", "No runs yet.", "[aria-labelledby=runs] li"),
        ("/runs", "No runs yet.", ".virtual-row"),
        ("/dead", "No dead letters.", ".virtual-row"),
    ],
)
async def test_what_happened_before_the_stream_began_is_shown_too(
    page: Page, harken: HarkenProcess, path: str, empty: str, shown: str
) -> None:
    stored = asyncio.Event()

    async def later(route: Route) -> None:
        await stored.wait()
        await route.continue_()

    await page.route("**/api/live", later)
    await page.goto(path)
    await expect(page.get_by_text(empty)).to_be_visible()
    await harken.send("broken", id="b-1", title="not a number")
    await newest_run(harken, "broken", "dead")
    stored.set()
    await expect(page.locator(shown)).to_have_count(1)


@pytest.mark.parametrize(
    ("part", "path", "shown"), [("pages/integrations", "/integrations", "h1"), ("components/chart", "/", ".uplot")]
)
async def test_a_part_that_could_not_be_loaded_comes_when_the_server_answers(
    page: Page, harken: HarkenProcess, part: str, path: str, shown: str
) -> None:
    failed: list[str] = []
    await page.route(f"**/{part}.js", failing_once(failed))
    await harken.send("deploys", id="d-1", service="checkout")
    await page.goto(path)
    # on a busy machine more may be missing, and a page loads itself anew once a minute
    await expect(page.locator(shown).first).to_be_visible(timeout=150_000)
    assert len(failed) == 1


@pytest.mark.parametrize(
    ("part", "path", "shown"), [("pages/integrations", "/integrations", "h1"), ("components/chart", "/", ".uplot")]
)
async def test_a_part_that_hangs_is_loaded_anew(page: Page, part: str, path: str, shown: str) -> None:
    hanging: list[Route] = []
    await page.route(f"**/{part}.js", hanging_once(hanging))
    await page.clock.install()
    await page.goto(path, wait_until="commit")
    await expect(page.get_by_text("live", exact=True).first).to_be_visible()
    assert await page.locator(shown).count() == 0
    await page.clock.run_for(40_000)
    await expect(page.locator(shown).first).to_be_visible()
    assert len(hanging) == 1


LATE_PART = """async () => {
  const main = document.querySelector("script[type=module]").src;
  const load = (path) => import(main.replace("main.js", path));
  const { html, render } = await load("vendor/preact.js");
  const { lazy } = await load("components/lazy.js");
  let arrive;
  const coming = new Promise((done) => (arrive = done));
  const Part = lazy(() => coming, html`<p>not yet</p>`);
  Part.begin();
  const place = document.querySelector("main");
  render(null, place);
  render(html`<${Part} />`, place);
  // it is drawn, and its effects run after the next picture
  arrive({ default: () => html`<p>here it is</p>` });
}"""


async def test_a_part_that_comes_right_after_it_was_drawn_is_shown(shared_page: Page) -> None:
    await shared_page.goto("/settings?tab=you")
    await expect(shared_page.locator("#you")).to_be_visible()
    await shared_page.evaluate(LATE_PART)
    await expect(shared_page.get_by_text("here it is")).to_be_visible()


async def test_a_page_whose_start_was_lost_loads_itself_anew(page: Page) -> None:
    lost: list[str] = []
    await page.route("**/components/layout.js", failing_once(lost))
    await open_overview(page)
    assert len(lost) == 1


async def test_a_page_whose_start_hangs_loads_itself_anew(page: Page) -> None:
    hanging: list[Route] = []
    await page.route("**/main.js", hanging_once(hanging))
    await page.clock.install()
    await page.goto("/", wait_until="commit")
    await expect(page.get_by_role("link", name="Harken")).to_be_visible()
    await page.clock.run_for(15_000)
    await expect(page.locator("h1.verdict")).to_be_visible()
    assert len(hanging) == 1


async def test_a_page_that_starts_late_is_not_loaded_anew(page: Page) -> None:
    held: dict[str, Route] = {}
    asked_for_health = asyncio.Event()

    async def hold(route: Route) -> None:
        if "health" in route.request.url and "health" not in held:
            held["health"] = route
            asked_for_health.set()
        elif "main.js" in route.request.url and "main" not in held:
            held["main"] = route
        else:
            await route.continue_()

    await page.route("**/main.js", hold)
    await page.route("**/health", hold)
    await page.clock.install()
    await page.goto("/", wait_until="commit")
    await expect(page.get_by_role("link", name="Harken")).to_be_visible()
    await page.clock.run_for(15_000)
    await asked_for_health.wait()
    await held["main"].continue_()
    await expect(page.locator("h1.verdict")).to_be_visible()
    await page.evaluate("window.still = true")
    await held["health"].continue_()
    await expect(page.get_by_text("live", exact=True).first).to_be_visible()
    await page.clock.run_for(10_000)
    assert await page.evaluate("window.still"), "it was loaded anew"


async def test_a_page_whose_start_never_comes_says_so_and_can_be_tried_again(page: Page) -> None:
    opened: list[str] = []
    tried_again = asyncio.Event()
    page.on("framenavigated", lambda frame: opened.append(frame.url))

    async def fail(route: Route) -> None:
        await route.abort()
        if len(opened) == 2:
            tried_again.set()

    await page.route("**/main.js", fail)
    await page.goto("/")
    await tried_again.wait()
    await expect(page.get_by_role("heading", name="This page could not be loaded")).to_be_visible()
    await page.unroute_all()
    await page.get_by_role("button", name="Load it again").click()
    await expect(page.locator("h1.verdict")).to_be_visible()


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
