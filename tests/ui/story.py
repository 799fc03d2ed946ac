"""An installation with something of everything: what is photographed, and what hostile content is sent to."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import aiohttp

from harken.app.store import open_store
from harken.clock import SystemClock
from harken.operate.activity_counts import Buckets, add_counts
from harken.operate.trigger_activity_counts import Counts, TriggerCounts, document_of
from harken.store.document_kinds import ACTIVITY, COUNTED, TRIGGER_ACTIVITY
from tests.ui.harken_process import HarkenProcess

__all__ = ["Story", "telling"]

HARKEN = """
store: harken.db
metrics: {enabled: false}
models: {default: echo}
integrations:
  status-page: {kind: json, allow_private_networks: true}
feeds:
  incidents:
    integration: status-page
    interval: 5s
    identity: transition
    query: {url: "URL/incidents", items_path: incidents, state_field: status, time_field: updated_at}
"""
WORKFLOWS = {
    "deploys": """
description: Every deploy of the checkout is announced; those of other services are not.
trigger:
  webhook: {id: deploys, scheme: none, allow_unsigned: true, id_field: id}
  condition: event.service == "checkout" && event.size < 500
steps:
  - id: words
    action: llm
    prompt: "{{.trigger.event.service}} {{.trigger.event.version}} by {{.trigger.event.by}}"
  - id: large
    action: if
    condition: trigger.event.size > 100
    then:
      - {id: warn, action: transform, set: {text: "Watch it: {{.trigger.event.size}} files changed"}}
    else:
      - {id: note, action: transform, set: {text: "small"}}
  - id: announce
    action: transform
    set: {text: "{{.steps.words.response}}"}
""",
    "triage": """
description: A first look at each new incident of high urgency.
trigger:
  feed: incidents
  condition: event.urgency == "high"
steps:
  - id: summary
    action: llm
    prompt: "{{.trigger.event.title}} is {{.trigger.event.status}}"
""",
    "backups": """
description: Counts what a backup has copied.
trigger:
  webhook: {id: backups, scheme: none, allow_unsigned: true, id_field: id}
steps:
  - id: files
    action: transform
    set: {first: "{{index .trigger.event.files 0}}"}
""",
    "invoices": """
description: Asks a person before an invoice is paid.
trigger:
  webhook: {id: invoices, scheme: none, allow_unsigned: true, id_field: id}
steps:
  - {id: pay, action: approve, prompt: "Pay {{.trigger.event.amount}} to {{.trigger.event.to}}?"}
  - {id: paid, action: transform, set: {text: "paid"}}
""",
    "alerts-digest": """
description: Ten minutes of alerts in one message.
trigger:
  webhook: {id: alerts, scheme: none, allow_unsigned: true, id_field: id}
  gather: {digest: {window: 10m, max: 50}}
steps:
  - {id: digest, action: transform, set: {text: "{{len .trigger.events}} alerts"}}
""",
    "nightly-report": """
description: The numbers of the day, every morning at six.
trigger: {schedule: "0 6 * * *"}
steps:
  - {id: report, action: transform, set: {text: "report"}}
