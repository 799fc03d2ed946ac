"""What a source sends is text on every page: nothing of it is executed, becomes an element, or widens the page."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.ui.harken_process import HarkenProcess
from tests.ui.test_runs import newest_run

CORPUS = {
    "script": "<script>window.hit = 1</script>",
    "image": "<img src=x onerror='window.hit = 2'>",
    "svg": "<svg onload='window.hit = 3'><script>window.hit = 4</script></svg>",
    "frame": "<iframe srcdoc='<script>parent.hit = 5</script>'></iframe>",
    "link": "javascript:window.hit=6",
    "anchor": "<a href='javascript:window.hit=7'>here</a>",
    "attribute": '" onmouseover="window.hit=8" x=\'',
    "style": "</style><style>body { display: none }</style>",
    "template": "${window.hit=9} {{.trigger.event.id}} `",
    "right to left": "\u202e\u2067gnp.exe\u202c\u2069\u200f",
    "control": "a\u0001b\u0007c\u001b[31mred\u007f\u0085",
    "combining": "Z" + "\u0334\u0315" * 400,
    "marks": "Z" + "\u0300\u0301\u0302\u0315\u0334" * 300,
    "wide": "\ufdfd" * 500,
    "long": "x" * 20_000,
}
NAMES = {text[:60]: "as a name" for text in CORPUS.values()}
WIDTHS = (1280, 390)
FOREIGN = (
    "img, iframe, object, embed, main script, main style, a[href^='javascript:'], [onerror], [onload], [onmouseover]"
)
"""Elements and attributes that no page of ours has, so that any of them is a source's."""


WIDER = """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth)
  .map((one) => `${one.tagName}.${one.className} ${one.textContent.slice(0, 40)}`)"""
"""What is wider than the window, if the page can be scrolled to the side."""


async def is_harmless(page: Page, address: str, ready: str) -> None:
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 844})
        await page.goto(address)
        await expect(page.locator(ready).first).to_be_visible()
        assert await page.evaluate("window.hit") is None, (address, width)
        assert await page.locator(FOREIGN).count() == 0, (address, width)
        assert await page.evaluate(WIDER) == [], (address, width)
        assert await page.evaluate("getComputedStyle(document.body).display") != "none", (address, width)


async def send_all(harken: HarkenProcess) -> None:
    for number, text in enumerate(CORPUS.values()):
        await harken.send("deploys", id=f"{number} {text[:300]}", service="checkout", title=text, names=NAMES, **CORPUS)
        await harken.send("deploys", id=f"{number} filtered", service=text, title=text)
        await harken.send("broken", id=f"{number} dead {text[:80]}", title=text, **CORPUS)


async def test_hostile_content_is_text_on_every_page(page: Page, harken: HarkenProcess) -> None:
    opened: list[str] = []
    page.on("dialog", lambda dialog: opened.append(dialog.message))
    page.on("popup", lambda popup: opened.append(popup.url))
    await send_all(harken)
    hostile = " ".join(CORPUS.values())[:300]
    await harken.call("POST", "/api/triggers/deploys/pause", {"reason": hostile.replace("\u0001", "")})
    run, dead = await newest_run(harken, "deploys", "done"), await newest_run(harken, "broken", "dead")
    events = (await harken.call("GET", "/api/events?limit=100"))["items"]
    event = next(row["id"] for row in events if row["key"].startswith("1 "))
    marks = next(row["id"] for row in events if row["key"].endswith(CORPUS["marks"][:300]))
    for address, ready in {
        "/": "#events + * li",
        "/events": ".virtual-row",
        f"/events?selected={event}": ".verdicts",
        f"/events/{event}": ".json",
        f"/events/{marks}": ".json",
        "/triggers": ".sparkline",
        "/triggers/deploys": "#bank-fired + * li",
        "/triggers/deploys?tab=reads": "#gaps",
        "/triggers/deploys?tab=definition": ".editor",
        "/runs": ".virtual-row",
        f"/runs/{run}?step=note": ".step",
        f"/runs/{run}?tab=values": "#run-part h2",
        f"/runs/{run}?tab=events": "#run-part li",
        f"/runs/{dead}": ".run-error",
        f"/runs/{dead}?tab=compare": "#run-part",
        "/explain?trigger=deploys&key=1%20filtered": ".stages",
        f"/dead?selected={dead}": ".letter",
        "/workflows/deploys": ".graph-box",
        "/settings?tab=audit": "#audit",
    }.items():
        await is_harmless(page, address, ready)

    assert opened == []
