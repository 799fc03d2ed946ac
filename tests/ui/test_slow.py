"""What is slow or out of order: no page waits for ever, loses a key, or forgets where somebody was."""

from __future__ import annotations

import asyncio

from playwright.async_api import Page, Route, expect

from tests.ui.harken_process import HarkenProcess
from tests.ui.test_foundation import failing_once, open_overview
from tests.ui.test_runs import newest_run

MODULE = """(path) =>
  import(document.querySelector("script[type=module]").src.replace("main.js", path)).then(() => true)"""
ALWAYS_THERE = """() => {
  const real = window.fetch;
  const there = () => Promise.resolve(new Response("{}"));
  window.fetch = (address, options) => (address === "/health" ? there() : real(address, options));
}"""
"""Signs of life cost no time: none is late while the clock of the page is moved on."""
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
IN_TURN = """async () => {
  const main = document.querySelector("script[type=module]").src;
  const { oneAtATime } = await import(main.replace("main.js", "resource.js"));
  const reads = [];
  const reading = oneAtATime((signal) => new Promise((end) => reads.push({ signal, end })));
  const counts = [];
  const note = () => counts.push([reads.length, reads.filter(({ signal }) => signal.aborted).length]);
  reading.begin(), note();
  reading.unlessReading(), reading.unlessReading(), note();
  const again = [reading.again(), reading.again()];
  note();
  reads[0].end();
  await new Promise((done) => setTimeout(done)), note();
  reads[1].end();
  await Promise.all(again), note();
  reading.unlessReading(), note();
  reading.begin(), note();
  reading.stop(), reads[3].end();
  await new Promise((done) => setTimeout(done)), note();
  return counts;
}"""
"""After each step, how many reads there were, and how many of them were given up."""
PALETTE_AT_ONCE = """async () => {
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true, bubbles: true }));
  for (let turn = 0; turn < 5; turn += 1) await null;
  return [document.querySelector("dialog").open, document.activeElement.getAttribute("role")];
}"""
"""Whether it is open and has the focus before the next picture."""
SCROLL_AND_GO = """async () => {
  const list = document.querySelector(".virtual");
  list.scrollTop = 300;
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  document.querySelector("nav a[href='/workflows']").click();
}"""
SCROLLED = "document.querySelector('.virtual')?.scrollTop"
DEEP = 9_000
"""Pixels down a list: beyond its first page of 100 rows, each 56 high."""


