"""Much of everything: 10,000 events a minute, many tabs, long lists, large payloads.

What is measured is work, and never how late it is. In `make test` the events come for thirty seconds, in
`make soak` for five minutes.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from urllib.parse import parse_qs, urlsplit

import aiohttp
import msgspec
from playwright.async_api import BrowserContext, CDPSession, Page, expect

from tests.soak import SOAK, larger
from tests.ui.harken_process import HarkenProcess
from tests.ui.test_events import SHOWN_IDS, stored_ids
from tests.ui.test_runs import newest_run

PER_SECOND = 10_000 / 60
SECONDS = larger(__file__, 15)
"""How long events come before the pause, and how long during it."""
AT_ONCE = 16
KEPT = 5_000
"""So many events a page keeps."""
MOST_ELEMENTS = 1_500
MOST_HEAP = 64_000_000

LISTS = {"/api/events", "/api/runs", "/api/triggers", "/api/dead"}
LONG_NAMES = {
    "announce-checkout-deployments": """
name: announce-checkout-deployments
trigger:
  webhook: {id: deployments-of-checkout, scheme: none, allow_unsigned: true, id_field: id}
  condition: event.n < 9
steps:
  - {id: note, action: transform, set: {text: "{{.trigger.event.title}}"}}
""",
    "nightly-database-backups": """
name: nightly-database-backups
trigger:
  webhook: {id: nightly-database-backups, scheme: none, allow_unsigned: true, id_field: id}
steps:
  - {id: first-file, action: transform, set: {first: "{{index .trigger.event.files 0}}"}}
""",
}

BULKY = """
name: bulky
trigger:
  webhook: {id: bulky, scheme: none, allow_unsigned: true, id_field: id, max_bytes: 20000000}
steps:
  - {id: copy, action: transform, set: {copy: "{{.trigger.event.blob}}"}}
"""
LONG_LIST = """async () => {
  const main = document.querySelector("script[type=module]").src;
  const load = (path) => import(main.replace("main.js", path));
  const { html, render } = await load("vendor/preact.js");
  const { VirtualList } = await load("components/virtual_list.js");
  const rows = Array.from({ length: 100_000 }, (_, at) => ({ id: `row-${at}` }));
  const place = document.querySelector("main");
  render(null, place);
  const id = (row) => row.id;
  render(html`<${VirtualList} rows=${rows} height=${40} keyOf=${id} label="Long" row=${id} />`, place);
  const list = place.querySelector(".virtual");
  const drawn = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  let most = 0, blank = 0, frames = 0;
  for (let top = 0; top <= 4_000_000 - 700; top += 66_666) {
    list.scrollTop = top;
    await drawn();
    frames += 1;
    const shown = [...list.querySelectorAll(".virtual-row")];
    most = Math.max(most, shown.length);
    const wanted = Math.floor(list.scrollTop / 40);
    if (!shown.some((row) => row.textContent === `row-${wanted}`)) blank += 1;
  }
  return { most, blank, frames, rows: rows.length };
}"""


class Meter:
    """What a page uses from `start` on."""

    def __init__(self, page: Page, session: CDPSession) -> None:
        self._page = page
        self._session = session

    @classmethod
    async def start(cls, page: Page) -> Meter:
        session = await page.context.new_cdp_session(page)
        # of the thread, and not of the clock, which goes on while others have the processor
        await session.send("Performance.enable", {"timeDomain": "threadTicks"})
        return cls(page, session)

    async def read(self) -> dict[str, float]:
        """The CPU seconds of its tasks, the bytes of its heap after collection, its elements."""
        metrics = await self._metrics()
        await self._session.send("HeapProfiler.collectGarbage")
        heap = (await self._metrics())["JSHeapUsedSize"]
        elements = await self._page.evaluate("document.querySelectorAll('*').length")
        return {"cpu": metrics["TaskDuration"], "heap": heap, "elements": elements}

    async def _metrics(self) -> dict[str, float]:
        metrics = (await self._session.send("Performance.getMetrics"))["metrics"]
        return {one["name"]: one["value"] for one in metrics}


def note_requests(page: Page) -> list[str]:
    """The addresses that the page asks for from now on.

    A browser forgets the bodies of answers with the page that had them, so who weighs one asks for it again."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    return asked


