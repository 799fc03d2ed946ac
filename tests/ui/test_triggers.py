"""Triggers: one list of all kinds, and for each what it decided, how it reads, and what another condition would do."""

from __future__ import annotations

import asyncio
import json
from typing import get_args
from urllib.parse import quote

from playwright.async_api import BrowserContext, Page, Route, expect

from harken.operate.trigger_status import Status
from tests.ui import axe
from tests.ui.harken_process import HarkenProcess


async def test_a_trigger_is_found_opened_paused_and_resumed(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/triggers")
    rows = page.get_by_role("listbox", name="Triggers").get_by_role("option")
    await expect(rows).to_have_count(2)
    await page.get_by_label("Name").fill("depl")
    await expect(rows).to_have_count(1)
    await page.get_by_label("Name").blur()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1, name="deploys")).to_be_visible()

    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(page.get_by_text("paused by a person")).to_be_visible()
    await harken.send("deploys", id="d-1", service="checkout")
    await expect(page.get_by_role("button", name="Release 1 run")).to_be_visible()
    await page.get_by_role("button", name="Resume", exact=True).click()
    await expect(page.get_by_text("deploys is resumed")).to_be_visible()
    await page.go_back()
    await expect(rows).to_have_count(1)
    assert page.url == f"{harken.url}/triggers?q=depl&at=deploys"


async def test_a_filter_names_the_field_that_there_is_not_and_says_when_it_fits_nothing(shared_page: Page) -> None:
    await shared_page.goto("/triggers?where=nonsense == 1")
    await expect(shared_page.get_by_role("alert")).to_contain_text("there is no field nonsense")
    await shared_page.get_by_label("Condition (CEL)").fill("fired > 1000000")
    await expect(shared_page.get_by_text("No triggers fit the filter.")).to_be_visible()
    await shared_page.get_by_role("button", name="Clear the filter").click()
    await expect(shared_page.get_by_role("listbox", name="Triggers").get_by_role("option")).to_have_count(2)


async def test_it_tells_which_clause_held_what_back_and_what_another_condition_would_do(
    page: Page, harken: HarkenProcess
) -> None:
    await harken.send("deploys", id="d-1", service="checkout")
    await harken.send("deploys", id="d-2", service="search", title="<b>not checkout</b>")
    await page.goto("/triggers/deploys")
    clauses = page.get_by_role("region", name="What the condition holds back")
    await expect(clauses.get_by_text("1 event", exact=True)).to_have_count(2)
    await expect(page.get_by_role("region", name="Fired").get_by_role("listitem")).to_have_count(1)
    filtered = page.get_by_role("region", name="Filtered")
    await expect(filtered.get_by_text("<b>not checkout</b>")).to_be_visible()
    await expect(filtered.get_by_text('event.service == "checkout" is false')).to_be_visible()

    await page.get_by_role("tab", name="Try a condition").click()
    editor = page.get_by_role("textbox", name="Condition in CEL")
    await editor.click()
    await page.keyboard.press("Control+a")
    await page.keyboard.type("event.service != ")
    await page.keyboard.insert_text('"none"')
    await page.get_by_role("button", name="Try it on the last 7 days").click()
    answer = page.get_by_role("status", name="Answer of the backtest")
    await expect(answer.get_by_text("1 more event would fire, 0 would no longer")).to_be_visible()
    await expect(answer.get_by_text("the rules as they are give the recorded verdict for 2 of them")).to_be_visible()


async def test_a_backtest_that_takes_long_says_that_it_works_until_it_has_an_answer(
    page: Page, harken: HarkenProcess
) -> None:
    await harken.send("deploys", id="d-1", service="checkout")
    seen = asyncio.Event()

    async def slowly(route: Route) -> None:
        await seen.wait()
        await route.continue_()

    await page.route("**/api/triggers/deploys/backtest", slowly)
    await page.goto("/triggers/deploys")
    await page.get_by_role("tab", name="Try a condition").click()
    await page.get_by_role("button", name="Try it on the last 7 days").click()
    working = page.get_by_role("status").get_by_text("Working: deciding the events of the last 7 days again…")
    await expect(working).to_be_visible()
    seen.set()
    await expect(page.get_by_role("status", name="Answer of the backtest")).to_be_visible()
    await expect(working).to_have_count(0)


