"""The four services with a workflow each, in the shape in which people write them, and what starts it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Protocol

from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.datadog import API_KEY, APP_KEY, FakeDatadog
from harken.testing.fakes.jira import TOKEN as JIRA_TOKEN
from harken.testing.fakes.jira import Jira
from harken.testing.fakes.pagerduty import PagerDuty
from harken.testing.fakes.server import FakeServer, Handler
from harken.testing.fakes.slack import TOKEN as SLACK_TOKEN
from harken.testing.fakes.slack import FakeSlack

__all__ = ["SCENES", "Alerts", "Duty", "Held", "Mentions", "Scene", "Tickets"]

TRIAGE = """\
name: my-pagerduty-triage
description: a second pair of eyes when the pager goes
trigger:
  type: poll
  poll:
    integration: pagerduty
    query:
      user_id: "PME" # mine
      services: ["PSVC1", "PSVC2"]
      statuses: [triggered, acknowledged]
    interval: 30s
    input_mapping:
      incident_id: "{{.trigger.event.id}}"
      incident_title: "{{.trigger.event.title}}"
      urgency: "{{.trigger.event.urgency}}"
steps:
  - id: triage
    action: llm
    model: balanced
    prompt: |
      {{.incident_id}} "{{.incident_title}}" ({{.urgency}}) on {{.trigger.event.service.name}}
      {{.trigger.event.html_url}}: where do I look first?
"""

MENTIONS = """\
name: slack-mentions
description: a draft for whoever asks me something
trigger:
  type: poll
  poll:
    integration: slack
    query:
      mentions: "@jsmith"
      channels: [engineering, oncall, incidents]
      include_threads: true
      exclude_bots: true
    interval: 30s
steps:
  - id: draft
    action: llm
    model: fast
    prompt: |
      {{.trigger.event.user.name}} wrote in #{{.trigger.event.channel.name}}:
      {{.trigger.event.text}}
"""

ASSIGNED = """\
name: jira-assigned
description: what a ticket that became mine is about
trigger:
  type: poll
  poll:
    integration: jira
    query:
      assignee: "jsmith"
      project: MYTEAM
    interval: 60s
steps:
  - id: summarize
    action: llm
    model: balanced
    prompt: |
      {{.trigger.event.key}} {{.trigger.event.summary}}
      {{.trigger.event.issue_type}}, {{.trigger.event.priority}}, from {{.trigger.event.reporter.name}}
      {{.trigger.event.description}}
"""

ALERTS = """\
name: datadog-service-alerts
description: what a monitor of ours is on about
trigger:
  type: poll
  poll:
    integration: datadog
    query:
      tags: ["team:platform", "service:api", "service:worker"]
      statuses: [triggered, warn]
    interval: 60s
steps:
  - id: analyze
    action: llm
    model: balanced
    prompt: |
      {{.trigger.event.name}} is {{.trigger.event.status}}
      {{.trigger.event.tags}}
      {{.trigger.event.message}}
"""


class Held(FakeServer):
    """A fake that can be told to accept one write and never to answer it."""

    write = ("", "")
    accepted: asyncio.Event

    def hold(self, method: str, path: str) -> None:
        """Hold the answer to the first such request; a path is told by its end."""
        self.write, self.accepted = (method, path), asyncio.Event()

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        reply = await super().handle(request, view)
        if self.writes(request.method, request.path) and not self.accepted.is_set():
            assert reply.status < 300
            self.accepted.set()
            await asyncio.Event().wait()
        return reply

    def writes(self, method: str, path: str) -> bool:
        return method == self.write[0] and path.endswith(self.write[1])


class HeldPagerDuty(Held, PagerDuty): ...


class HeldSlack(Held, FakeSlack): ...


class HeldJira(Held, Jira): ...


class HeldDatadog(Held, FakeDatadog): ...


class Scene(Protocol):
    """`happen` lets something happen that the workflow is for, shown `late` seconds later; the key of the event."""

    kind: str
    workflow: str
    trigger: str

    @property
    def fake(self) -> Held: ...
    def account(self, token: str = "") -> str: ...
    def happen(self, late: float = 0.0) -> str: ...


class Duty:
    kind, workflow, trigger = "pagerduty", TRIAGE, "my-pagerduty-triage"

    def __init__(self, clock: Clock, cap: int = 100) -> None:
        self.fake = HeldPagerDuty(clock, cap=cap)

    def account(self, token: str = "") -> str:
        return written(self.kind, self.fake, token=token or "personal-key")

    def happen(self, late: float = 0.0) -> str:
        return self.fake.trigger("Disk full", late=late)


class Mentions:
    kind, workflow, trigger = "slack", MENTIONS, "slack-mentions"

    def __init__(self, clock: Clock, cap: int = 999) -> None:
        self.fake = HeldSlack(clock, cap=cap)
        self.fake.user("jsmith", id="U1", display_name="Jo")
        self.fake.user("bob", id="U2", display_name="Bob")
        self._channels = [self.fake.channel(name) for name in ("engineering", "oncall", "incidents")]

    def account(self, token: str = "") -> str:
        return written(self.kind, self.fake, token=f"xoxb-{token}" if token else SLACK_TOKEN)

    def happen(self, late: float = 0.0) -> str:
        # in one channel after the other, so that several have the same timestamp
        self._channels.append(channel := self._channels.pop(0))
        return f"{channel}:{self.fake.say(channel, '<@U1> can you look?', user='U2', late=late)}"


class Tickets:
    kind, workflow, trigger = "jira", ASSIGNED, "jira-assigned"

    def __init__(self, clock: Clock, cap: int = 100) -> None:
        self.fake = HeldJira(clock, cap=cap)
        self.fake.user("jsmith", name="Jo Smith")
        self.fake.project("MYTEAM")

    def account(self, token: str = "") -> str:
        return written(self.kind, self.fake, email="me@example.com", token=token or JIRA_TOKEN)

    def happen(self, late: float = 0.0) -> str:
        self.fake.late = late
        key = self.fake.create("MYTEAM", "Printer on fire", assignee="jsmith", description="It burns.")
        self.fake.late = 0.0
        return f"{key}#{self.fake.issue(key).id}"


class Alerts:
    kind, workflow, trigger = "datadog", ALERTS, "datadog-service-alerts"

    def __init__(self, clock: Clock, cap: int = 1000) -> None:
        self.fake = HeldDatadog(clock, cap=cap)
        # some were there before anybody looked; the rest are new when they alert
        self._quiet = [self._monitor() for _ in range(15)]

    def account(self, token: str = "") -> str:
        return written(self.kind, self.fake, api_key=token or API_KEY, app_key=APP_KEY)

    def happen(self, late: float = 0.0) -> str:
        id = self._quiet.pop() if self._quiet else self._monitor()
        self.fake.change(id, "Alert", late=late)
        return f"{id}@triggered@{self.at()}"

    def _monitor(self) -> int:
        return self.fake.monitor(name="Load", tags=["team:platform"])

    def at(self) -> str:
        return f"{datetime.fromtimestamp(int(self.fake.now()), UTC):%Y-%m-%dT%H:%M:%SZ}"


def written(kind: str, fake: FakeServer, **fields: str) -> str:
    given = ", ".join(f'{name}: "{value}"' for name, value in fields.items())
    return f'{kind}: {{kind: {kind}, {given}, base_url: "{fake.url}", allow_private_networks: true}}'


SCENES: dict[str, type[Duty | Mentions | Tickets | Alerts]] = {
    "pagerduty": Duty,
    "slack": Mentions,
    "jira": Tickets,
    "datadog": Alerts,
}