async def answer_to(address: str) -> bytes:
    async with aiohttp.ClientSession() as client, client.get(address) as answer:
        assert answer.status == 200, address
        return await answer.read()


async def burst(harken: HarkenProcess, name: str) -> None:
    """10,000 events a minute, for SECONDS; later if this machine is busy."""
    total = round(PER_SECOND * SECONDS)
    began = time.monotonic()
    async with aiohttp.ClientSession(harken.url) as client:

        async def send(number: int) -> None:
            event = {"id": f"{name}-{number}", "service": "checkout" if number % 3 else "search"}
            async with client.post("/webhooks/generic/deploys", json=event) as answer:
                assert answer.status < 300, await answer.text()

        for start in range(0, total, AT_ONCE):
            await asyncio.gather(*(send(number) for number in range(start, min(total, start + AT_ONCE))))
            await asyncio.sleep(max(0.0, start / PER_SECOND - (time.monotonic() - began)))


async def test_of_10_000_events_a_minute_none_is_missing_and_memory_stays(page: Page, harken: HarkenProcess) -> None:
    meter = await Meter.start(page)
    await page.goto("/events")
    await expect(page.get_by_text("No events yet.")).to_be_visible()
    await burst(harken, "live")
    stored = await stored_ids(harken)
    await expect(page.get_by_text(f"{min(KEPT, len(stored)):,} events")).to_be_visible()
    assert await page.evaluate(SHOWN_IDS) == stored[-KEPT:]
    before = await meter.read()
    await page.get_by_role("button", name="Pause").click()
    await burst(harken, "paused")
    stored = await stored_ids(harken)
    await expect(page.get_by_text(f"+{round(PER_SECOND * SECONDS):,} waiting")).to_be_visible()
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_text(f"{min(KEPT, len(stored)):,} events")).to_be_visible()
    await expect(page.locator(".virtual-row").first).to_contain_text(f"#{stored[-1]}")
    assert await page.evaluate(SHOWN_IDS) == stored[-KEPT:]
    after = await meter.read()

    assert max(before["elements"], after["elements"]) < MOST_ELEMENTS
    assert after["heap"] < MOST_HEAP
    # twice as many rows before the page is full, and no more from then on
    assert after["heap"] < before["heap"] * (1.3 if SOAK else 2.5) + 4_000_000


async def test_the_ninth_tab_opens_no_stream_and_works_less_than_a_second(
    window: BrowserContext, harken: HarkenProcess
) -> None:
    for number in range(50):
        await harken.send("deploys", id=f"d-{number}", service="checkout")
    asked: list[str] = []
    window.on("request", lambda request: asked.append(request.url))
    for number in range(8):
        tab = await window.new_page()
        await tab.goto("/events" if number % 2 else "/")
        await expect(tab.get_by_text("live", exact=True).first).to_be_visible()
    asked.clear()
    ninth = await window.new_page()
    meter = await Meter.start(ninth)
    await ninth.goto("/")
    await expect(ninth.get_by_text("Everything is all right")).to_be_visible()
    await expect(ninth.get_by_text("done in").first).to_be_visible()
    await expect(ninth.get_by_text("live", exact=True).first).to_be_visible()
    used = await meter.read()

    assert [url for url in asked if url.endswith("/api/live")] == [], "the first tab reads it for all"
    assert len([url for url in asked if "/api/" in url]) < 120, "nine tabs together, while one opens"
    assert used["cpu"] < 1.0
    await harken.send("deploys", id="d-last", service="checkout", title="told to all")
    await expect(ninth.get_by_text("told to all")).to_be_visible()


async def test_of_a_run_with_10_MB_only_what_is_asked_for_is_loaded(page: Page, harken: HarkenProcess) -> None:
    harken.write({"workflows/bulky.yaml": BULKY})
    await harken.call("POST", "/api/reload", {})
    await harken.send("bulky", id="b-1", blob="0123456789" * 1_000_000)
    run = await newest_run(harken, "bulky", "done")
    asked = note_requests(page)
    meter = await Meter.start(page)
    await page.goto(f"/runs/{run}?step=copy")
    load = page.get_by_role("button", name="Load").first
    await expect(load).to_be_visible()
    sizes = {address: len(await answer_to(address)) for address in asked if f"/api/runs/{run}" in address}
    assert sizes
    assert max(sizes.values()) < 20_000, "what is large is not in the first answer"
    assert (await meter.read())["cpu"] < 1.0

    await load.click()
    await expect(page.locator(".json-value").first).to_contain_text("0123456789")
    assert (await meter.read())["elements"] < MOST_ELEMENTS, "and is cut where it is shown"


