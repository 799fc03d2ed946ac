"""Webhooks of known senders in the whole engine: accepted, committed once, and run."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from harken.app import App
from harken.services import registry
from harken.testing import VirtualClock, virtual
from tests.services.whole import occurrences, running, write

SECRET = "correct-horse"
PROVIDERS = (
    "alertmanager",
    "azure_devops",
    "github",
    "gitlab",
    "grafana",
    "jira",
    "pagerduty",
    "sentry",
    "slack",
    "stripe",
)


def workflow(name: str, webhook: str) -> str:
    return f"""\
name: {name}
trigger:
  webhook: {{id: inbox, secret: {SECRET}, {webhook}}}
steps:
  - {{id: note, action: transform, set: {{text: came}}}}
"""


async def post(app: App, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"method": "POST", "path": f"/webhooks/{path}", "headers": given, "query_string": b""}
    await app.intake.webhooks(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


def filled(value: str) -> str:
    basic = base64.b64encode(f"harken:{SECRET}".encode()).decode()
    return value.replace("Basic $SECRET", f"Basic {basic}").replace("$SECRET", SECRET)


@virtual
async def test_each_sender_starts_one_run_however_often_it_sends_the_same(clock: VirtualClock, tmp_path: Path) -> None:
    write(tmp_path, "", **{provider: workflow(provider, f"provider: {provider}") for provider in PROVIDERS})
    async with running(tmp_path, clock) as app:
        answers = {}
        for provider in PROVIDERS:
            await clock.sleep(1)
            plugin = registry()[provider]
            assert plugin.webhook_sample is not None
            query = app.loaded.queries[f"webhook/{provider}/inbox"]
            sample = plugin.webhook_sample(query, clock.now())
            headers = {name: filled(value) for name, value in sample.headers.items()}
            sends = [await post(app, f"{provider}/inbox", headers, sample.body) for _ in range(3)]
            answers[provider] = [status for status, _ in sends]
            assert (await post(app, f"{provider}/inbox", {}, sample.body))[0] == 401
        await clock.sleep(5)
        rows = (await app.operator.call("webhooks.list"))["items"]
        assert len(await occurrences(app)) == len(PROVIDERS)
    assert answers == {provider: [202, 200, 200] for provider in PROVIDERS} | {"slack": [200, 200, 200]}
    assert [(row["provider"], row["triggers"], row["refused"]) for row in rows] == [
        (one, [one], 1) for one in PROVIDERS
    ]


@virtual
async def test_the_events_of_a_batch_are_stored_together_and_each_once(clock: VirtualClock, tmp_path: Path) -> None:
    write(tmp_path, "", hook=workflow("hook", "scheme: api_key, format: cloudevents"))
    one = {"specversion": "1.0", "source": "/shop", "type": "paid"}
    batch = [{**one, "id": str(number)} for number in range(50)]
    headers = {"x-api-key": SECRET, "content-type": "application/cloudevents-batch+json"}
    async with running(tmp_path, clock) as app:
        await clock.sleep(1)
        first = await post(app, "generic/inbox", headers, msgspec.json.encode(batch))
        again = await post(app, "generic/inbox", headers, msgspec.json.encode([*batch, {**one, "id": "new"}]))
        await clock.sleep(30)
        keys = await occurrences(app)
    assert (first[0], msgspec.json.decode(first[1])) == (202, {"accepted": 50, "duplicate": 0})
    assert (again[0], msgspec.json.decode(again[1])) == (202, {"accepted": 1, "duplicate": 50})
    assert len(keys) == 51
