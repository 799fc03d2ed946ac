"""The live tail: as it comes, without a gap across a pause, with payloads whose values become filters."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from playwright.async_api import Page, expect

from tests.soak import larger
from tests.ui import axe
from tests.ui.harken_process import HarkenProcess
from tests.ui.test_runs import HOSTILE

BURST = larger(__file__, 120)
SHOWN_IDS = """async () => {
  const list = document.querySelector(".virtual"), ids = new Set();
  for (let top = 0; top <= list.scrollHeight; top += list.clientHeight) {
    list.scrollTop = top;
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
    for (const each of document.querySelectorAll(".row-side .dim")) ids.add(Number(each.textContent.slice(1)));
  }
  list.scrollTop = 0;
  return [...ids].sort((a, b) => a - b);
}"""
CLAUSES = """async ([cases, root]) => {
  const main = document.querySelector("script[type=module]").src;
  const { clauseFor } = await import(main.replace("main.js", "components/clause.js"));
  return cases.map(([path, value]) => clauseFor(path, value ?? (value === null ? null : undefined), root));
}"""
PAYLOAD: dict[str, Any] = {
    "id": "clauses",
    "text": 'quo"te \\ \u00e9 \U0001f600',
    "long": "abc" * 100_000,
    "whole": 3,
    "half": 2.5,
    "yes": True,
    "nothing": None,
    "labels": ["a", "b"],
    "people": [{"name": "Ada"}, {"name": "Bob"}],
    "grid": [[1, 2], [3]],
    "empty": [],
    "at": "2026-11-18T01:00:00Z",
    "in": {"a b": 1},
    "control": "a\nb\tc\u0001",
}
PLACES: list[list[Any]] = [
    ["text"], ["long"], ["whole"], ["half"], ["yes"], ["nothing"], ["labels", 1], ["people", 1, "name"], ["grid", 0, 1],
    ["empty"], ["at"], ["in", "a b"], ["control"],
]  # fmt: skip


ODD = """{"id": "odd", "service": "checkout",
  "numbers": [1234567890123456789, -9223372036854775808, 18446744073709551616, 1e21, 1e17, 5e-324, -0.0, 3.0, 2.5],
  "chat": 1234567890123456789, "above": 9223372036854775808, "large": 1e21, "whole": 100000000000000000.0,
  "times": ["2026-11-18T01:00:00Z", "2026-11-18T01:00Z", "2026-02-30T00:00:00Z", "2026-11-18T24:00:00Z"],
  "no_time": "2026-02-30T00:00:00Z", "minute": "2026-11-18T01:00Z", "day": "2026-11-18",
  "far": "2026-11-18T01:00:00+99:00", "before": "0000-01-01T00:00:00Z", "zone": "2026-11-18T01:00:00.123456789+05:30",
  "nul": "a\\u0000b", "odd": "\\u001b[31m\\u2028\\u202e\\\\\\"'`${x}{{y}}", "empty": "", "nothing": null, "yes": true,
  "grid": [[1, 2], [3]], "people": [{"tags": ["x", "2026-11-18T01:00:00Z"]}, {"name": "Bob"}], "none": {}, "list": [],
  "in": {"a b": 1, "": 2, "0": 3, "quo\\"te": 4, "new\\nline": 5, "if": 6, "__proto__": 7, "size": 8, "a.b": 9}}"""
LEAVES = """async (id) => {
  const main = document.querySelector("script[type=module]").src;
  const { clauseFor } = await import(main.replace("main.js", "components/clause.js"));
  const { get } = await import(main.replace("main.js", "api.js"));
  const found = [];
  const walk = (path, value) => {
    const parts = value !== null && typeof value === "object" ? Object.keys(value) : [];
    if (!parts.length) found.push(clauseFor(path, value));
    for (const part of parts) walk([...path, Array.isArray(value) ? Number(part) : part], value[part]);
  };
  walk([], (await get(`/api/events/${id}`)).data);
  const missing = [["gone"], ["list", 0], ["grid", 1, 1], ["people", 0, "gone"], ["in", "x y"]];
  return [...found, ...missing.map((path) => clauseFor(path, undefined))];
}"""


def value_at(path: list[Any]) -> Any:
    value: Any = PAYLOAD
    for part in path:
        value = value[part]
    return value


async def stored_ids(harken: HarkenProcess) -> list[int]:
    found: list[int] = []
    path = "/api/events?limit=500"
    while True:
        page = await harken.call("GET", path)
        found += [row["id"] for row in page["items"]]
        if page["next"] is None:
            return sorted(found)
        path = f"/api/events?limit=500&cursor={page['next']}"


async def burst(harken: HarkenProcess, name: str) -> None:
    for start in range(0, BURST, 8):
        await asyncio.gather(
            *(harken.send("deploys", id=f"{name}-{start + at}", service="checkout") for at in range(8))
        )


async def test_stored_ids_are_shown_ids_also_across_a_pause(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/events")
    await expect(page.get_by_text("No events yet.")).to_be_visible()
    await burst(harken, "live")
    await expect(page.locator(".virtual-row").first).to_be_visible()
    await page.get_by_role("button", name="Pause").click()
    await burst(harken, "paused")
    # those that came before the pause are shown, the others are counted
    shown = await page.evaluate(SHOWN_IDS)
    stored = await stored_ids(harken)
    assert stored[: len(shown)] == shown
    await expect(page.get_by_text(f"Paused: +{len(stored) - len(shown):,} waiting")).to_be_visible()
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_text(f"{len(stored):,} events")).to_be_visible()
    assert await page.evaluate(SHOWN_IDS) == stored


async def test_a_click_on_a_value_requires_it_and_back_takes_it_away(page: Page, harken: HarkenProcess) -> None:
    await harken.send("deploys", id="d-1", service="checkout", size=3)
    await harken.send("deploys", id="d-2", service="search", title=HOSTILE)
    rows = page.locator(".virtual-row")
    await page.goto("/events")
    await expect(rows).to_have_count(2)
    await page.get_by_label("Filter, in CEL").fill("date.size == 3")
    await expect(page.get_by_text("there is no field date here")).to_be_visible()
    await page.get_by_label("Filter, in CEL").fill("")
    await expect(page).to_have_url("/events")
    await rows.last.click()
    detail = page.get_by_role("region", name="The chosen event")
    await expect(detail.get_by_role("list", name="Verdicts").get_by_text("done")).to_be_visible()
    await detail.get_by_role("button", name="3", exact=True).click()
    await expect(page.get_by_label("Filter, in CEL")).to_have_value("data.size == 3")
    await expect(rows).to_have_count(1)
    await harken.send("deploys", id="d-3", service="checkout", size=3)
    await expect(rows).to_have_count(2)
    await page.go_back()
    await expect(rows).to_have_count(3)
    await page.get_by_role("combobox", name="Verdict").select_option("filtered")
    await expect(rows).to_have_count(1)
    await expect(rows.get_by_text("<img src=x onerror=alert(1)>")).to_be_visible()


async def test_an_event_is_starred_compared_and_replayed(page: Page, harken: HarkenProcess) -> None:
    harken.write({"workflows/states.yaml": STATES})
    await harken.call("POST", "/api/reload", {})
    await harken.send("states", id="s-1", about="door", size=1, gone="x")
    await harken.send("states", id="s-2", about="door", size=2)
    newest = (await stored_ids(harken))[-1]
    await page.goto(f"/events/{newest}?view=changes")
    await expect(page.get_by_role("row", name=re.compile(r"data.size 1 2"))).to_be_visible()
    await page.get_by_role("button", name="missing").click()
    await expect(page.get_by_text("!has(data.gone)")).to_be_visible()
    await page.get_by_role("button", name="☆ Star").click()
    await expect(page.get_by_role("button", name="★ Unstar")).to_be_visible()
    await page.get_by_role("button", name="Replay", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    await expect(page).to_have_url(re.compile("/runs/"))


STATES = """
name: states
trigger:
  webhook: {id: states, scheme: none, allow_unsigned: true, id_field: id, subject_field: about}
steps:
  - {id: note, action: transform, set: {text: noted}}
"""


async def test_clauses_of_clicks_have_the_right_type_and_are_true_for_their_event(
    shared_page: Page, shared_harken: HarkenProcess
) -> None:
    await shared_harken.send("deploys", **PAYLOAD)
    await shared_page.goto("/events")
    cases = [[place, value_at(place)] for place in PLACES]
    clauses: list[str] = await shared_page.evaluate(CLAUSES, [cases, "data"])
    missing: list[str] = await shared_page.evaluate(CLAUSES, [[[["no"]], [["in", "x y"]]], "data"])
    assert missing == ["!has(data.no)", '!("x y" in data["in"])']
    assert clauses[2:8] == [
        "data.whole == 3",
        "data.half == 2.5",
        "data.yes == true",
        "data.nothing == null",
        '"b" in data.labels',
        'data.people.exists(i1, i1.name == "Bob")',
    ]
    assert clauses[10] == 'timestamp(data.at) >= timestamp("2026-11-18T01:00:00Z")'
    for clause in [*clauses, *missing]:
        found = await shared_page.evaluate(
            "async (where) => (await fetch('/api/events?' + new URLSearchParams({where}))).json()",
            f'key == "clauses" && {clause}',
        )
        assert [row["key"] for row in found.get("items", [])] == ["clauses"], (clause, found)


async def test_every_leaf_of_an_odd_payload_gives_a_clause_that_is_true_for_its_event(
    shared_page: Page, shared_harken: HarkenProcess
) -> None:
    headers = {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(shared_harken.url) as client,
        client.post("/webhooks/generic/deploys", data=ODD, headers=headers) as answer,
    ):
        assert answer.status == 202
    [event] = (await shared_harken.call("GET", "/api/events?key=odd"))["items"]
    await shared_page.goto(f"/events/{event['id']}")
    await expect(shared_page.get_by_text("1234567890123456789").first).to_be_visible()
    clauses: list[str] = await shared_page.evaluate(LEAVES, event["id"])
    assert "data.chat == 1234567890123456789" in clauses
    assert 'data.no_time == "2026-02-30T00:00:00Z"' in clauses
    assert clauses[-5:-2] == ["!has(data.gone)", "size(data.list) <= 0", "data.grid.exists(i1, size(i1) <= 1)"]
    for clause in clauses:
        query = urlencode({"where": f'key == "odd" && {clause}'})
        found = await shared_harken.call("GET", f"/api/events?{query}")
        assert [row["key"] for row in found["items"]] == ["odd"], clause


async def test_what_stands_after_a_comment_of_a_filter_counts(page: Page, harken: HarkenProcess) -> None:
    await harken.send("deploys", id="d-1", service="checkout", url="https://one.example")
    await harken.send("deploys", id="d-2", service="search", url="https://one.example")
    rows = page.locator(".virtual-row")
    await page.goto("/events?where=" + quote('data.url == "https://one.example" // both'))
    await expect(rows).to_have_count(2)
    await page.get_by_role("combobox", name="Verdict").select_option("filtered")
    await expect(rows).to_have_count(1)
    await rows.click()
    await page.get_by_role("button", name='"search"').click()
    filter = page.get_by_label("Filter, in CEL")
    await expect(filter).to_have_value('data.url == "https://one.example" && data.service == "search"')


async def test_both_pages_are_accessible(shared_page: Page, shared_harken: HarkenProcess) -> None:
    await shared_harken.send("deploys", id="axe-events", service="checkout", title=HOSTILE * 50, text="\u202e" * 1000)
    newest = (await shared_harken.call("GET", "/api/events?limit=1"))["items"][0]["id"]
    await axe.check(shared_page, {f"/events?selected={newest}": ".verdicts", f"/events/{newest}": ".json"})