async def test_100_000_rows_scroll_without_a_blank_and_few_of_them_exist(shared_page: Page) -> None:
    await shared_page.goto("/settings?tab=you")
    await expect(shared_page.locator("#you")).to_be_visible()
    meter = await Meter.start(shared_page)
    found = await shared_page.evaluate(LONG_LIST)
    used = (await meter.read())["cpu"]

    assert found["rows"] == 100_000
    assert found["blank"] == 0
    assert found["most"] < 60
    assert used / found["frames"] < 0.05, "a frame takes at most 50 ms of CPU"


async def test_reload_back_and_forward_keep_filter_selection_and_place(page: Page, harken: HarkenProcess) -> None:
    for number in range(90):
        await harken.send("deploys", id=f"d-{number}", service="checkout", size=number)
    await page.goto("/events?where=data.size+<+80")
    rows = page.locator(".virtual-row")
    await expect(page.get_by_text("80 events")).to_be_visible()
    await page.locator(".virtual").evaluate("list => { list.scrollTop = 1500 }")
    await expect(rows.get_by_text("#50", exact=True)).to_be_visible()
    await rows.filter(has_text="#50").click()
    await expect(page.get_by_role("region", name="The chosen event")).to_be_visible()

    async def is_as_it_was() -> None:
        await expect(page.get_by_label("Filter, in CEL")).to_have_value("data.size < 80")
        await expect(page.locator(".virtual-row[aria-selected=true]")).to_contain_text("#50")
        assert await page.locator(".virtual").evaluate("list => list.scrollTop") == 1500

    await page.wait_for_function("() => JSON.stringify(history.state).includes('1500')")
    await page.reload()
    await expect(page.get_by_text("80 events")).to_be_visible()
    await is_as_it_was()
    await page.get_by_role("link", name="Runs", exact=True).click()
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    await page.go_back()
    await is_as_it_was()
    await page.go_forward()
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()


async def test_a_row_of_a_list_is_at_most_400_bytes(page: Page, harken: HarkenProcess) -> None:
    harken.write({f"workflows/{name}.yaml": text for name, text in LONG_NAMES.items()})
    await harken.call("POST", "/api/reload", {})
    for number in range(12):
        title = f"The deployment {number} of the checkout service was rolled back"
        await harken.send("deployments-of-checkout", id=f"deployment-2026-11-18-{number}", n=number, title=title)
        await harken.send("nightly-database-backups", id=f"backup-2026-11-18-{number}", files=[], title=title)
    await newest_run(harken, "announce-checkout-deployments", "done")
    await newest_run(harken, "nightly-database-backups", "dead")
    asked = note_requests(page)
    for address in ("/", "/events", "/runs", "/triggers", "/dead"):
        await page.goto(address)
        await expect(page.locator(".virtual-row, .feed-list li").first).to_be_visible()
    lists = [address for address in asked if is_list(address)]
    assert {urlsplit(address).path for address in lists} == LISTS
    for address in lists:
        body = await answer_to(address)
        rows = msgspec.json.decode(body)["items"]
        assert rows
        assert len(body) / len(rows) <= 400, (address, rows[0])


def is_list(address: str) -> bool:
    """Whether it is a page of a list, and not a look at whether there is anything newer."""
    parts = urlsplit(address)
    asked = parse_qs(parts.query)
    return parts.path in LISTS and asked.get("limit") != ["1"] and "after" not in asked


async def test_what_a_list_sends_is_compressed_and_the_same_as_uncompressed(harken: HarkenProcess) -> None:
    for number in range(20):
        await harken.send("deploys", id=f"d-{number}", service="checkout", title="checkout was deployed once more")
    path = "/api/events?limit=50"
    headers = {"Accept-Encoding": "gzip"}
    async with (
        aiohttp.ClientSession(harken.url, auto_decompress=False) as client,
        client.get(path, headers=headers) as answer,
    ):
        sent = await answer.read()
    assert answer.headers["Content-Encoding"] == "gzip"
    rows = msgspec.json.decode(gzip.decompress(sent))["items"]
    assert rows == (await harken.call("GET", path))["items"]
    assert len(sent) / len(rows) <= 100
