"""Dead letters: one is retried or dropped, and many by a plan that never widens."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.ui import axe
from tests.ui.harken_process import HarkenProcess
from tests.ui.test_runs import HOSTILE, newest_run


async def test_a_dead_letter_is_retried_and_dropped(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/dead")
    await expect(page.get_by_text("No dead letters.")).to_be_visible()
    await harken.send("broken", id="b-1", title=HOSTILE)
    row = page.locator(".virtual-row")
    await expect(row).to_have_count(1)
    await page.keyboard.press("j")
    letter = page.get_by_role("region", name="The chosen letter")
    await expect(letter.get_by_text("trigger.event.numbers is not there")).to_be_visible()
    await letter.get_by_role("button", name="Retry", exact=True).click()
    await expect(page.get_by_text("The run is tried again: the workflow is what it was")).to_be_visible()
    run = await newest_run(harken, "broken", "dead")
    await page.goto(f"/dead?selected={run}")
    await letter.get_by_role("button", name="Drop", exact=True).click()
    await page.get_by_role("button", name="Drop it").click()
    await expect(page.get_by_text("No dead letters.")).to_be_visible()


async def test_a_plan_has_exact_ids_and_leaves_what_comes_later(page: Page, harken: HarkenProcess) -> None:
    await harken.send("broken", id="b-1", title="one")
    await harken.send("broken", id="b-2", title="two")
    await newest_run(harken, "broken", "dead")
    rows = page.locator(".virtual-row")
    await page.goto("/dead")
    await expect(rows).to_have_count(2)
    await page.get_by_label("Filter, in CEL").fill('key == "b-0"')
    await expect(page.get_by_text("No dead letters fit the filter.")).to_be_visible()
    await page.get_by_label("Filter, in CEL").fill('key.startsWith("b")')
    await page.get_by_role("button", name="Drop these…").click()
    plan = page.get_by_role("dialog", name="Plan")
    await expect(plan.get_by_text("exactly 2 dead letters")).to_be_visible()
    await harken.send("broken", id="b-3", title="three")
    await newest_run(harken, "broken", "dead")
    await page.reload()
    await plan.get_by_role("button", name="Drop 2 dead letters").click()
    await expect(plan.get_by_text("2 dead letters dropped.")).to_be_visible()
    await plan.get_by_role("button", name="Close").click()
    await expect(rows).to_have_count(1)
    await expect(rows.get_by_text("b-3")).to_be_visible()
    await page.get_by_role("button", name="Retry these…").click()
    await expect(plan.get_by_text("exactly 1 run")).to_be_visible()


async def test_a_plan_has_the_filter_that_stands_in_the_field_however_soon_it_is_asked_for(
    page: Page, harken: HarkenProcess
) -> None:
    await harken.send("broken", id="b-1", title="one")
    await harken.send("broken", id="b-2", title="two")
    await page.goto("/dead?where=key.startsWith('b')")
    await expect(page.locator(".virtual-row")).to_have_count(2)
    await page.get_by_label("Filter, in CEL").fill('key == "b-1"')
    await page.get_by_role("button", name="Drop these…").click()
    await expect(page.get_by_role("dialog", name="Plan").get_by_text("exactly 1 dead letter")).to_be_visible()


async def test_it_is_accessible(shared_page: Page, shared_harken: HarkenProcess) -> None:
    await shared_harken.send("broken", id="dead-1", title=HOSTILE)
    run = await newest_run(shared_harken, "broken", "dead")
    await axe.check(shared_page, {f"/dead?selected={run}": ".letter"})
