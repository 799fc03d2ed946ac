"""`harken explain` finds a ticket by whatever people call it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harken.app import App
from harken.errors import Refused
from harken.testing import VirtualClock, virtual
from tests.app.test_ticket_and_run_sync import at_work
from tests.app.test_ticket_webhooks import at_work as four_platforms
from tests.app.test_ticket_webhooks import post

TWO = """
trackers:
  hub: {{type: github, organization: acme, base_url: "{url}", polling: {{enabled: true}}}}
projects:
  shop: {{tracker: hub, resolution: {{repo: shop}}, pipeline_from_label: {{fix: fix-bug}}}}
  docs: {{tracker: hub, resolution: {{repo: docs}}, pipeline_from_label: {{fix: fix-bug}}}}
"""


async def explain(app: App, trigger: str, key: str) -> Any:
    return await app.operator.call("triggers.explain", name=trigger, key=key)


@virtual
async def test_a_ticket_is_explained_by_every_name_of_it(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, TWO) as (app, hub):
        hub.add_repo("acme/docs").roles["leo"] = "write"
        await clock.sleep(60)
        hub.open("bug", by="leo")
        issue = hub.open("fix", by="leo", title="It breaks")
        await clock.sleep(300)
        # newer, and of the other repository
        for _ in range(2):
            hub.open("fix", by="leo", repo="acme/docs", title="Not this one")
        await clock.sleep(300)
        right = await explain(app, "hub/shop", f"{issue.number}@{issue.id}@ready:fix")
        assert (right["outcome"], right["stage"], right["details"]["title"]) == ("fired", "run", "It breaks")
        names = ("2", "#2", " 2 ", "acme/shop#2", "ACME/Shop#2", "https://github.com/acme/shop/issues/2#issuecomment-1")
        for name in names:
            answer = await explain(app, "hub/shop", name)
            assert answer["sentence"] == right["sentence"], name
            assert "claimed:done" in str(answer["details"]["later"])
        assert (await explain(app, "hub/docs", "#2"))["details"]["title"] == "Not this one"
        with pytest.raises(Refused, match="is a ticket of acme/docs, and hub/shop is for those of acme/shop"):
            await explain(app, "hub/shop", "acme/docs#2")


@virtual
async def test_a_ticket_that_started_nothing_is_explained_by_where_it_stands(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with at_work(tmp_path, clock, TWO) as (app, hub):
        hub.add_repo("acme/docs")
        await clock.sleep(60)
        hub.open("harken:pending", by="leo")
        await clock.sleep(300)
        answer = await explain(app, "hub/shop", "acme/shop#1")
        assert answer["outcome"] == "unmatched"
        assert "started nothing: none of the labels of pipeline_from_label is on the ticket (fix)" in answer["sentence"]
        assert answer["advice"] == ["See where the ticket stands now: harken tickets show acme/shop#1"]


@virtual
async def test_a_number_that_no_ticket_has_is_that_of_an_event(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, TWO) as (app, hub):
        hub.add_repo("acme/docs")
        await clock.sleep(60)
        for _ in range(3):
            hub.open("fix", by="leo")
        await clock.sleep(300)
        newest = max(event["id"] for event in (await app.operator.call("events.list"))["items"])
        assert newest > 3
        assert (await explain(app, "hub/shop", f"#{newest}"))["details"]["event_id"] == newest
        assert (await explain(app, "hub/shop", "#3"))["details"]["subject"].startswith("3@")
        for name in ("12", "#4711", "acme/shop#12"):
            assert (await explain(app, "hub/shop", name))["outcome"] == "never_seen"


@virtual
async def test_a_ticket_of_which_no_event_is_near_is_asked_for(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harken.operate.events_by_ticket_name.RECENT", 1)
    async with four_platforms(tmp_path, clock) as (app, them):
        for path, body in them.open().items():
            assert (await post(app, path, body, them.sign(path, body)))[0] == 202
        await clock.sleep(60)
        them.lab.open("fix")
        await clock.sleep(1_000)
        assert (await explain(app, "lab/two", "acme/web/shop#1"))["outcome"] == "fired"
        them.lab.tokens.clear()
        answer = await explain(app, "lab/two", "acme/web/shop#1")
        assert answer["outcome"] == "never_seen"
        assert "could not be asked for the ticket" in answer["details"]["not_asked"]


@virtual
async def test_tickets_of_every_platform_are_explained_by_their_names(clock: VirtualClock, tmp_path: Path) -> None:
    async with four_platforms(tmp_path, clock) as (app, them):
        for path, body in them.open().items():
            assert (await post(app, path, body, them.sign(path, body)))[0] == 202
        await clock.sleep(60)
        [item], [key] = them.board.items, [issue.key for issue in them.desk.issues.values()]
        asked = {
            "hub/one": ["1", "#1", "acme/shop#1"],
            "lab/two": ["1", "#1", "acme/web/shop#1", "https://lab.example/acme/web/shop/-/issues/1"],
            "board/three": [f"{item}", f"#{item}", f"https://dev.azure.com/acme/Shop/_workitems/edit/{item}"],
            "desk/four": [key, key.lower(), f"https://acme.atlassian.net/browse/{key}"],
        }
        for trigger, names in asked.items():
            for name in names:
                answer = await explain(app, trigger, name)
                assert (answer["stage"], answer["outcome"]) == ("run", "fired"), (trigger, name, answer["sentence"])
