"""An installation with something of everything: what is photographed, and what hostile content is sent to."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from harken.app.store import open_store
from harken.clock import SystemClock
from harken.operate.activity import Buckets, add_counts
from harken.operate.trigger_activity import Counts, TriggerCounts, document_of
from harken.store.documents import ACTIVITY, COUNTED, TRIGGER_ACTIVITY
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

    async def seed_day(self) -> None:
        """Write the numbers of a day that was before, as replicas would have counted them. Before the start."""
        clock = SystemClock()
        store = open_store(os.fspath(self.directory / "harken.db"), clock).store
        now = clock.time()
        buckets: Buckets = {}
        for minutes in range(5, 24 * 60, 5):
            level = 16 + 12 * math.sin(minutes / 110) + minutes * 7919 % 11
            add_counts(buckets, now - minutes * 60, (round(level), round(level * 0.6), int(minutes % 435 == 0)))
        await store.put(ACTIVITY, COUNTED, buckets)
        documents: dict[str, Any] = {}
        for place, (name, (level, share)) in enumerate(DAY.items()):
            hours = {
                str(int(now // 3600 - back) * 3600): _hour(level, share, back + place * 5) for back in range(1, 24)
            }
            counts: Counts = {name: TriggerCounts(hours=hours, last_event=now - 3600, last_match=now - 3600)}
            documents.setdefault(document_of(name), {}).update(counts)
        for document, found in documents.items():
            await store.put(TRIGGER_ACTIVITY, document, found)
        await store.close()

    async def content(self) -> None:
        """Send it, and wait until all that runs has ended."""
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
        await self.settled()

    async def settled(self) -> None:
        """Wait until nothing is ready or running and the broken backup is dead."""
        while True:
            counts = (await self.call("GET", "/api/status"))["counts"]
            if counts.get("runs_dead") and not counts.get("runs_ready") and not counts.get("runs_running"):
                return
            await asyncio.sleep(0.2)


DAY = {"deploys": (9.0, 0.5), "triage": (4.0, 0.3), "alerts-digest": (14.0, 1.0), "backups": (1.0, 1.0)}
"""How many events a trigger has in an hour of the day before, and how many of them match."""


def _hour(level: float, share: float, at: int) -> list[int]:
    events = max(0, round(level * (1 + math.sin(at / 3.5)) * (0.6 + at * 7919 % 13 / 16)))
    return [events, round(events * share)]


@asynccontextmanager
async def telling(directory: Path) -> AsyncIterator[Story]:
    """The installation, started and with its content."""
    with _status_page() as url:
        story = Story(directory)
        story.write(source=url)
        await story.seed_day()
        await story.start()
        try:
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
