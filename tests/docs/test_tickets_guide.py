"""Tasks of docs/how-to/tickets.md, done on a stand-in for GitHub with the configuration that the page shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from harken.app import App
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.github import GitHub, Issue
from harken.testing.fakes.github_app import InstalledApp
from tests.app.test_ticket_and_run_sync import post
from tests.docs.test_tickets_page import MAIN, PIPELINE
from tests.services.whole import running, write

SECRET = "a-webhook-secret-0123456789"
ENVIRON = {"GITHUB_TOKEN": "classic", "GITHUB_WEBHOOK_SECRET": SECRET}
ORGANIZATION, TOKEN = "    organization: acme\n", "    token: ${GITHUB_TOKEN}\n"


@asynccontextmanager
async def guided(directory: Path, clock: VirtualClock, **changes: str) -> AsyncIterator[tuple[App, GitHub]]:
    """The first configuration of the page. `changes`: lines in place of its token and its polling."""
    hub = GitHub(clock)
    hub.repos["acme/shop"].roles["leo"] = "write"
    hub.app = InstalledApp("acme/shop")
    (directory / "app.pem").write_text(hub.app.private_key)
    (directory / "app.pem").chmod(0o600)
    async with hub.serve():
        text = MAIN[0].replace(ORGANIZATION, f"{ORGANIZATION}    base_url: {hub.url}\n")
        text = text.replace(TOKEN, changes.get("token", TOKEN))
        text = text.replace("    polling: {enabled: true}\n", changes.get("polling", "    polling: {enabled: true}\n"))
        write(directory, text, **{"first-look": PIPELINE})
        async with running(directory, clock, ENVIRON) as app:
            await clock.sleep(60)
            yield app, hub


async def runs(app: App) -> list[Any]:
    found: list[Any] = (await app.operator.call("runs.list"))["items"]
    return [run["status"] for run in found]


def ours(issue: Issue) -> list[str]:
    return [label for label in issue.labels if label.startswith("harken:")]


@virtual
async def test_a_label_starts_the_pipeline_and_taking_ours_off_starts_it_again(clock: VirtualClock, tmp_path: Path):
    async with guided(tmp_path, clock) as (app, hub):
        issue = hub.open("triage", by="leo")
        await clock.sleep(300)
        assert (ours(issue), await runs(app)) == (["harken:done"], ["done"])
        hub.unlabel(issue, "harken:done", by="leo")
        await clock.sleep(300)
        assert (ours(issue), await runs(app)) == (["harken:done"], ["done", "done"])


@virtual
async def test_a_github_app_signs_in_in_place_of_a_token(clock: VirtualClock, tmp_path: Path):
    app_lines = '    app_id: "1234"\n    private_key: ${file:app.pem}\n'
    async with guided(tmp_path, clock, token=app_lines) as (_, hub):
        issue = hub.open("triage", by="leo")
        await clock.sleep(300)
        assert ours(issue) == ["harken:done"]
        assert {comment["user"]["login"] for comment in issue.comments} == {"harken-acme[bot]"}


@virtual
async def test_a_doorbell_believes_nothing_and_makes_us_read_now(clock: VirtualClock, tmp_path: Path):
    rung = "    webhook_secret: ${GITHUB_WEBHOOK_SECRET}\n    doorbell: true\n"
    async with guided(tmp_path, clock, polling=rung) as (app, hub):
        plain, issue = hub.open(by="leo"), hub.open("triage", by="leo")
        made_up = msgspec.structs.replace(plain, labels=["triage"])
        assert (await post(app, "github/hub", made_up))[0] in (200, 202)
        await clock.sleep(60)
        assert (ours(issue), ours(plain)) == (["harken:done"], [])
        assert await runs(app) == ["done"]


@virtual
async def test_after_a_cancelled_run_the_label_is_taken_off_and_put_on_again(clock: VirtualClock, tmp_path: Path):
    async with guided(tmp_path, clock) as (app, hub):
        issue = hub.open("triage", by="eve")
        await clock.sleep(300)
        assert await runs(app) == ["cancelled"]
        hub.unlabel(issue, "triage", by="leo")
        await clock.sleep(120)
        hub.label(issue, "triage", by="leo")
        await clock.sleep(300)
        assert (ours(issue), await runs(app)) == (["harken:done"], ["done", "cancelled"])
