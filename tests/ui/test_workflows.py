"""Workflows: what starts them, their steps as a graph, and the state of a run on it."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.ui.harken_process import HarkenProcess

BRANCHES = """
name: branches
description: Pages the one on call, or writes to the log.
trigger:
  webhook: {id: branches, scheme: none, allow_unsigned: true, id_field: id}
steps:
  - id: look
    action: if
    condition: event.urgent
    then:
      - {id: page, action: transform, set: {to: "the one on call"}}
    else:
      - {id: note, action: transform, set: {to: "the log"}}
  - id: each
    action: foreach
    items: "{{.trigger.event.hosts}}"
    steps:
      - {id: name, action: transform, set: {host: "{{.item}}"}}
"""


async def test_the_graph_shows_which_branch_a_run_took(page: Page, harken: HarkenProcess) -> None:
    harken.write({"workflows/branches.yaml": BRANCHES})
    await harken.call("POST", "/api/reload", {})
    await harken.send("branches", id="b-1", urgent=True, hosts=["a", "b"])
    await page.goto("/workflows")
    await expect(page.get_by_text("Pages the one on call, or writes to the log.")).to_be_visible()
    await page.get_by_role("link", name="branches").first.click()

    graph = page.get_by_role("list", name="Steps", exact=True)
    await expect(graph.get_by_text("the one on call")).to_have_count(0)
    await expect(graph.get_by_text("not reached")).to_have_count(0)
    run = (await harken.call("GET", "/api/runs?workflow=branches"))["items"][0]["id"]
    await page.get_by_label("Show the state of").select_option(run)
    await expect(page).to_have_url(f"{harken.url}/workflows/branches?run={run}")
    then, otherwise = page.get_by_role("region", name="look, then"), page.get_by_role("region", name="look, else")
    await expect(then.get_by_text("done", exact=True)).to_be_visible()
    await expect(otherwise.get_by_text("not reached")).to_be_visible()
    await expect(page.get_by_role("region", name="each, for each item").get_by_text("2 items begun")).to_be_visible()


async def test_a_workflow_is_found_and_started_by_hand(page: Page, harken: HarkenProcess) -> None:
    await page.goto("/workflows?q=nothing-like-this")
    await expect(page.get_by_text("No workflows fit the filter.")).to_be_visible()
    await page.get_by_role("button", name="Clear the filter").click()
    await page.get_by_role("searchbox").fill("deploy")
    await expect(page.get_by_role("row")).to_have_count(2)
    await page.get_by_role("button", name="Run now").click()
    await expect(page.get_by_text("deploys was started")).to_be_visible()
    assert [run["workflow"] for run in (await harken.call("GET", "/api/runs"))["items"]] == ["deploys"]


async def test_the_text_of_a_workflow_names_its_file(shared_page: Page) -> None:
    await shared_page.goto("/workflows/deploys?tab=yaml")
    await expect(shared_page.get_by_role("textbox", name="YAML of deploys")).to_contain_text("was deployed")
    await expect(shared_page.get_by_text("change it here or there")).to_be_visible()