""",
}
SERVICES = ("checkout", "search", "checkout", "mail", "checkout", "billing")
PEOPLE = ("ada", "grace", "linus", "margaret")
INCIDENTS = ("checkout answers slowly", "search has an old certificate", "mail is out of disk", "images are missing")


class Story(HarkenProcess):
    """`content` sends what the pages show: always the same, with the times of today."""

    def write(self, files: dict[str, str] | None = None, *, source: str = "") -> None:
        flows = {f"workflows/{name}.yaml": f"name: {name}\n{text.strip()}\n" for name, text in WORKFLOWS.items()}
        super().write(files or {"harken.yaml": HARKEN.replace("URL", source), **flows})

    async def day_before(self) -> None:
        """Send the events of a day, and date them back: what is counted, what is stored and what is drawn are the same.

        It is running before and after that."""
        now = SystemClock().time()
        times = sorted(now - 60 * back for back in _minutes_before())
        async with aiohttp.ClientSession(self.url) as client:

            async def send(at: int) -> None:
                event = _backup(at) if at % 12 == 5 else _deploy(at)
                webhook = "backups" if at % 12 == 5 else "deploys"
                async with client.post(f"/webhooks/generic/{webhook}", json=event) as answer:
                    assert answer.status < 300, await answer.text()

            for start in range(0, len(times), AT_ONCE):
                await asyncio.gather(*(send(at) for at in range(start, min(len(times), start + AT_ONCE))))
        await self._idle()
        await self.stop()
        await self._date_back(times)
        await self.start()

    async def _date_back(self, times: list[float]) -> None:
        """Give the stored events these times, in their order, and their runs too; and count them as of then."""
        buckets: Buckets = {}
        documents: dict[str, Counts] = {}
        with sqlite3.connect(self.directory / "harken.db") as database:
            stored = database.execute(EVENTS).fetchall()
            # what was read of the status page meanwhile stays where it is
            dated = iter(times)
            for id, feed, recorded in stored:
                at = recorded / 1_000_000 if feed == "incidents" else next(dated)
                moment = round(at * 1_000_000)
                database.execute("UPDATE events SET recorded_at = ? WHERE id = ?", (moment, id))
                ran = database.execute(DATE_BACK, (moment, moment, moment, id)).rowcount
                add_counts(buckets, at, (1, ran, 0))
                trigger = "triage" if feed == "incidents" else feed.rpartition("/")[2]
                found = documents.setdefault(document_of(trigger), {}).setdefault(trigger, TriggerCounts())
                hour = found.hours.setdefault(str(int(at // 3600 * 3600)), [0, 0])
                hour[0], hour[1] = hour[0] + 1, hour[1] + ran
                found.last_event = at
                found.last_match = at if ran else found.last_match
            assert next(dated, None) is None
        store = open_store(os.fspath(self.directory / "harken.db"), SystemClock()).store
        await store.put(ACTIVITY, COUNTED, buckets)
        for document, counts in documents.items():
            await store.put(TRIGGER_ACTIVITY, document, counts)
        await store.close()

    async def content(self) -> None:
        """Send it, and wait until all that runs has ended."""
        await self.call("POST", "/api/tokens", {"name": "ci", "role": "operator", "expires": "90d"})
        await self.call("POST", "/api/tokens", {"name": "wall-screen", "role": "viewer"})
        await self.call("POST", "/api/triggers/invoices/pause", {"reason": "the bank is closed"})
        for at in range(24):
            service, by = SERVICES[at % len(SERVICES)], PEOPLE[at % len(PEOPLE)]
            await self.send(
                "deploys", id=f"d-{400 + at}", service=service, version=f"1.{at}.0", by=by, size=at * 37 % 640,
                title=f"{service} 1.{at}.0 by {by}",
            )  # fmt: skip
        for at in range(5):
            await self.send("alerts", id=f"a-{at}", title=f"disk of node-{at} is 9{at} % full", node=f"node-{at}")
        await self.send("backups", id="b-1", files=["orders.sql"], title="backup of orders")
        await self.send("backups", id="b-2", files=[], title="backup of nothing")
        await self.send("invoices", id="i-7", amount="1,200 EUR", to="Printers Ltd", title="invoice 7")
        await self.call("POST", "/api/triggers/invoices/resume", {})
        await self.send("invoices", id="i-8", amount="80 EUR", to="Florist", title="invoice 8")
        await self.call("POST", "/api/triggers/invoices/pause", {"reason": "the bank is closed"})
        await self.send("invoices", id="i-9", amount="9,000 EUR", to="Unknown Inc", title="invoice 9")
        await self.call("POST", "/api/triggers/triage/run", {})
        await self._idle(dead=1)

    async def _idle(self, dead: int = 0) -> None:
        """Wait until nothing is ready or running, and so many runs are dead."""
        while True:
            counts = (await self.call("GET", "/api/status"))["counts"]
            if counts.get("runs_dead", 0) >= dead and not counts.get("runs_ready") and not counts.get("runs_running"):
                return
            await asyncio.sleep(0.2)


AT_ONCE = 16
EVENTS = "SELECT events.id, name, recorded_at FROM events JOIN feeds ON feeds.id = events.feed ORDER BY events.id"
DATE_BACK = """UPDATE runs SET created_at = ?, started_at = ? + started_at - created_at,
finished_at = ? + finished_at - created_at WHERE event = ?"""


def _minutes_before() -> Iterator[float]:
    """When the events of the day before came, in minutes before now: more by day than by night."""
    chance = Random(17)
    for minutes in range(6, 22 * 60, 5):
        many = round(9 + 6 * math.sin(minutes / 160) + chance.uniform(-3, 3))
        yield from (minutes + part * 5 / many for part in range(many))


def _deploy(at: int) -> dict[str, Any]:
    service, by, version = SERVICES[at * 5 % len(SERVICES)], PEOPLE[at % len(PEOPLE)], f"0.{at}.0"
    title = f"{service} {version} by {by}"
    return {"id": f"o-{at}", "service": service, "version": version, "by": by, "size": at * 37 % 480, "title": title}


def _backup(at: int) -> dict[str, Any]:
    return {"id": f"n-{at}", "files": ["orders.sql"], "title": f"backup {at} of orders"}


@asynccontextmanager
async def telling(directory: Path) -> AsyncIterator[Story]:
    """The installation, started and with its content."""
    with _status_page() as url:
        story = Story(directory)
        story.write(source=url)
        await story.start()
        try:
            await story.day_before()
            await story.content()
            yield story
        finally:
            await story.stop()


@contextmanager
def _status_page() -> Iterator[str]:
    """A service with some incidents."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"incidents": _incidents()}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _incidents() -> list[dict[str, Any]]:
    return [
        {
            "id": f"INC-{at}",
            "title": title,
            "status": "triggered",
            "urgency": "high" if at % 2 else "low",
            "updated_at": SystemClock().now().replace(microsecond=0).isoformat(),
        }
        for at, title in enumerate(INCIDENTS)
    ]
