"""Settings: health, configuration as it runs, tokens and the audit log; integrations; what a viewer may not do."""

from __future__ import annotations

from playwright.async_api import BrowserContext, Page, expect

from tests.ui.harken_process import HarkenProcess


async def test_a_token_is_made_shown_once_and_revoked_and_the_audit_log_tells_it(
    page: Page, harken: HarkenProcess
) -> None:
    await page.goto("/settings?tab=tokens")
    await page.get_by_role("textbox", name="Name").fill("ci")
    await page.get_by_role("combobox", name="Role").select_option("operator")
    await page.get_by_role("button", name="Make it").click()
    secret = page.locator(".secret")
    await expect(secret).to_contain_text("hkn_")
    await page.get_by_role("button", name="I have it").click()
    await expect(secret).to_have_count(0)
    await page.get_by_role("button", name="Revoke").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await expect(page.get_by_text("There are no tokens.")).to_be_visible()
    assert (await harken.call("GET", "/api/tokens"))["items"] == []

    await page.get_by_role("tab", name="Audit").click()
    await expect(page.get_by_role("cell", name="tokens.revoke")).to_be_visible()
    await page.get_by_role("textbox", name="Did").fill("tokens.create")
    await page.get_by_role("textbox", name="Did").press("Enter")
    await expect(page.get_by_role("row")).to_have_count(2)
    await page.get_by_role("textbox", name="Did").fill("triggers.pause")
    await page.get_by_role("textbox", name="Did").press("Enter")
    await expect(page.get_by_text("No entries fit the filter.")).to_be_visible()


async def test_how_long_records_are_kept_is_shown_with_how_many_there_are(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/settings?tab=retention")
    kept = page.get_by_role("region", name="Retention")
    await expect(kept.get_by_role("row").filter(has_text="runs that are over")).to_contain_text("30d")
    rows = (await harken.call("GET", "/api/store/retention"))["items"]
    await expect(kept.get_by_role("row")).to_have_count(len(rows) + 1)


async def test_a_mistake_in_a_file_is_a_finding_with_its_place(page: Page, harken: HarkenProcess) -> None:
    harken.write({"workflows/wrong.yaml": "name: wrong\nsteps:\n  - {id: a, action: nonsense}\n"})
    await page.goto("/settings?tab=configuration")
    await expect(page.get_by_text("workflows/wrong.yaml:3:")).to_be_visible()
    await page.get_by_role("link", name="workflow:wrong").click()
    await expect(page.get_by_role("textbox", name="Text of workflows/wrong.yaml")).to_be_visible()


async def test_health_is_what_the_doctor_says(shared_page: Page, shared_harken: HarkenProcess) -> None:
    said = (await shared_harken.call("GET", "/api/doctor"))["items"]
    await shared_page.goto("/settings")
    await expect(shared_page.get_by_role("row")).to_have_count(len(said) + 1)


async def test_each_service_that_needs_an_account_is_listed_with_the_command_for_it(
    shared_page: Page, shared_harken: HarkenProcess
) -> None:
    services = (await shared_harken.call("GET", "/api/services?limit=500"))["items"]
    accounts = (await shared_harken.call("GET", "/api/integrations?limit=500"))["items"]
    present = {account["kind"] for account in accounts if account["source"] != "missing"}
    wanted = {each["kind"] for each in services if each["needs_account"]} - present
    assert {"kafka", "s3", "slack"} <= wanted
    await shared_page.goto("/integrations")
    possible = shared_page.get_by_role("region", name="Could be configured")
    for kind in sorted(wanted):
        await expect(possible.get_by_role("button", name=f"harken integrations {kind} configure")).to_be_visible()


async def test_a_viewer_sees_its_role_and_no_tokens(window: BrowserContext, harken: HarkenProcess) -> None:
    token = (await harken.call("POST", "/api/tokens", {"name": "looker", "role": "viewer"}))["token"]
    await window.request.post("/api/session", data={"token": token})
    page = await window.new_page()
    await page.goto("/settings?tab=you")
    await expect(page.get_by_text("You are token looker")).to_be_visible()
    await expect(page.get_by_role("tab", name="Tokens and roles")).to_have_count(0)
    await page.goto("/workflows")
    await expect(page.get_by_role("link", name="deploys", exact=True).first).to_be_visible()
    await expect(page.get_by_role("button", name="Run now")).to_have_count(0)


async def test_who_is_on_the_machine_is_an_admin_and_no_operator(shared_page: Page) -> None:
    await shared_page.goto("/settings?tab=you")
    you = shared_page.get_by_role("region", name="You are on this machine")
    await expect(you.get_by_text("The audit log names you operator. Role admin")).to_be_visible()


async def test_a_long_name_in_the_audit_log_leaves_the_other_columns_whole(page: Page, harken: HarkenProcess) -> None:
    steps = [{"id": "say", "action": "transform", "set": {"text": "hi"}}]
    row = {"name": "x" * 120, "provider": "api", "workflow": {"steps": steps}}
    await harken.call("POST", "/api/triggers", row)
    await harken.call("POST", f"/api/triggers/{row['name']}/pause", {"reason": "long " * 100})
    await page.goto("/settings?tab=audit")
    cells = page.get_by_role("row").filter(has_text="triggers.pause").locator("time, .who, code")
    await expect(cells).to_have_count(3)
    lines = await cells.evaluate_all("cells => cells.map((cell) => cell.getClientRects().length)")
    heights = await cells.evaluate_all(
        "cells => cells.map((cell) => Math.round(cell.getBoundingClientRect().height / 30))"
    )
    assert (lines, heights) == ([1, 1, 1], [1, 1, 1])
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