async def test_the_last_day_of_all_that_is_seen_is_one_request(page: Page, harken: HarkenProcess) -> None:
    for at in range(3):
        await harken.send("deploys", id=f"d-{at}", service="checkout" if at else "search")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/activity/" in request.url else None)
    await page.goto("/triggers")
    deploys = page.get_by_role("listbox", name="Triggers").get_by_role("option", name="deploys")

    await expect(deploys.get_by_role("img", name="Last 24 h: 3 events, 2 matched")).to_be_visible()
    await expect(deploys.get_by_text("match and run")).to_be_visible()
    await expect(page.get_by_text("0 events, 0 matched")).to_be_visible()
    assert len(asked) == 1


async def test_gaps_in_what_was_read_are_marked_and_told_in_words(page: Page) -> None:
    spans = [("2026-03-01T00:00:00Z", "2026-03-01T06:00:00Z"), ("2026-03-01T08:30:00Z", "2026-03-02T00:00:00Z")]
    read = [{"start": start, "end": end} for start, end in spans]
    gaps = [{"start": spans[0][1], "end": spans[1][0]}]

    async def with_gap(route: Route) -> None:
        answer = await route.fetch()
        told = await answer.json() | {"type": "poll", "coverage": read, "gaps": gaps}
        await route.fulfill(response=answer, json=told)

    await page.route("**/api/triggers/deploys", with_gap)
    await page.add_init_script("localStorage['harken.zone'] = 'utc'")
    await page.goto("/triggers/deploys?tab=reads")
    coverage = page.get_by_role("region", name="What was read, and gaps")

    await expect(coverage.get_by_role("img", name="1 gap, together 2 h 30 min")).to_be_visible()
    told = coverage.get_by_role("list", name="Gaps, newest first").get_by_role("listitem")
    await expect(told).to_have_text("2 h 30 min, from 2026-03-01 06:00:00 until 2026-03-01 08:30:00")
    assert await coverage.locator("rect.gap").count() == 1
    assert await axe.findings(page) == []


async def test_its_definition_is_shown_with_the_file_that_has_it(shared_page: Page) -> None:
    await shared_page.goto("/triggers/deploys?tab=definition")
    await expect(shared_page.get_by_text("workflows/deploys.yaml", exact=True)).to_be_visible()
    await expect(shared_page.get_by_role("textbox", name="YAML of deploys")).to_contain_text("id_field: id")


async def test_a_viewer_has_no_buttons(window: BrowserContext, harken: HarkenProcess) -> None:
    token = (await harken.call("POST", "/api/tokens", {"name": "looker", "role": "viewer"}))["token"]
    await window.request.post("/api/session", data={"token": token})
    page = await window.new_page()
    await page.goto("/triggers/deploys")
    await expect(page.get_by_role("region", name="Fired")).to_be_visible()
    await expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    await page.get_by_role("tab", name="Try a condition").click()
    await expect(page.get_by_text("Your token may not try conditions.")).to_be_visible()


async def test_axe_finds_nothing(shared_page: Page, shared_harken: HarkenProcess) -> None:
    await shared_harken.send("deploys", id="seen", service="search", title="not checkout")
    await axe.check(
        shared_page,
        {
            "/triggers": ".virtual-row",
            "/triggers/deploys": "#bank-filtered",
            "/triggers/deploys?tab=reads": "#gaps",
            "/triggers/deploys?tab=try": ".editor",
            "/triggers/deploys?tab=definition": ".editor",
        },
    )


MANY = 520
PLAIN = (
    "name: job-{number:03}\ntrigger: {{api: {{}}}}\nsteps:\n  - {{id: note, action: transform, set: {{text: hi}}}}\n"
)
LOOK = 'document.dispatchEvent(new Event("visibilitychange"))'


