"""What the scenarios of real services share: the shipped example, a fake of the service, and the expected runs."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Protocol

import msgspec
from aiohttp import web

from harken.clock import Clock
from harken.event import Recorded
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["Busy", "Story", "Truth", "VendorScenario"]

# services use whole seconds: an item of the first second could look older than the start line
SETTLING = 1.2
LIMIT_EVERY = 4.0
DWELL = 2.5
# a demo is short, so what takes minutes at a real service takes seconds here
QUICK = {re.compile(r"\binterval: [^,}\n]+"): "interval: 1s", re.compile(r"\bwindow: [^,}\n]+"): "window: 2s"}
ACCOUNT = """
# the demo adds this account; its service asks for one second, a real one deserves the default of half a minute
integrations:
  {name}:
    kind: {name}
    base_url: ${{DEMO_URL}}
    allow_private_networks: true
    backoff: {{initial: 1s, max: 5s}}
"""


class Busy(FakeServer):
    """A fake service that answers 429 now and then and records what it has shown.

    Only reads get a 429: a step would then wait at least half a minute, longer than a demo lasts.
    """

    rate_limited = 0
    limits_at = math.inf

    def is_read(self, request: web.Request) -> bool:
        """Whether the request comes from a feed and not from a step."""
        raise NotImplementedError

    async def record_shown(self, request: web.Request, answer: Any) -> None:
        """Called with each reply before it is sent."""

    async def handle(self, request: web.Request, display: Handler) -> web.Response:
        if self.clock.monotonic() >= self.limits_at and self.is_read(request):
            self.limits_at = self.clock.monotonic() + LIMIT_EVERY
            self.rate_limited += 1
            return json_reply({"error": "too many requests"}, 429, {"Retry-After": "1"})
        reply = await super().handle(request, display)
        if reply.status == 200 and isinstance(reply.body, bytes):
            await self.record_shown(request, msgspec.json.decode(reply.body))
        return reply


class Truth:
    """What each trigger must run for. An item may only change after a read has shown it."""

    def __init__(self, clock: Clock, *triggers: str, dwell: float = DWELL) -> None:
        self._clock = clock
        self._dwell = dwell
        self.expected: dict[str, list[str]] = {trigger: [] for trigger in triggers}
        self._unseen: dict[str, set[str]] = {}
        self._rests_until: dict[str, float] = {}
        self.late = 0

    def expect(self, trigger: str, occurrence: str, thing: str) -> None:
        """The trigger must run for it; `thing` is what a read has to show."""
        self.expected[trigger].append(occurrence)
        self._unseen.setdefault(thing, set()).add(trigger)

    def touch(self, thing: str) -> None:
        self._rests_until[thing] = self._clock.monotonic() + self._dwell

    def shown(self, trigger: str, things: Iterable[str]) -> None:
        """A read for this trigger has shown them as they are now."""
        for thing in things:
            self._unseen.get(thing, set()).discard(trigger)

    def may_change(self, thing: str) -> bool:
        rested = self._clock.monotonic() >= self._rests_until.get(thing, 0.0)
        return rested and not self._unseen.get(thing)


class Story(Protocol):
    """What happens at one service. Its history exists from the beginning."""

    @property
    def fake(self) -> Busy: ...
    @property
    def truth(self) -> Truth: ...
    @property
    def account(self) -> Mapping[str, str]:
        """The credentials for Harken, as environment variables."""
        ...

    def moment(self) -> None:
        """Let a moment pass."""
        ...

    def occurrence(self, event: Recorded) -> str: ...
    def written_back(self) -> Iterable[tuple[str, str]]:
        """What workflows wrote back: the mark of the step, and the name of the resulting item."""
        ...


class VendorScenario:
    """Makes a scenario of a story and the example that is shipped for its service."""

    looked_at = "runs list"
    noted = ""
    settled = True
    refused = 0

    def __init__(self, name: str, story: Story, clock: Clock) -> None:
        self._name = name
        self._story = story
        self._clock = clock
        self._opens_at = math.inf
        self.place = f"stand-in for {name}"

    @property
    def expected(self) -> Mapping[str, Collection[str]]:
        return self._story.truth.expected

    @property
    def late(self) -> int:
        return self._story.truth.late

    @property
    def rate_limited(self) -> int:
        return self._story.fake.rate_limited

    def prepare(self, directory: Path) -> None:
        """The example as it is, with the stand-in's account, and read every second."""
        with as_file(files("harken.demo") / "examples" / self._name) as example:
            shutil.copytree(example, directory, dirs_exist_ok=True)
        main = directory / "harken.yaml"
        fields = "".join(f"    {name}: {value}\n" for name, value in self._story.account.items())
        main.write_text(main.read_text("utf-8") + ACCOUNT.format(name=self._name) + fields, "utf-8")
        for workflow in (directory / "workflows").glob("*.yaml"):
            workflow.write_text(_quick(workflow.read_text("utf-8")), "utf-8")

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Mapping[str, str]]:
        async with self._story.fake.serve() as url:
            yield {"DEMO_URL": url}

    def open(self, url: str) -> None:
        self._opens_at = self._clock.monotonic() + SETTLING
        self._story.fake.limits_at = self._opens_at + LIMIT_EVERY / 2

    async def advance(self) -> None:
        # a demo may run for days
        self._story.fake.seen.clear()
        if self._clock.monotonic() >= self._opens_at:
            self._story.moment()

    def occurrence(self, event: Recorded) -> str:
        return self._story.occurrence(event) if event.type.startswith(f"{self._name}.") else ""

    def notes(self) -> Collection[str]:
        return ()

    def deliveries(self) -> Mapping[str, Collection[str]]:
        found: dict[str, set[str]] = {}
        for mark, name in self._story.written_back():
            found.setdefault(mark, set()).add(name)
        return found


def _quick(workflow: str) -> str:
    for written_back, instead in QUICK.items():
        workflow = written_back.sub(instead, workflow)
    return workflow
