"""The builder: a trigger is made with its dry run beside it, from nothing, from an event, from YAML or from a row."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal
from urllib.parse import quote
from urllib.request import Request, urlopen

from playwright.async_api import BrowserContext, Page, Route, expect

from tests.ui import axe
from tests.ui.harken_process import HarkenProcess

STEPS = {"steps": [{"id": "say", "action": "transform", "set": {"text": "hi"}}]}
ROW: dict[str, Any] = {"name": "mine", "provider": "api", "workflow": STEPS}
YAML = """name: nightly
trigger:
  schedule: {every: 1h}
  condition: event.n > 3 && event.kind == "full"
  overlap: skip
steps:
  - id: say
    action: transform
    set: {text: good night}
"""
PASTE = """(text) => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true, composed: true });
  (document.activeElement ?? document.body).dispatchEvent(event);
}"""

CONDITIONS = [
    "",
    'event.service == "checkout"',
    'event.service != "a \\"quoted\\" && (odd) one"',
    "event.size > 3 && event.size <= 10 && event.ratio < 2.5 && event.x >= -1",
    'event.ok == true && event.note == null && event.service in ["a", "b", 3]',
    '"prod" in event.labels && 7 in event.numbers',
    'event.a.contains("x") && event.a.startsWith("y") && event.a.endsWith("z") && event.a.matches("^q.*")',
    'has(event.a.b) && !has(event.c) && !("team id" in event.who)',
    'event.who["team id"] == 7 && event.labels[0] == "prod" && meta.type == "x"',
    'timestamp(event.at) >= timestamp("2026-01-05T00:00:00Z") && timestamp(event.at) < timestamp("2027-01-05")',
    "size(event.labels) == 2 && size(event.labels) > 1",
    'event.labels.exists(l, l == "bug" && l != "x")',
    "event.a == 1.0 && event.b == 1u && event.c == 'single'",
    'event.a == "x" || event.b == 2',
    "event.a && (event.b || event.c) && (event.d ? event.e : event.f)",
    "!(event.a && event.b)",
    'event.a == r"raw\\d" && event.b == 1',
    'event.a == """triple "quotes" """ && event.b == 1',
    "event.a == 1 // a comment && event.b\n && event.c == 2",
    "event.a == (1",
    'event.a == "open',
    "event.a ==",
    'event.a in ["x"] && [1, 2].exists(n, n == event.b) && {"k": event.c}.k == 1',
]
EQUAL = """async (conditions) => {
  const { prefix } = { prefix: document.querySelector('script[type=module]').src.replace(/main.js$/, "") };
  const { toRows, toCondition } = await import(prefix + "components/condition_rows.js");
  return conditions.map((condition) => {
    const rows = toRows(condition);
    const again = toCondition(rows);
    return { again, rows, stable: JSON.stringify(toRows(again)) === JSON.stringify(rows) };
  });
}"""
CLICKED = """async (payload) => {
  const prefix = document.querySelector('script[type=module]').src.replace(/main.js$/, "");
  const { toRows, toCondition } = await import(prefix + "components/condition_rows.js");
  const { clauseFor } = await import(prefix + "components/clause.js");
  return [...Object.entries(payload), ["gone", undefined]].map(([name, value]) => {
    const clause = clauseFor([name], value, "event");
    return [name, clause, toCondition(toRows(clause)), toRows(clause)[0].cel === undefined];
  });
}"""

SIGN_IN = """(token) => fetch("/api/session", {method: "POST", headers: {"content-type": "application/json"},
  body: JSON.stringify({token})}).then((answer) => answer.status)"""
AXE_VIEWS: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1280), ("dark", 390))


async def sent(harken: HarkenProcess) -> None:
    """Thirteen deploys: every third of them of `checkout`."""
    for number in range(13):
        service = ["search", "billing", "checkout"][number % 3]
        await harken.send("deploys", id=f"d-{number}", service=service, size=number, title=f"Deploy {number}")


def field(page: Page, name: str) -> Any:
    return page.get_by_label(name, exact=True)


async def test_a_trigger_is_made_with_a_dry_run_and_fires(page: Page, harken: HarkenProcess) -> None:
    await sent(harken)
    await page.goto("/triggers")
    await page.get_by_role("link", name="New trigger").click()
    await page.get_by_label("Search services").fill("webhooks incoming")
    await page.get_by_role("button", name="Signed webhooks").click()
    await field(page, "Scheme").select_option("none")
    await page.get_by_label("Allow unsigned").check()
    await page.get_by_label("Name *").fill("large")
    await page.get_by_role("button", name="Add a condition").click()
    await page.get_by_label("Condition 1: field").fill("event.size")
    await page.get_by_label("Condition 1: operator").select_option("is more than")
    await page.get_by_label("Condition 1: value").fill("3")
    dry_run = page.get_by_role("region", name="Dry run")
    await expect(dry_run).to_contain_text("Nothing was sent to this address yet")
    await expect(dry_run).to_contain_text("/webhooks/generic/large")
    await page.get_by_role("button", name="Create the trigger").click()
    await expect(page.get_by_role("heading", name="large")).to_be_visible()
    await harken.send("large", id="l-1", size=2)
    await harken.send("large", id="l-2", size=4)
    await expect(page.locator(".tile", has_text="Fired").first).to_contain_text("1")
    await page.get_by_role("link", name="Edit").click()
    await expect(dry_run).to_contain_text("1 would fire, 1 not")
    await expect(page.get_by_text("true for 1 event, not for 1")).to_be_visible()


async def test_what_is_typed_letter_by_letter_is_what_the_condition_has(page: Page, harken: HarkenProcess) -> None:
    await sent(harken)
    newest = (await harken.call("GET", "/api/events?limit=1"))["items"][0]["id"]
    await page.goto(f"/triggers/new?like={newest}&condition=event.size+%3E+1")
    value, operator = field(page, "Condition 1: value"), page.get_by_label("Condition 1: operator")
    for text in ("2.5", "-0.05", "1234567890123456789"):
        await value.fill("")
        await value.press_sequentially(text)
        await expect(value).to_have_value(text)
    await operator.select_option("is one of")
    await value.fill("")
    await value.press_sequentially('1.5, "a, b", 1234567890123456789')
    await page.get_by_role("button", name="Add a condition").click()
    await page.get_by_label("Condition 2: field").fill("")
    await page.get_by_label("Condition 2: field").press_sequentially('event["a b"]')
    await page.get_by_label("Condition 2: type of the value").select_option("number")
    await field(page, "Condition 2: value").fill("")
    await field(page, "Condition 2: value").press_sequentially("0.5")
    await page.get_by_role("button", name="Edit as CEL").click()
    condition = page.get_by_label("Condition in CEL")
    await expect(condition).to_have_value('event.size in [1.5, "a, b", 1234567890123456789] && event["a b"] == 0.5')
    await page.get_by_role("button", name="Edit as rows").click()
    await expect(value).to_have_value('1.5, "a, b", 1234567890123456789')


async def test_a_trigger_like_an_event_begins_with_its_feed_and_clause(page: Page, harken: HarkenProcess) -> None:
    await sent(harken)
    newest = (await harken.call("GET", "/api/events?limit=1"))["items"][0]["id"]
    await page.goto(f"/events/{newest}")
    await page.get_by_role("button", name="12", exact=True).click()
    await page.get_by_role("link", name="New trigger with this").click()
    await expect(page.get_by_label("Condition 1: field")).to_have_value("event.size")
    dry_run = page.get_by_role("region", name="Dry run")
    await expect(dry_run).to_contain_text("1 would fire, 12 not")
    await page.get_by_label("Condition 1: operator").select_option("is at least")
    await page.get_by_label("Condition 1: value").fill("9")
    await expect(dry_run).to_contain_text("4 would fire, 9 not")
    await page.get_by_role("button", name="Would not (9)").click()
    await expect(dry_run).to_contain_text("event.size >= 9 is false (event.size = 8)")
    await page.get_by_role("region", name="The newest event").get_by_role("button", name='"search"').click()
    await expect(page.get_by_label("Condition 2: value")).to_have_value("search")
    await expect(dry_run).to_contain_text("2 would fire, 11 not")
    await expect(
        page.get_by_role("img", name="Events and would-be runs per hour: 13 events, 2 would fire")
    ).to_be_visible()


async def test_what_is_wrong_stands_at_its_field_in_the_words_of_the_check(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/triggers/new")
    await page.get_by_role("button", name="JSON API").click()
    url = field(page, "Url *")
    await expect(url).to_have_attribute("aria-invalid", "true")
    await expect(page.locator("#field-trigger-poll-query-url-about")).to_contain_text("is missing")
    await url.fill("ftp://example.com")
    await expect(page.locator("#field-trigger-poll-query-url-about")).to_contain_text("http")
    await field(page, "Read every").fill("soon")
    await expect(page.locator("#field-trigger-poll-interval-about")).to_contain_text("'soon' is not a duration")
    await page.get_by_label("Name *").fill("deploys")
    await expect(page.locator("#name-about")).to_contain_text("the name deploys is taken by workflows/deploys.yaml")
    await page.get_by_role("button", name="Edit as CEL").click()
    await page.get_by_label("Condition in CEL").fill("event.size >")
    await expect(page.get_by_role("region", name="When should it fire?")).to_contain_text("Syntax error")
    await page.get_by_role("button", name="poll.interval: 'soon' is not a duration").click()
    await expect(field(page, "Read every")).to_be_focused()


async def test_conditions_are_rows_and_back_without_a_letter_lost(shared_page: Page) -> None:
    await shared_page.goto("/triggers")
    answers = await shared_page.evaluate(EQUAL, CONDITIONS)
    for condition, answer in zip(CONDITIONS, answers, strict=True):
        assert answer["stable"], condition
        assert answer["again"] == condition, condition
    as_rows = [all("cel" not in row for row in answer["rows"]) for answer in answers]
    assert as_rows[:11] == [True] * 11 and not any(as_rows[11:22])


async def test_a_clicked_leaf_is_a_clause_of_its_type_that_is_true_for_it(
    shared_page: Page, harken: HarkenProcess
) -> None:
    payload = {
        "text": 'say "hi"', "number": 7, "part": 2.5, "yes": True, "no": False, "nothing": None, "list": ["a", "b"],
        "time": "2026-01-05T09:00:00Z", "odd name": "x", "long": "y" * 300, "object": {"a": 1},
    }  # fmt: skip
    await harken.send("broken", id="b-1", **payload)
    await shared_page.goto("/triggers")
    for name, clause, again, is_row in await shared_page.evaluate(CLICKED, payload):
        assert again == clause and is_row, clause
        draft = await harken.call("POST", "/api/drafts", {**ROW, "condition": clause, "events_of": "broken"})
        assert [one["clause"] for one in draft["clauses"]] == [clause]
        assert draft["dry_run"]["shown"][0]["clauses"] == ["true"], (name, clause)


async def test_undo_and_redo_also_by_keys(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/triggers/new")
    await page.get_by_role("button", name="Schedule").click()
    every = field(page, "Every")
    await every.fill("5m")
    await page.get_by_label("Name *").fill("often")
    await page.keyboard.press("Control+z")
    await expect(page.get_by_label("Name *")).to_have_value("")
    await page.keyboard.press("Control+z")
    await expect(every).to_have_value("")
    await page.keyboard.press("Control+Shift+Z")
    await expect(every).to_have_value("5m")
    await page.get_by_role("button", name="Redo").click()
    await expect(page.get_by_label("Name *")).to_have_value("often")
    await expect(page.get_by_role("button", name="Redo")).to_be_disabled()
    for _ in range(3):
        await page.get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("heading", name="What should it listen to?")).to_be_visible()


async def test_yaml_that_is_pasted_anywhere_fills_the_form(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/triggers/new")
    await expect(page.get_by_role("button", name="Schedule")).to_be_visible()
    await page.evaluate(PASTE, YAML)
    await expect(page.get_by_label("Name *")).to_have_value("nightly")
    await expect(field(page, "Every")).to_have_value("1h")
    await expect(page.get_by_label("Condition 2: value", exact=True)).to_have_value("full")
    await expect(page.get_by_label("Overlap")).to_have_value("skip")
    await expect(page.get_by_role("textbox", name="Steps as YAML")).to_be_visible()
    await expect(page.locator(".editor").first).to_contain_text("good night")
    await page.get_by_label("Name *").focus()
    await page.evaluate(PASTE, "schedule: just a text")
    await expect(page.get_by_label("Name *")).to_have_value("nightly")
    await page.evaluate(PASTE, "trigger: [")
    await expect(page.get_by_role("status").filter(has_text="not YAML")).to_be_visible()
    await page.get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("heading", name="What should it listen to?")).to_be_visible()


async def test_a_draft_survives_a_reload_and_a_server_that_is_away(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/triggers/new")
    await page.get_by_role("button", name="Schedule").click()
    await field(page, "Every").fill("2h")
    await page.get_by_label("Name *").fill("kept")
    await page.reload()
    await expect(field(page, "Every")).to_have_value("2h")
    await harken.stop()
    await field(page, "Every").fill("3h")
    await expect(page.get_by_text("What you typed is kept until Harken answers again.")).to_be_visible()
    await harken.start()
    await expect(page.get_by_text("What you typed is kept until Harken answers again.")).to_be_hidden()
    await page.get_by_role("button", name="Create the trigger").click()
    await expect(page.get_by_role("heading", name="kept")).to_be_visible()
    row = (await harken.call("GET", "/api/triggers/kept"))["row"]
    assert row["config"] == {"every": "3h"}
    await page.goto("/triggers/new")
    await expect(page.get_by_role("heading", name="What should it listen to?")).to_be_visible()


async def test_a_row_is_edited_and_a_change_of_others_is_never_overwritten_unseen(
    page: Page, harken: HarkenProcess
) -> None:
    made = await harken.call("POST", "/api/triggers", {**ROW, "provider": "schedule", "config": {"every": "1h"}})
    await page.goto("/triggers/mine")
    await page.get_by_role("link", name="Edit").click()
    await expect(page.locator(".editor").first).to_contain_text("hi")
    await field(page, "Every").fill("2h")
    await asyncio.to_thread(edit, harken, "mine", made["revision"], {"config": {"every": "30m"}})
    await page.get_by_role("button", name="Save the trigger").click()
    await expect(page.get_by_role("alert").filter(has_text="was changed meanwhile")).to_be_visible()
    assert (await harken.call("GET", "/api/triggers/mine"))["row"]["config"] == {"every": "30m"}
    save, keep = page.get_by_role("button", name="Save the trigger"), page.get_by_role("button", name="Keep mine")
    seen = asyncio.Event()

    async def slowly(route: Route) -> None:
        await seen.wait()
        await route.continue_()

    await page.route("**/api/triggers/mine", slowly)
    await keep.click()
    # it is not known yet what would be replaced
    await expect(keep).to_have_attribute("aria-busy", "true")
    await expect(save).to_be_disabled()
    seen.set()
    await save.click()
    await expect(page.get_by_role("heading", name="mine", exact=True)).to_be_visible()
    row = (await harken.call("GET", "/api/triggers/mine"))["row"]
    assert (row["config"], row["workflow"]) == ({"every": "2h"}, STEPS)


async def test_the_account_of_a_row_is_never_taken_for_a_kind_of_service(page: Page, harken: HarkenProcess) -> None:
    harken.write({"harken.yaml": "integrations: {status-page: {kind: json, allow_private_networks: true}}\n"})
    await harken.call("POST", "/api/reload", {})
    config = {"integration": "status-page", "query": {"url": "http://127.0.0.1:1/", "items_path": "items"}}
    await harken.call("POST", "/api/triggers", {**ROW, "provider": "poll", "config": config})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/services/" in request.url else None)
    await page.goto("/triggers/new?edit=mine")
    await expect(field(page, "Url *")).to_have_value("http://127.0.0.1:1/")
    await expect(page.get_by_role("heading", name="Listen to a JSON API")).to_be_visible()
    assert asked == [f"{harken.url}/api/services/json"]


def edit(harken: HarkenProcess, name: str, revision: str, changes: Any) -> None:
    """Somebody else changes the row."""
    headers = {"Content-Type": "application/json", "If-Match": f'"{revision}"'}
    body = json.dumps(changes).encode()
    urlopen(Request(f"{harken.url}/api/triggers/{name}", body, headers, method="PATCH")).close()


async def test_a_viewer_sees_what_it_may_not_do(window: BrowserContext, harken: HarkenProcess) -> None:
    token = (await harken.call("POST", "/api/tokens", {"name": "eve", "role": "viewer"}))["token"]
    page = await window.new_page()
    await page.goto("/")
    assert await page.evaluate(SIGN_IN, token) == 204
    await page.goto("/triggers/new")
    await expect(page.get_by_text("Your token may look at triggers, and not make or change them.")).to_be_visible()
    await page.goto("/triggers")
    await expect(page.get_by_role("heading", name="Triggers")).to_be_visible()
    await expect(page.get_by_role("link", name="New trigger")).to_have_count(0)


async def begin_webhook(page: Page, name: str) -> None:
    """A draft of a webhook that is ready to be kept, with its file shown."""
    await page.goto("/triggers/new")
    await page.get_by_label("Search services").fill("webhooks incoming")
    await page.get_by_role("button", name="Signed webhooks").click()
    await field(page, "Scheme").select_option("none")
    await page.get_by_label("Allow unsigned").check()
    await page.get_by_label("Name *").fill(name)
    await page.get_by_text("Keep it as a file instead").click()


async def test_a_trigger_is_written_to_a_file_after_its_diff_and_fires(page: Page, harken: HarkenProcess) -> None:
    file = harken.directory / "workflows/filed.yaml"
    await begin_webhook(page, "filed")
    await expect(page.get_by_role("textbox", name="YAML of the trigger")).to_be_visible()
    write = page.get_by_role("button", name="Write to workflows/filed.yaml")
    await expect(write).to_be_visible()
    for theme, width in AXE_VIEWS:
        await page.set_viewport_size({"width": width, "height": 844})
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        assert await axe.findings(page) == [], (theme, width)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
    await write.click()
    dialog = page.get_by_role("dialog", name="Write workflows/filed.yaml?")
    await expect(dialog.locator(".added").first).to_have_text("+name: filed\n")
    assert await axe.findings(page) == []
    assert not file.exists()
    await dialog.get_by_role("button", name="Write and load it").click()

    # first what goes away by itself
    await expect(page.get_by_text("workflows/filed.yaml is written, and Harken took it")).to_be_visible()
    await expect(page).to_have_url(f"{harken.url}/triggers/filed")
    await expect(page.get_by_role("heading", name="filed")).to_be_visible()
    assert file.read_text().startswith("name: filed\ntrigger:\n  webhook:\n")
    shown = await harken.call("GET", "/api/triggers/filed")
    assert (shown["source"], shown["row"]) == ("workflows/filed.yaml", None)
    await harken.send("filed", id="f-1")
    await expect(page.locator(".tile", has_text="Fired").first).to_contain_text("1")
    await page.goto("/triggers/new")
    await expect(page.get_by_role("heading", name="What should it listen to?")).to_be_visible()


async def test_a_file_that_cannot_be_written_is_yaml_to_copy_with_the_reason(page: Page, harken: HarkenProcess) -> None:
    there, outside = harken.directory / "workflows/there.yaml", harken.directory / "outside.yaml"
    there.write_text("# kept for later\n")
    outside.write_text("# elsewhere\n")
    (harken.directory / "workflows/linked.yaml").symlink_to(outside)
    await begin_webhook(page, "there")
    await page.get_by_role("button", name="Write to workflows/there.yaml").click()
    await page.get_by_role("button", name="Write and load it").click()
    told = page.get_by_role("alert").filter(
        has_text="There is a file workflows/there.yaml already. It was left as it is."
    )
    await expect(told).to_be_visible()
    assert there.read_text() == "# kept for later\n"
    assert await axe.findings(page) == []
    await page.get_by_role("button", name="Give it another name").click()
    await expect(page.get_by_label("Name *")).to_be_focused()

    await page.get_by_label("Name *").fill("linked")
    await expect(page.get_by_text("linked.yaml in workflows/linked.yaml is a symbolic link")).to_be_visible()
    await expect(page.get_by_role("button", name="Copy the YAML")).to_be_visible()
    await expect(page.get_by_role("button", name="Write to")).to_have_count(0)
    await page.get_by_label("Name *").fill("")
    await expect(page.get_by_text("it has no name yet, and the file is called after it")).to_be_visible()


async def test_who_is_no_admin_has_the_yaml_of_the_file(page: Page, harken: HarkenProcess) -> None:
    token = (await harken.call("POST", "/api/tokens", {"name": "olga", "role": "operator"}))["token"]
    await page.goto("/")
    assert await page.evaluate(SIGN_IN, token) == 204
    await begin_webhook(page, "hers")
    await expect(page.get_by_text("files are written by admins, and your token is not one's")).to_be_visible()
    await expect(page.get_by_role("textbox", name="YAML of the trigger")).to_contain_text("name: hers")
    await expect(page.get_by_role("button", name="Copy the YAML")).to_be_visible()
    await expect(page.get_by_role("button", name="Write to")).to_have_count(0)


async def test_what_is_chosen_reads_as_a_sentence(shared_page: Page) -> None:
    await shared_page.goto("/triggers/new")
    for choice, heading in {
        "A named feed": "Listen to a named feed",
        "By hand or by API": "Start it by hand or by API",
        "Harken's own events": "Listen to Harken's own events",
        "PagerDuty": "Listen to PagerDuty",
    }.items():
        await shared_page.get_by_role("button", name=choice).first.click()
        await expect(shared_page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
        await shared_page.get_by_role("button", name="Choose another").click()


async def test_the_builder_has_no_finding_of_axe(page: Page, harken: HarkenProcess) -> None:
    await sent(harken)
    newest = (await harken.call("GET", "/api/events?limit=1"))["items"][0]["id"]
    condition = quote('event.size > 3 && event.labels.exists(l, l == "x")')
    await axe.check(
        page,
        {
            "/triggers/new": ".service",
            f"/triggers/new?like={newest}&condition={condition}": ".said",
        },
    )
