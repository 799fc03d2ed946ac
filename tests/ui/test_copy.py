"""Everything that is shown can be copied in the forms that are of use elsewhere."""

from __future__ import annotations

import asyncio
import json
import shlex
from itertools import pairwise
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from playwright.async_api import BrowserContext, Page, expect

from harken.simulation.case_runner import run_cases
from tests.ui import axe
from tests.ui.harken_process import HarkenProcess

SIGNED = """
name: signed
trigger:
  webhook: {id: signed, secret: not-much-of-a-secret-4711, id_field: id}
steps:
  - {id: note, action: transform, set: {text: hello}}
"""


async def forms_of(page: Page) -> list[str]:
    menu = page.locator("details.menu").filter(has_text="Copy as").first
    await menu.locator("summary").click()
    found = await menu.get_by_role("button").all_inner_texts()
    await menu.locator("summary").click()
    return found


async def copied(page: Page, form: str, label: str = "Copy as") -> str:
    menu = page.locator("details.menu").filter(has=page.locator("summary", has_text=label)).first
    # what was copied before must not be taken for it: its message may still be there
    await page.evaluate("navigator.clipboard.writeText('')")
    await menu.locator("summary").click()
    await menu.get_by_role("button", name=form, exact=True).click()
    await page.wait_for_function("async () => await navigator.clipboard.readText()")
    await expect(page.get_by_text(f"{form} is copied", exact=True).last).to_be_visible()
    return str(await page.evaluate("navigator.clipboard.readText()"))


async def test_each_thing_is_copied_in_its_forms(page: Page, window: BrowserContext, harken: HarkenProcess) -> None:
    await window.grant_permissions(["clipboard-read", "clipboard-write"])
    await harken.send("deploys", id="d-1", service="checkout", by="Ada Lovelace")
    await harken.send("broken", id="b-1", numbers=[1])
    event = next(row for row in (await harken.call("GET", "/api/events"))["items"] if row["key"] == "d-1")
    await page.goto(f"/events/{event['id']}")
    assert await copied(page, "Command") == f"harken events show {event['id']}"
    assert await copied(page, "Command for a test") == f"harken test add {event['id']} --trigger deploys"
    case = await copied(page, "Test")
    (harken.directory / "tests").mkdir()
    (harken.directory / "tests" / "copied.yaml").write_text(case)
    assert "Ada Lovelace" not in case, "people are replaced"
    assert "service: checkout" in case
    assert (await asyncio.to_thread(run_cases, harken.directory)).failed == 0
    where = await copied(page, "CEL")
    found = await harken.call("GET", f"/api/events?where={quote(where, safe='')}")
    assert [row["id"] for row in found["items"]] == [event["id"]]
    await page.get_by_role("button", name='"checkout"').click()
    assert await copied(page, "Path", "Copy the value as") == "data.service"
    assert await copied(page, "CEL", "Copy the value as") == 'data.service == "checkout"'

    run = (await harken.call("GET", "/api/runs?workflow=deploys"))["items"][0]["id"]
    await page.goto(f"/runs/{run}")
    assert await copied(page, "Command to rerun") == f"harken runs rerun {run}"
    assert json.loads(await copied(page, "JSON"))["id"] == run

    await page.goto("/triggers/deploys")
    assert "name: deploys" in await copied(page, "YAML")
    assert await copied(page, "CEL") == 'event.service == "checkout"'
    await page.goto("/workflows/deploys")
    assert await copied(page, "Command") == "harken workflows run deploys --wait"

    while not (letters := (await harken.call("GET", "/api/dead"))["items"]):  # noqa: ASYNC110 (of another process)
        await asyncio.sleep(0.05)
    await page.goto(f"/dead?selected={letters[0]['id']}")
    assert await copied(page, "Command") == f"harken dead retry {letters[0]['id']}"


async def test_a_webhook_is_signed_afresh_and_sent_as_it_was_copied(
    page: Page, window: BrowserContext, harken: HarkenProcess
) -> None:
    await window.grant_permissions(["clipboard-read", "clipboard-write"])
    harken.write({"workflows/signed.yaml": SIGNED})
    await harken.call("POST", "/api/reload", {})
    await page.goto("/triggers/signed")
    assert (await sent(await copied(page, "cURL, signed"), harken))["repeats"] == 0
    event = (await harken.call("GET", "/api/events?feed=webhook/generic/signed"))["items"][0]["id"]
    await page.goto(f"/events/{event}")
    assert (await sent(await copied(page, "cURL, signed"), harken))["repeats"] == 1


async def sent(command: str, harken: HarkenProcess) -> Any:
    """The only event of the webhook, after what the command sends was sent."""
    assert "not-much-of-a-secret" not in command
    *words, body, address = shlex.split(command)
    headers = dict(word.split(": ", 1) for before, word in pairwise(words) if before == "-H")
    request = Request(address, body.encode(), headers, method="POST")
    with await asyncio.to_thread(urlopen, request, timeout=60) as reply:
        assert reply.status in (200, 202)
    [event] = (await harken.call("GET", "/api/events?feed=webhook/generic/signed"))["items"]
    return event


async def test_who_may_not_sign_has_no_such_form(page: Page, harken: HarkenProcess) -> None:
    await harken.send("deploys", id="d-1", service="checkout")
    await page.goto("/events/1")
    assert "cURL, signed" in await forms_of(page)
    token = await harken.call("POST", "/api/tokens", {"name": "looks", "role": "viewer"})
    await page.evaluate(
        """token => fetch("/api/session", {method: "POST", headers: {"content-type": "application/json"},
            body: JSON.stringify({token})})""",
        token["token"],
    )
    await page.goto("/events/1")
    assert "cURL, signed" not in await forms_of(page)


async def test_an_open_menu_is_accessible(page: Page, harken: HarkenProcess) -> None:
    await harken.send("deploys", id="d-1", service="checkout")
    await page.goto("/events/1")
    await page.locator("details.menu summary").first.click()
    assert await axe.findings(page) == []
