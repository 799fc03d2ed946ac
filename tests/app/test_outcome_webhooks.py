"""Programs elsewhere are told how runs and triggers fare, by webhooks that the reference library verifies."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from harken.app import App
from harken.config.outcome_webhooks import CATALOGUE
from harken.event import Event
from harken.feed import INTERNAL
from harken.match import Read
from harken.operate.load_and_check_configuration import load_directory

NEW, OLD = (f"whsec_{b64encode(letter * 24).decode()}" for letter in (b"n", b"o"))
DOCS = Path(__file__).parents[2] / "docs" / "reference" / "outcome-webhooks.md"


@dataclass
class Receiver:
    """Takes webhooks and keeps them as they came. `status` is what it answers."""

    url: str = ""
    status: int = 204
    taken: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.taken.append((headers, await request.read()))
        return web.Response(status=self.status)

    async def told(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(60):
            while len(self.taken) < count:  # noqa: ASYNC110 - requests come when they come
                await asyncio.sleep(0.01)
        return [json.loads(body) for _, body in self.taken]


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    made, app = Receiver(), web.Application()
    app.router.add_post("/hook", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield made
    await runner.cleanup()


def write(directory: Path, url: str, *, types: str = "", format: str = "standard_webhooks") -> None:
    (directory / "harken.yaml").write_text(f"""
integrations:
  signing: {{kind: webhook, format: {format}, secret: [{NEW}, {OLD}], allow_private_networks: true}}
outcome_webhooks:
  - {{name: ops, channel: signing, to: "{url}"{types}}}
""")
    (directory / "workflows").mkdir(exist_ok=True)
    fails = "- {id: get, action: http, url: 'http://127.0.0.1:1/', retry: {max_attempts: 1}}"
    (directory / "workflows" / "broken.yaml").write_text(f"name: broken\nsteps:\n  {fails}\n")


async def says(app: App, type: str, **data: Any) -> None:
    """Harken announces something, as its own parts do."""
    now = app.operator._context.clock.now()
    event = Event(subject="x", type=type, key=f"{type}@{now}", state=f"{type}@{now}", occurred_at=now, data=data)
    await app.intake.committer.push(INTERNAL, [event], Read(now=now + timedelta(seconds=1)))


async def test_a_run_that_died_is_told_and_both_keys_verify_it(tmp_path: Path) -> None:
    async with receiving() as receiver:
        write(tmp_path, receiver.url)
        async with App.start(tmp_path, port=0) as app:
            started = await app.operator.call("workflows.run", name="broken")
            [told] = await receiver.told(1)
        assert (told["type"], told["data"]["run"], told["data"]["workflow"]) == ("dead.added", started["id"], "broken")
        [(headers, body)] = receiver.taken
    for secret in (NEW, OLD):
        assert Webhook(secret).verify(body.decode(), headers)["type"] == "dead.added"


async def test_every_outcome_of_the_catalogue_is_told_by_its_name(tmp_path: Path) -> None:
    async with receiving() as receiver:
        write(tmp_path, receiver.url)
        async with App.start(tmp_path, port=0) as app:
            for own in CATALOGUE.values():
                await says(app, own, trigger="mail", text="something happened")
            told = await receiver.told(len(CATALOGUE))
    assert {one["type"] for one in told} == set(CATALOGUE)
    assert {one["data"]["trigger"] for one in told} == {"mail"}
    assert len({headers["webhook-id"] for headers, _ in receiver.taken}) == len(CATALOGUE)


async def test_only_the_chosen_types_are_told(tmp_path: Path) -> None:
    async with receiving() as receiver:
        write(tmp_path, receiver.url, types=", types: [gap.found]")
        async with App.start(tmp_path, port=0) as app:
            await says(app, "run.failed", trigger="mail")
            await says(app, "feed.gap", feed="orders")
            [told] = await receiver.told(1)
    assert told["type"] == "gap.found"


async def first_dead(app: App) -> Any:
    async with asyncio.timeout(60):
        while not (letters := (await app.store.dead()).items):  # noqa: ASYNC110 - nothing tells of a dead letter
            await asyncio.sleep(0.01)
    return letters


async def test_a_webhook_that_nobody_takes_is_tried_again_and_tells_nothing_of_itself(tmp_path: Path) -> None:
    async with receiving() as receiver:
        receiver.status = 400
        write(tmp_path, receiver.url)
        async with App.start(tmp_path, port=0) as app:
            await says(app, "trigger.stale", trigger="mail")
            letters = await first_dead(app)
            events = (await app.store.events(feed=INTERNAL)).items
    assert [letter.trigger for letter in letters] == ["outcome_webhook/ops"]
    own = [event for event in events if event.data.get("trigger") == "outcome_webhook/ops"]
    verdicts = [(verdict.trigger, verdict.outcome) for event in own for verdict in event.verdicts]
    assert ("outcome_webhook/ops", "filtered") in verdicts
    assert len(receiver.taken) == 1


async def test_a_try_after_a_refusal_has_the_same_id(tmp_path: Path) -> None:
    async with receiving() as receiver:
        receiver.status = 400
        write(tmp_path, receiver.url)
        async with App.start(tmp_path, port=0) as app:
            await says(app, "trigger.stale", trigger="mail")
            letters = await first_dead(app)
            receiver.status = 204
            await app.operator.call("dead.retry", id=letters[0].id)
            await receiver.told(2)
    ids = {headers["webhook-id"] for headers, _ in receiver.taken}
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("format", "said"),
    [("harken", "does not sign as receivers can verify"), ("standard_webhooks", "")],
)
def test_an_integration_that_signs_otherwise_is_found_before_the_first_event(
    tmp_path: Path, format: str, said: str
) -> None:
    write(tmp_path, "https://example.com/hook", format=format)
    errors = [str(finding) for finding in load_directory(tmp_path).findings]
    assert [said in error for error in errors] == ([True] if said else [])


def test_every_outcome_is_catalogued_with_an_example() -> None:
    page = DOCS.read_text("utf-8")
    for type in CATALOGUE:
        section = page.split(f"### {type}\n", 1)[1].split("\n### ", 1)[0]
        example = json.loads(section.split("```json\n", 1)[1].split("```", 1)[0])
        assert (example["type"], sorted(example)) == (type, ["data", "timestamp", "type"])
