"""Something of every noun for a fuzzer: a whole Harken with a tracker, webhooks, runs that wait and runs that died."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from harken.app import App
from harken.clock import SystemClock
from harken.testing.fakes import Listing
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.ntfy import FakeNtfy
from tests.services.whole import write
from tests.system.kill.outside_world import HOOKS, signed

__all__ = ["inhabited"]

MAIN = """
store: {store}
models: {{default: echo}}
integrations:
  github: {{kind: github, token: classic, base_url: "{url}", allow_private_networks: true}}
  ntfy: {{kind: ntfy, base_url: "{ntfy}", allow_private_networks: true}}
  shop: {{kind: json, allow_private_networks: true}}
feeds:
  items:
    integration: shop
    interval: 10m
    query: {{url: "{listing}/offsets", items_path: items, time_field: created_at}}
trackers:
  acme: {{type: github, project: acme/shop, base_url: "{url}", polling: {{enabled: true, interval_seconds: 600}}}}
projects:
  shop: {{tracker: acme, pipeline_from_label: {{fix: fix-bug}}}}
"""
FIX_BUG = """
name: fix-bug
steps:
  - {id: work, action: wait, for: 1h}
"""
HOOKED = f"""
name: hooked
trigger: {{{HOOKS}}}
steps:
  - {{id: ask, action: approve, prompt: "may I?"}}
"""
FAILING = """
name: failing
trigger: {webhook: {id: failing, secret: not much of a secret, id_field: id}}
steps:
  - {id: stop, action: http, url: "http://127.0.0.1:9/"}
"""
POLLED = """
name: polled
trigger: {feed: items}
steps:
  - {id: say, action: transform, set: {text: hello}}
"""
HOURLY = """
name: hourly
trigger: {schedule: {every: 1h}}
steps:
  - {id: say, action: transform, set: {text: hello}}
"""


@asynccontextmanager
async def inhabited(directory: Path, store: str) -> AsyncIterator[App]:
    """Started, with an event, a run that waits for a person and one that is dead."""
    hub = GitHub(SystemClock())
    hub.repos["acme/shop"].roles["leo"] = "write"
    listing = Listing(SystemClock())
    async with hub.serve(), FakeNtfy(SystemClock()).serve() as ntfy, listing.serve():
        hub.open("fix", by="leo", title="It breaks")
        texts = {"fix-bug": FIX_BUG, "hooked": HOOKED, "failing": FAILING, "hourly": HOURLY, "polled": POLLED}
        write(directory, MAIN.format(store=json.dumps(store), url=hub.url, ntfy=ntfy, listing=listing.url), **texts)
        async with App.start(directory, port=0) as app:
            await _send_webhooks(app)
            while not {"waiting", "dead"} <= await _statuses(app):
                await app.controller.changed(0.1)
            yield app


async def _send_webhooks(app: App) -> None:
    async with aiohttp.ClientSession() as session:
        for id in ("hooks", "failing"):
            body, headers = signed("one")
            async with session.post(f"{app.url}/webhooks/generic/{id}", data=body, headers=headers) as reply:
                assert reply.status == 202, await reply.text()


async def _statuses(app: App) -> set[str]:
    return {row["status"] for row in (await app.operator.call("runs.list"))["items"]}
