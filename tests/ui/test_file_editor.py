"""Workflow files in the browser: checked and completed as they are typed, and written after a look at the diff."""

from __future__ import annotations

import json
import os
from typing import Any

from playwright.async_api import Locator, Page, expect

from tests.ui import axe
from tests.ui.harken_process import FILES, HarkenProcess

FILE = "workflows/deploys.yaml"


def editor(page: Page, file: str = FILE) -> Locator:
    return page.get_by_role("textbox", name=f"Text of {file}")


async def type_at_end(page: Page, text: str) -> None:
    await editor(page).click()
    await page.keyboard.press("Control+End")
    await page.keyboard.insert_text(text)


async def test_a_workflow_is_edited_with_its_diff_and_what_became_of_it(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/workflows/deploys")
    await page.get_by_role("button", name="Edit").click()
    await expect(page).to_have_url(f"{harken.url}/workflows/deploys?tab=yaml&edit=1")
    await type_at_end(page, "    on_error: often\n")
    await expect(page.get_by_text("1 error: it cannot be written yet")).to_be_visible()
    await expect(page.get_by_role("button", name=f"{FILE}:10:15")).to_be_visible()
    await expect(page.locator(".cm-lintRange-error")).to_have_text("often")
    await expect(page.get_by_role("button", name="Show the diff…")).to_be_disabled()

    await page.get_by_role("button", name=f"{FILE}:10:15").click()
    # until then keys go to the button, and text to where the cursor was
    await expect(editor(page)).to_be_focused()
    await page.keyboard.press("Shift+End")
    await page.keyboard.insert_text("ignore")
    await expect(page.get_by_text("Harken would take it as it is.")).to_be_visible()
    await page.get_by_role("button", name="Show the diff…").click()
    diff = page.get_by_role("dialog", name=f"Write {FILE}?")
    await expect(diff.locator(".added")).to_have_text("+    on_error: ignore\n")
    assert (harken.directory / FILE).read_text() == FILES[FILE]
    await diff.get_by_role("button", name="Write and load it").click()

    await expect(page.get_by_text(f"{FILE} is written.")).to_be_visible()
    await expect(page.get_by_text("workflow deploys changed")).to_be_visible()
    assert (harken.directory / FILE).read_text() == FILES[FILE] + "    on_error: ignore\n"
    shown = await harken.call("GET", "/api/workflows/deploys")
    assert shown["definition"]["steps"][0]["on_error"] == "ignore"
    audited = await harken.call("GET", "/api/audit?did=workflows.write")
    assert [entry["detail"]["file"] for entry in audited["items"]] == [FILE]


async def test_a_trigger_that_a_file_defines_is_edited_on_its_own_page(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/triggers/deploys?tab=definition&edit=1")
    await expect(editor(page)).to_contain_text("checkout")
    await editor(page).get_by_text('"checkout"').dblclick()
    await page.keyboard.insert_text("payments")
    await expect(page.get_by_text("Harken would take it as it is.")).to_be_visible()
    await page.get_by_role("button", name="Show the diff…").click()
    diff = page.get_by_role("group", name=f"What changes in {FILE}")
    await expect(diff.locator(".removed")).to_contain_text('event.service == "checkout"')
    await expect(diff.locator(".added")).to_contain_text("payments")
    await page.get_by_role("button", name="Write and load it").click()
    await expect(page.get_by_text("Harken took it.")).to_be_visible()
    assert "payments" in (await harken.call("GET", "/api/triggers/deploys"))["condition"]


async def test_a_draft_survives_a_reload_and_a_server_that_is_away(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/workflows/deploys?tab=yaml&edit=1")
    await type_at_end(page, "# mine\n")
    await expect(page.get_by_text("Harken would take it as it is.")).to_be_visible()
    await page.reload()
    await expect(editor(page)).to_contain_text("# mine")

    await harken.stop()
    await type_at_end(page, "# typed while it was away\n")
    await expect(page.get_by_text("Harken does not answer").first).to_be_visible()
    await expect(editor(page)).to_contain_text("# typed while it was away")
    await harken.start()
    await expect(page.get_by_text("Harken would take it as it is.")).to_be_visible()
    await expect(editor(page)).to_contain_text("# typed while it was away")
    await page.get_by_role("button", name="Discard the changes").click()
    await expect(editor(page)).not_to_contain_text("# mine")
    await expect(page.get_by_text("Nothing is changed yet.")).to_be_visible()


async def test_a_file_that_somebody_else_changed_is_not_overwritten(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/workflows/deploys?tab=yaml&edit=1")
    await type_at_end(page, "# mine\n")
    await expect(page.get_by_text("Harken would take it as it is.")).to_be_visible()
    theirs = FILES[FILE] + "# theirs\n"
    (harken.directory / FILE).write_text(theirs)
    await type_at_end(page, "# more\n")
    await expect(page.get_by_text("was changed on the disk meanwhile")).to_be_visible()
    await expect(page.get_by_role("button", name="Show the diff…")).to_be_disabled()
    await page.get_by_role("button", name="Keep my text").click()
    await page.get_by_role("button", name="Show the diff…").click()
    diff = page.get_by_role("group", name=f"What changes in {FILE}")
    await expect(diff.locator(".removed")).to_have_text("-# theirs\n")
    assert (harken.directory / FILE).read_text() == theirs


async def test_a_file_that_cannot_be_written_is_shown_to_be_copied(page: Page, harken: HarkenProcess) -> None:
    outside = harken.directory.parent / f"{harken.directory.name}-outside.yaml"
    os.rename(harken.directory / FILE, outside)
    (harken.directory / FILE).symlink_to(outside)
    await page.goto("/workflows/deploys?tab=yaml&edit=1")
    await expect(page.get_by_text("is a symbolic link")).to_be_visible()
    await expect(editor(page)).to_have_attribute("contenteditable", "false")
    await expect(page.get_by_role("button", name="Copy the YAML")).to_be_visible()
    await expect(page.get_by_role("button", name="Show the diff…")).to_have_count(0)


async def test_who_may_not_write_has_no_button(page: Page, harken: HarkenProcess) -> None:
    token = await harken.call("POST", "/api/tokens", {"name": "looks", "role": "viewer"})
    await page.goto("/workflows/deploys")
    await expect(page.get_by_role("button", name="Edit")).to_be_visible()
    await page.evaluate(
        """token => fetch("/api/session", {method: "POST", headers: {"content-type": "application/json"},
            body: JSON.stringify({token})})""",
        token["token"],
    )
    await page.goto("/workflows/deploys?tab=yaml&edit=1")
    await expect(page.get_by_role("textbox", name="YAML of deploys")).to_contain_text("was deployed")
    await expect(page.get_by_role("button", name="Edit")).to_have_count(0)


async def test_the_editor_offers_keys_and_values_with_what_they_mean(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/workflows/deploys?tab=yaml&edit=1")
    await expect(editor(page)).to_contain_text("was deployed")
    await type_at_end(page, "    ")
    await page.keyboard.type("on_e")
    offered = page.get_by_role("listbox", name="Completions")
    await offered.get_by_role("option", name="on_error").click()
    await expect(editor(page)).to_contain_text("on_error: ")
    await page.keyboard.press("Control+Space")
    await expect(offered.get_by_role("option")).to_have_text(["fail", "fallback", "ignore"])
    # the first Esc closes the list, and the editor keeps the focus
    await page.keyboard.press("Escape")
    await expect(offered).to_have_count(0)
    await page.keyboard.type("ig")
    await offered.get_by_role("option", name="ignore").click()
    await expect(editor(page)).to_contain_text("on_error: ignore")


CASES = {
    "‸": ["name", "trigger", "steps"],
    "name: x\ntrigger:\n  ‸": ["webhook", "poll", "schedule", "condition"],
    "trigger:\n  webhook: {id: a, sch‸": ["scheme", "secret"],
    "trigger:\n  webhook:\n    scheme: ‸": ["hmac", "standard_webhooks"],
    "trigger:\n  poll:\n    integration: github\n    query:\n      ‸": ["repos", "labels"],
    "trigger:\n  poll: {integration: github, query: {state: ‸": ["open", "closed"],
    "steps:\n  - ‸": ["id", "action"],
    "steps:\n- id: a\n  ‸\n  action: http": ["url", "method"],
    "steps:\n  - {id: a, action: transform, ‸": ["set"],
    "steps:\n  - id: a\n    action: if\n    then:\n      - id: b\n        action: http\n        ‸": ["url", "headers"],
}
NOTHING = ["name: x # ‸", "trigger:\n  condition: event.x‸", 'name: "a‸']
SUGGEST = """async ([schema, text]) => {
  const base = document.querySelector("script[type=module]").src.replace("main.js", "");
  const { suggest } = await import(base + "pages/yaml_completion.js");
  const before = text.slice(0, text.indexOf("‸")).split("\\n");
  const found = suggest(schema, text.replace("‸", "").split("\\n"), before.length - 1, before.at(-1).length);
  return found && found.options.map((option) => option.label);
}"""


async def test_what_is_offered_is_what_the_schema_has_at_that_place(
    shared_page: Page, shared_harken: HarkenProcess
) -> None:
    await shared_page.goto("/workflows")
    schema: Any = await shared_harken.call("GET", "/api/config/schema")
    offered = {text: await shared_page.evaluate(SUGGEST, [schema, text]) for text in [*CASES, *NOTHING]}
    missing = {text: offered[text] for text, wanted in CASES.items() if not set(wanted) <= set(offered[text] or ())}
    assert missing == {}, json.dumps(missing)
    assert [text for text in NOTHING if offered[text]] == []
    # what stands there already is not offered again
    assert "action" not in offered["steps:\n- id: a\n  ‸\n  action: http"]


async def test_axe_finds_nothing(shared_page: Page) -> None:
    views = {"/workflows/deploys?tab=yaml&edit=1": ".editor", "/triggers/deploys?tab=definition&edit=1": ".editor"}
    await axe.check(shared_page, views)
    await shared_page.goto("/workflows/deploys?tab=yaml&edit=1")
    await type_at_end(shared_page, "    on_error: often\n")
    await expect(shared_page.locator(".file-findings li")).to_be_visible()
    assert await axe.findings(shared_page) == []
    await shared_page.get_by_role("button", name="Discard the changes").click()
    await type_at_end(shared_page, "# a remark\n")
    await shared_page.get_by_role("button", name="Show the diff…").click()
    await expect(shared_page.locator(".text-diff .added")).to_be_visible()
    assert await axe.findings(shared_page) == []