class Held:
    """Answers nothing that is asked for until it is let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.came = asyncio.Event()
        self._go = asyncio.Event()

    async def __call__(self, route: Route) -> None:
        self.asked.append(route.request.url)
        self.came.set()
        await self._go.wait()
        await route.continue_()

    def let_go(self) -> None:
        self._go.set()


async def test_a_page_that_comes_after_somebody_went_on_does_not_take_the_place_of_the_next(page: Page) -> None:
    settings = Held()
    await page.route("**/pages/settings.js", settings)
    await open_overview(page)
    await page.get_by_role("link", name="Settings").click()
    await expect(page.get_by_text("Loading the page…")).to_be_visible()
    await page.go_back()
    await expect(page.locator("h1.verdict")).to_be_visible()
    settings.let_go()
    assert await page.evaluate(MODULE, "pages/settings.js")
    await page.evaluate(TWO_FRAMES)
    assert await page.locator("h1.verdict").count() == 1


async def test_a_page_with_a_chart_is_left_without_an_error(page: Page) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    await open_overview(page)
    await expect(page.locator(".uplot")).to_be_visible()
    await page.get_by_role("link", name="Settings").click()
    await expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    await page.evaluate(TWO_FRAMES)
    assert errors == []


async def test_what_takes_longer_than_the_time_between_two_looks_is_not_asked_for_anew(page: Page) -> None:
    status = Held()
    await page.route("**/api/status", status)
    await page.clock.install()
    await page.goto("/", wait_until="commit")
    await status.came.wait()
    await page.evaluate(ALWAYS_THERE)
    await page.clock.run_for(20_000)
    assert len(status.asked) == 1
    status.let_go()
    await expect(page.locator("h1.verdict")).to_be_visible()


async def test_reads_are_one_at_a_time_and_what_is_wanted_meanwhile_follows_once(shared_page: Page) -> None:
    await shared_page.goto("/settings?tab=you")
    await expect(shared_page.locator("#you")).to_be_visible()
    assert await shared_page.evaluate(IN_TURN) == [
        [1, 0], [1, 0], [1, 0], [2, 0], [2, 0], [3, 0], [4, 1], [4, 2],
    ]  # fmt: skip


async def test_a_key_that_follows_the_one_for_the_palette_at_once_goes_there(shared_page: Page) -> None:
    await shared_page.goto("/settings?tab=you")
    await expect(shared_page.locator("#you")).to_be_visible()
    assert await shared_page.evaluate(PALETTE_AT_ONCE) == [True, "combobox"]


async def test_who_is_there_is_asked_again_when_the_store_was_busy(page: Page) -> None:
    refused: list[str] = []

    async def busy_once(route: Route) -> None:
        if refused:
            await route.continue_()
        else:
            refused.append(route.request.url)
            await route.fulfill(status=503, json={"detail": "the store is busy"})

    await page.route("**/api/me", busy_once)
    await open_overview(page)
    assert len(refused) == 1


async def test_styles_that_were_lost_are_asked_for_again(page: Page) -> None:
    lost: list[str] = []
    await page.route("**/styles.css", failing_once(lost))
    await page.goto("/")
    await page.wait_for_function("() => getComputedStyle(document.querySelector('header.top')).position === 'sticky'")
    assert len(lost) == 1


async def test_back_finds_a_place_below_the_first_page_of_a_list(page: Page, harken: HarkenProcess) -> None:
    for start in range(0, 220, 20):
        await asyncio.gather(*(harken.send("deploys", id=f"d-{start + at}", service="checkout") for at in range(20)))
    await newest_run(harken, "deploys", "done")
    await page.goto("/runs")
    await expect(page.get_by_text("the newest 100 runs")).to_be_visible()
    await page.locator(".virtual").evaluate("list => { list.scrollTop = list.scrollHeight }")
    await expect(page.get_by_text("the newest 200 runs")).to_be_visible()
    await page.locator(".virtual").evaluate(f"list => {{ list.scrollTop = {DEEP} }}")
    await page.wait_for_function(f"() => history.state?.['list.runs']?.top === {DEEP}")
    await page.get_by_role("link", name="Workflows").click()
    await expect(page.get_by_role("heading", name="Workflows")).to_be_visible()
    await page.go_back()
    await page.wait_for_function(f"() => {SCROLLED} === {DEEP}")
    await page.reload()
    await page.wait_for_function(f"() => {SCROLLED} === {DEEP}")


async def test_back_finds_the_place_also_when_somebody_went_on_right_after_scrolling(
    page: Page, harken: HarkenProcess
) -> None:
    await asyncio.gather(*(harken.send("deploys", id=f"d-{at}", service="checkout") for at in range(30)))
    await newest_run(harken, "deploys", "done")
    await page.goto("/runs")
    await expect(page.locator(".virtual-row").nth(12)).to_be_visible()
    await page.evaluate(SCROLL_AND_GO)
    await expect(page.get_by_role("heading", name="Workflows")).to_be_visible()
    await page.go_back()
    await page.wait_for_function(f"() => {SCROLLED} === 300")


async def test_a_page_is_scrolled_to_where_it_was_however_late_its_content_comes(page: Page) -> None:
    await page.goto("/integrations")
    await expect(page.locator("#possible")).to_be_visible()
    await page.evaluate("scrollTo(0, 700)")
    await page.wait_for_function("() => history.state?.scroll === 700")
    services = Held()
    await page.route("**/api/services*", services)
    await page.clock.install()
    await page.reload(wait_until="commit")
    await services.came.wait()
    await page.clock.run_for(10_000)
    services.let_go()
    await page.wait_for_function("() => scrollY === 700")