async def test_of_more_triggers_than_a_page_has_all_are_offered_current_and_needing_somebody_in_short(
    page: Page, harken: HarkenProcess
) -> None:
    harken.write({f"workflows/job-{number:03}.yaml": PLAIN.format(number=number) for number in range(MANY)})
    await harken.call("POST", "/api/reload", {})
    await page.goto("/runs")
    choice = page.get_by_role("combobox", name="Trigger")
    await expect(choice.locator("option")).to_have_count(MANY + 3)
    await page.goto("/triggers")
    rows = page.locator(".virtual-row")
    await expect(rows.first).to_be_visible()
    await page.locator(".virtual").evaluate("list => { list.scrollTop = list.scrollHeight }")
    await expect(page.get_by_text(f"{MANY + 2} triggers")).to_be_visible()
    await page.locator(".virtual").evaluate("list => { list.scrollTop = list.scrollHeight }")
    last = rows.filter(has_text=f"job-{MANY - 1}")
    await expect(last).to_contain_text("healthy")
    for number in range(MANY - 25, MANY):
        await harken.call("POST", f"/api/triggers/job-{number:03}/pause", {})
    await page.evaluate(LOOK)
    await expect(last).to_contain_text("paused")
    await page.goto("/")
    others = page.get_by_role("region", name="Not quite right")
    await expect(others.get_by_role("listitem")).to_have_count(20)
    await others.get_by_role("link", name="5 more triggers").click()
    await expect(page.get_by_text("25 triggers", exact=True)).to_be_visible()


NAMES = ("new", "a#b", "a?b=1", "a%20b", "<b>")
TRIAGE = "name: triage\ntrigger: {feed: incidents}\nsteps:\n  - {id: note, action: transform, set: {text: hi}}\n"
ROW = {"provider": "api", "workflow": {"steps": [{"id": "say", "action": "transform", "set": {"text": "hi"}}]}}


async def test_every_link_to_a_trigger_and_its_workflow_leads_there_whatever_its_name(
    page: Page, harken: HarkenProcess
) -> None:
    for name in NAMES:
        await harken.call("POST", "/api/triggers", {"name": name, **ROW})
        await harken.call("POST", f"/api/triggers/{quote(name)}/pause", {})
    heading = page.get_by_role("heading", level=1)
    for name in NAMES:
        await page.goto("/triggers")
        await page.locator(".virtual-row").filter(has=page.get_by_text(name, exact=True)).click()
        await expect(heading).to_have_text(name)
        await page.reload()
        await expect(heading).to_have_text(name)
        await page.locator(".page-head").get_by_role("link", name=name, exact=True).click()
        await expect(page.get_by_text("Started by")).to_be_visible()
        await page.get_by_text("Started by").get_by_role("link").click()
        await expect(page.get_by_role("tab", name="Decisions")).to_be_visible()
        await expect(heading).to_have_text(name)
        await page.goto("/")
        await page.get_by_role("region", name="Not quite right").get_by_role("link", name=name, exact=True).click()
        await expect(heading).to_have_text(name)


async def test_what_is_wrong_with_harken_itself_and_what_reads_an_account_have_links_that_lead_there(
    page: Page, harken: HarkenProcess
) -> None:
    settings = {
        "metrics": {"enabled": False},
        "integrations": {"page": {"kind": "json", "allow_private_networks": True}},
        "feeds": {"incidents": {"integration": "page", "query": {"url": "http://127.0.0.1:1/", "items_path": "items"}}},
    }
    harken.write({"harken.yaml": json.dumps(settings), "workflows/triage.yaml": TRIAGE})
    await harken.call("POST", "/api/reload", {})
    await page.goto("/integrations")
    await page.get_by_role("link", name="incidents").click()
    await expect(page.locator(".virtual-row")).to_have_count(1)
    await expect(page.locator(".virtual-row")).to_contain_text("triage")
    harken.write({"harken.yaml": json.dumps({**settings, "no_such_setting": 1})})
    await page.goto("/")
    await page.get_by_role("link", name="Configuration").click()
    await expect(page.get_by_role("tab", name="Configuration")).to_have_attribute("aria-selected", "true")
    await expect(page.get_by_text("no_such_setting").first).to_be_visible()


