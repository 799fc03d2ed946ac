"""Runs: the list with its filters, and one run with its steps, values and events, and what may be done about it."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

from playwright.async_api import Page, expect

from tests.ui import axe
from tests.ui.harken_process import HarkenProcess

LARGE = """
name: large
trigger:
  webhook: {id: large, scheme: none, allow_unsigned: true, id_field: id, max_bytes: 20000000}
steps:
  - id: copy
    action: transform
    set: {text: "{{.trigger.event.text}}"}
"""
GUARDED = """
name: guarded
trigger:
  webhook: {id: guarded, scheme: none, allow_unsigned: true, id_field: id}
steps:
  - id: first
    action: transform
    set: {text: "hello {{.trigger.event.title}}"}
  - id: ask
    action: approve
    prompt: "May {{.trigger.event.title}} go out?"
"""
BRANCHES = """
name: branches
trigger:
  webhook: {id: branches, scheme: none, allow_unsigned: true, id_field: id}
steps:
  - id: look
    action: if
    condition: trigger.event.urgent
    then:
      - {id: page, action: transform, set: {to: "the one on call"}}
  - {id: end, action: transform, set: {text: "done"}}
"""
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202e\u0007"


async def newest_run(harken: HarkenProcess, workflow: str, status: str = "") -> str:
    """The id of the newest run of the workflow, as soon as it has that status."""
    while True:
        found = await harken.call("GET", f"/api/runs?workflow={workflow}&limit=1")
        if found["items"] and status in ("", found["items"][0]["status"]):
            return str(found["items"][0]["id"])


async def test_runs_appear_as_they_happen_and_filters_stand_in_the_address(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/runs")
    await expect(page.get_by_text("No runs yet.")).to_be_visible()
    await harken.send("deploys", id="d-1", service="checkout", title="first deploy")
    await harken.send("broken", id="b-1", title="not a number")
    rows = page.get_by_role("option").filter(has=page.locator(".row-main"))
    await expect(rows).to_have_count(2)
    await expect(page.get_by_role("listbox", name="Runs").get_by_text("dead")).to_be_visible()
    await page.get_by_label("Status").select_option("dead")
    await expect(page).to_have_url("/runs?status=dead")
    await expect(rows).to_have_count(1)
    await page.get_by_label("Status").select_option("held")
    await expect(page.get_by_text("No runs fit the filter.")).to_be_visible()
    await expect(page.get_by_role("button", name="these…")).to_have_count(0)
    await page.go_back()
    await expect(rows).to_have_count(1)
    await page.get_by_role("button", name="Retry these…").click()
    plan = page.get_by_role("dialog", name="Plan")
    await expect(plan.get_by_text("exactly 1 run")).to_be_visible()
    await plan.get_by_role("button", name="Retry 1 run").click()
    await expect(plan.get_by_text("1 run retried.")).to_be_visible()


async def test_a_filter_is_typed_in_cel_and_an_unknown_field_is_an_error_in_words(
    shared_page: Page, shared_harken: HarkenProcess
) -> None:
    page = shared_page
    await shared_harken.send("deploys", id="filter-1", service="checkout")
    await newest_run(shared_harken, "deploys", "done")
    await page.goto("/runs")
    rows = page.locator(".virtual-row")
    await expect(rows.first).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type('stats == "done"')
    await expect(page.get_by_text("there is no field stats here. Did you mean")).to_be_visible()
    await expect(rows.first).to_be_visible()
    await page.get_by_label("Filter, in CEL").fill('"filter-1" in event_keys')
    await expect(page).to_have_url(re.compile("filter-1"))
    await expect(rows).to_have_count(1)
    await page.reload()
    await expect(page.get_by_label("Filter, in CEL")).to_have_value('"filter-1" in event_keys')
    await expect(rows).to_have_count(1)
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="deploys", level=1)).to_be_visible()


async def test_a_run_tells_what_its_steps_did_and_is_rerun_from_one_with_other_input(
    page: Page, harken: HarkenProcess
) -> None:
    harken.write({"workflows/guarded.yaml": GUARDED})
    await harken.call("POST", "/api/reload", {})
    await harken.send("guarded", id="g-1", title=HOSTILE)
    run = await newest_run(harken, "guarded", "waiting")
    await page.goto(f"/runs/{run}")
    await expect(page.get_by_text("It waits for approval.")).to_be_visible()
    await page.keyboard.press("j")
    await expect(page).to_have_url(f"/runs/{run}?step=first")
    await expect(page.get_by_text("hello <img src=x onerror=alert(1)>").first).to_be_visible()
    await page.get_by_role("button", name="Approve", exact=True).click()
    await expect(page.locator(".page-head .pill")).to_have_text("done")
    await page.get_by_role("tab", name="Events").click()
    await expect(page.get_by_text("webhook.received")).to_be_visible()
    await page.get_by_role("tab", name="Compare").click()
    await expect(page.get_by_text("No other run of guarded went well yet.")).to_be_visible()
    await page.goto(f"/runs/{run}?step=first")
    await page.get_by_role("button", name="Rerun from here…").click()
    dialog = page.get_by_role("dialog", name="Rerun from first")
    given = dialog.get_by_label("Parameters of first")
    await given.fill("{")
    await dialog.get_by_role("button", name="Start the new run").click()
    await expect(dialog.get_by_text("This is not JSON")).to_be_visible()
    await given.fill(json.dumps({"set": {"text": "edited"}}))
    await dialog.get_by_role("button", name="Start the new run").click()
    await expect(page.get_by_text("again for")).to_be_visible()
    assert run not in page.url
    await page.locator(".step").first.click()
    await expect(page.get_by_text('"edited"').first).to_be_visible()
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await page.get_by_role("button", name="Cancel the run").click()
    await expect(page.locator(".page-head .pill")).to_have_text("cancelled")
    await page.get_by_role("tab", name="Compare").click()
    await expect(page.get_by_text("Compared with")).to_be_visible()
    await expect(page.get_by_role("cell", name='"edited"').first).to_be_visible()


async def test_a_run_with_10_MB_opens_without_them_and_loads_them_on_demand(page: Page, harken: HarkenProcess) -> None:
    harken.write({"workflows/large.yaml": LARGE})
    await harken.call("POST", "/api/reload", {})
    await harken.send("large", id="l-1", text="x" * 10_000_000)
    run = await newest_run(harken, "large", "done")
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(int(answer.headers.get("content-length", 0))))
    await page.goto(f"/runs/{run}?step=copy")
    load = page.get_by_role("button", name="Load it")
    await expect(load).to_be_visible()
    await expect(page.get_by_text("It has 10 MB.")).to_be_visible()
    assert max(sizes) < 200_000
    await load.click()
    await expect(page.get_by_role("button", name=re.compile("Show all 10 MB"))).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 1280


async def test_both_pages_are_accessible_in_both_themes_and_at_both_widths(
    shared_page: Page, shared_harken: HarkenProcess
) -> None:
    page = shared_page
    await shared_harken.send("deploys", id="axe-1", service="checkout")
    await shared_harken.send("broken", id="axe-2", title=HOSTILE)
    run = await newest_run(shared_harken, "broken", "dead")
    await axe.check(
        page,
        {
            f"/runs?selected={run}": ".virtual-row[aria-selected=true]",
            f"/runs/{run}?step=number": ".step-detail",
            f"/runs/{run}?rerun=start": ".rerun .primary",
        },
    )


async def test_keys_that_are_pressed_before_the_list_is_drawn_again_count(
    shared_page: Page, shared_harken: HarkenProcess
) -> None:
    for number in range(3):
        await shared_harken.send("deploys", id=f"fast-{number}", service="checkout")
    await newest_run(shared_harken, "deploys", "done")
    await shared_page.goto("/runs")
    rows = shared_page.locator(".virtual-row")
    await expect(rows.nth(2)).to_be_visible()
    third = await rows.nth(2).get_attribute("id")
    press = 'document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true }))'
    await shared_page.evaluate(";".join([press] * 3))
    await expect(shared_page.locator(f"#{third}")).to_have_attribute("aria-selected", "true")


async def test_a_step_stands_above_those_inside_it(page: Page, harken: HarkenProcess) -> None:
    harken.write({"workflows/branches.yaml": BRANCHES})
    await harken.call("POST", "/api/reload", {})
    await harken.send("branches", id="b-1", urgent=True)
    run = await newest_run(harken, "branches", "done")
    journal = [step["path"] for step in (await harken.call("GET", f"/api/runs/{run}"))["steps"]]
    assert journal == ["look.then.page", "look", "end"]
    await page.goto(f"/runs/{run}")
    await expect(page.locator(".step-name strong")).to_have_text(["look", "look.then.page", "end"])
    await page.get_by_role("button", name="look.then.page").click()
    await expect(page.locator(".step-detail").get_by_text('"the one on call"').first).to_be_visible()


async def test_a_rerun_keeps_large_numbers_beside_what_was_changed(page: Page, harken: HarkenProcess) -> None:
    await harken.send("deploys", id="d-1", service="checkout", chat={"id": 1234567890123456789, "name": "x"})
    run = await newest_run(harken, "deploys", "done")
    await page.goto(f"/runs/{run}?rerun=start")
    given = page.get_by_role("textbox", name="Input")
    await given.fill((await given.input_value()).replace('"x"', '"y"'))
    await page.get_by_role("button", name="Start the new run").click()
    await expect(page.get_by_text("again for")).to_be_visible()
    again = await harken.call("GET", f"/api/runs/{await newest_run(harken, 'deploys', 'done')}")
    assert again["input"]["chat"] == {"id": 1234567890123456789, "name": "y"}


async def test_held_runs_are_released_by_a_plan_and_runs_that_are_done_are_neither_retried_nor_cancelled(
    page: Page, harken: HarkenProcess
) -> None:
    await harken.call("POST", "/api/triggers/deploys/pause", {})
    for number in range(2):
        await harken.send("deploys", id=f"d-{number}", service="checkout")
    await page.goto("/runs?status=held")
    bulk = page.get_by_role("button", name="these…")
    await expect(bulk).to_have_text(["Release these…", "Cancel these…"])
    await bulk.first.click()
    plan = page.get_by_role("dialog", name="Plan")
    await plan.get_by_role("button", name="Release 2 runs").click()
    await expect(plan.get_by_text("2 runs released.")).to_be_visible()
    await newest_run(harken, "deploys", "done")
    await page.goto("/runs?status=done")
    await expect(page.locator(".virtual-row")).to_have_count(2)
    await expect(bulk).to_have_count(0)


async def test_a_plan_is_for_the_runs_that_are_shown_whatever_the_filter_has_in_it(
    page: Page, harken: HarkenProcess
) -> None:
    for number in range(3):
        await harken.send("broken", id=f"b-{number}")
    await newest_run(harken, "broken", "dead")
    await page.goto("/runs?status=dead&where=" + quote('error != "//" // a note'))
    await expect(page.locator(".virtual-row")).to_have_count(3)
    await page.get_by_role("button", name="Retry these…").click()
    await expect(page.get_by_role("dialog")).to_contain_text("exactly 3 runs")
    # without the parentheses around it this is no filter, and with them it would be one for every run
    await page.goto("/runs?status=dead&where=" + quote("attempt > 7) || (attempt > 0"))
    await page.get_by_role("button", name="Retry these…").click()
    await expect(page.locator(".toast")).to_contain_text("the filter cannot be read")
    await expect(page.get_by_role("dialog")).to_have_count(0)


FIRST_SEEN = """() => {
  const box = document.querySelector(".virtual").getBoundingClientRect();
  const rows = [...document.querySelectorAll(".virtual-row")];
  const first = rows.find((row) => row.getBoundingClientRect().bottom > box.top + 1);
  return [first.id, Math.round(first.getBoundingClientRect().top - box.top)];
}"""


async def test_what_somebody_reads_stays_in_its_place_when_runs_come_above_it(
    page: Page, harken: HarkenProcess
) -> None:
    for number in range(60):
        await harken.send("deploys", id=f"d-{number}", service="checkout")
    await newest_run(harken, "deploys", "done")
    await page.goto("/runs")
    await expect(page.get_by_text("60 runs")).to_be_visible()
    await page.locator(".virtual").evaluate("list => { list.scrollTop = 1000 }")
    await page.wait_for_function("() => JSON.stringify(history.state).includes('1000')")
    before = await page.evaluate(FIRST_SEEN)
    for number in range(3):
        await harken.send("deploys", id=f"later-{number}", service="checkout")
    await expect(page.get_by_text("63 runs")).to_be_visible()
    assert await page.evaluate(FIRST_SEEN) == before
    await page.reload()
    await expect(page.get_by_text("63 runs")).to_be_visible()
    assert await page.evaluate(FIRST_SEEN) == before
    await page.get_by_role("combobox", name="Status").select_option("dead")
    await expect(page.get_by_text("No runs fit the filter.")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_text("63 runs")).to_be_visible()
    assert await page.evaluate(FIRST_SEEN) == before
    await page.get_by_role("combobox", name="Status").select_option("done")
    await expect(page).to_have_url("/runs?status=done")
    await page.locator(".virtual").evaluate("list => { list.scrollTop = 0 }")
    await expect(page.locator(".virtual-row").first).to_have_attribute("aria-posinset", "1")
    await page.go_back()
    await expect(page).to_have_url("/runs")
    await page.wait_for_function(
        f"(before) => JSON.stringify(({FIRST_SEEN})()) === before", arg=json.dumps(before, separators=(",", ":"))
    )
