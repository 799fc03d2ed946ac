"""A labelled issue on a GitHub that others wrote: one run, the labels of its life, one comment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harken.app import App
from harken.clock import SystemClock
from tests.servers.emulate import EmulatedGitHub
from tests.services.whole import running, write
from tests.system.hostile.misbehaving_server import until

pytestmark = [pytest.mark.process, pytest.mark.worker_group("emulate")]

SEED = """
tokens:
  token-of-the-robot: {login: harken-robot, scopes: [repo, user]}
  token-of-ada: {login: ada, scopes: [repo, user]}
github:
  users: [{login: ada, name: Ada}, {login: harken-robot, name: Harken}]
  repos: [{owner: ada, name: shop, auto_init: true}]
"""

CONFIG = """
trackers:
  hub:
    type: github
    base_url: {url}
    organization: ada
    token: ${{HUB_TOKEN}}
    polling: {{enabled: true, interval_seconds: 1, jitter_percent: 0}}
projects:
  shop: {{tracker: hub, resolution: {{repo: shop}}, pipeline_from_label: {{fix: fix-bug}}}}
"""

PIPELINE = """
name: fix-bug
steps:
  - {id: work, action: transform, set: {said: "fixed {{.trigger.event.ref}}"}}
"""

ENVIRON = {"HUB_TOKEN": "token-of-the-robot"}
LONG = 120.0
SECRET = "webhook_secret: a-webhook-secret-0123456789"


class Person:
    """Ada, who owns the repository, at work with its API."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ask(self, method: str, path: str, **body: Any) -> Any:
        async with self._session.request(method, f"/repos/ada/shop/{path}", json=body or None) as reply:
            assert reply.status < 300, await reply.text()
            return await reply.json()

    async def labels(self) -> list[str]:
        return sorted(label["name"] for label in await self.ask("GET", "issues/1/labels"))

    async def comments(self) -> list[str]:
        return [comment["body"] for comment in await self.ask("GET", "issues/1/comments")]

    async def sees_it_done(self) -> bool:
        return await self.labels() == ["bug", "fix", "harken:done"] and len(await self.comments()) == 1


@asynccontextmanager
async def ada_at(hub: EmulatedGitHub) -> AsyncIterator[Person]:
    headers = {"Authorization": "Bearer token-of-ada"}
    async with aiohttp.ClientSession(hub.url, headers=headers) as session:
        yield Person(session)


async def outcomes(app: App) -> list[str]:
    return [run["outcome"] for run in (await app.operator.call("runs.list"))["items"]]


async def read_again(app: App) -> None:
    """Return when the tracker was read once more from beginning to end."""
    await app.operator.call("triggers.run", name="hub/shop")


async def test_a_label_is_one_run_its_labels_and_one_comment(tmp_path: Path) -> None:
    with EmulatedGitHub(SEED) as hub:
        write(tmp_path, CONFIG.format(url=hub.url), **{"fix-bug": PIPELINE})
        async with ada_at(hub) as ada:
            await ada.ask("POST", "issues", title="It breaks", body="When I press it", labels=["bug"])
            async with running(tmp_path, SystemClock(), ENVIRON) as app:
                await read_again(app)
                assert await outcomes(app) == []
                await ada.ask("POST", "issues/1/labels", labels=["fix"])
                await until(ada.sees_it_done, LONG)
                for _ in range(3):
                    await read_again(app)
                assert await outcomes(app) == ["done"]
            # a new process sweeps at its start
            async with running(tmp_path, SystemClock(), ENVIRON) as app:
                for _ in range(2):
                    await read_again(app)
                assert await outcomes(app) == ["done"]
            assert await ada.sees_it_done()
            [comment] = await ada.comments()
            assert "harken-receipt" in comment


async def test_a_webhook_is_found_by_whoever_may_see_it(tmp_path: Path) -> None:
    with EmulatedGitHub(SEED) as hub:
        text = CONFIG.replace("polling: {{enabled: true, interval_seconds: 1, jitter_percent: 0}}", SECRET)
        write(tmp_path, text.format(url=hub.url), **{"fix-bug": PIPELINE})
        async with ada_at(hub) as ada:
            config = {"url": "http://127.0.0.1:9/webhooks/github/hub?key=s3cret", "content_type": "json"}
            await ada.ask("POST", "hooks", name="web", active=False, events=["issues"], config=config)
        told = []
        for token in ("token-of-the-robot", "token-of-ada"):
            async with running(tmp_path, SystemClock(), {"HUB_TOKEN": token}) as app:
                [place] = (await app.operator.call("trackers.test", name="hub"))["locations"]
                told.append(place["webhooks"]["note"] or place["webhooks"]["problem"])
        assert told == [
            "the webhooks of ada/shop cannot be read with this token",
            "the webhook to http://127.0.0.1:9/webhooks/github/hub is switched off",
        ]