async def test_a_row_that_is_not_enabled_has_a_page_in_every_tab_and_is_enabled_and_deleted_there(
    page: Page, harken: HarkenProcess
) -> None:
    await harken.call("POST", "/api/triggers", {"name": "mine", **ROW, "enabled": False})
    for tab in ("decisions", "reads", "try", "definition"):
        await page.goto(f"/triggers/mine?tab={tab}")
        await expect(page.get_by_text("it is not enabled", exact=True)).to_be_visible()
        await expect(page.locator(".editor")).to_contain_text("name: mine")
        await expect(page.get_by_role("button", name="Pause")).to_have_count(0)
        await expect(page.get_by_role("alert")).to_have_count(0)
    assert await axe.findings(page) == []

    await page.get_by_role("button", name="Enable", exact=True).click()
    await expect(page.get_by_role("tab", name="Decisions")).to_be_visible()
    assert (await harken.call("GET", "/api/triggers/mine"))["row"]["enabled"] is True
    await page.get_by_role("button", name="Delete…").click()
    await page.get_by_role("button", name="Delete it").click()
    await expect(page.get_by_text("mine is deleted")).to_be_visible()
    await expect(page.locator(".virtual-row")).to_have_count(2)


ODD = """name: odd
trigger: {webhook: {id: odd, scheme: none, allow_unsigned: true, id_field: id}, condition: event.a ==}
steps:
  - {id: note, action: transform, set: {text: hi}}
"""


async def test_a_workflow_file_that_is_refused_is_corrected_where_the_overview_leads(
    page: Page, harken: HarkenProcess
) -> None:
    harken.write({"workflows/odd.yaml": ODD})
    await harken.call("POST", "/api/reload", {})
    await page.goto("/")
    await page.get_by_role("region", name="Needs you").get_by_role("link", name="odd").click()
    await expect(page.get_by_role("heading", level=1, name="odd")).to_be_visible()
    await page.get_by_role("textbox", name="Text of workflows/odd.yaml").click()
    for key in ("Control+Home", "ArrowDown", "End", "ArrowLeft"):
        await page.keyboard.press(key)
    await page.keyboard.type(" 1")
    await page.get_by_role("button", name="Show the diff…").click()
    await page.get_by_role("button", name="Write and load it").click()
    await expect(page.get_by_role("tab", name="Decisions")).to_be_visible()


async def test_what_its_feed_could_not_read_is_not_told_of_its_dead_runs(page: Page, harken: HarkenProcess) -> None:
    settings = {
        "metrics": {"enabled": False},
        "integrations": {"page": {"kind": "json", "allow_private_networks": True}},
        "feeds": {"incidents": {"integration": "page", "query": {"url": "http://127.0.0.1:1/", "items_path": "items"}}},
    }
    harken.write({"harken.yaml": json.dumps(settings), "workflows/triage.yaml": TRIAGE})
    await harken.call("POST", "/api/reload", {})
    await page.goto("/triggers/triage?tab=reads")
    await expect(page.get_by_role("region", name="Where it stands").get_by_text("127.0.0.1:1")).to_be_visible()
    await expect(page.locator(".tile").filter(has_text="Dead")).to_have_text("Dead0 runs")


async def test_a_filter_is_wrong_where_it_was_typed_and_each_status_can_be_chosen(shared_page: Page) -> None:
    await shared_page.goto("/triggers?where=type ==")
    await expect(shared_page.get_by_role("alert")).to_contain_text("1:8: something is missing at the end")
    offered = await shared_page.get_by_role("combobox", name="Status").locator("option").all_inner_texts()
    assert set(offered) - {"any"} == set(get_args(Status))
