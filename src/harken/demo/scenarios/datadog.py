"""The scenario of `harken demo datadog`: monitors with groups alert, recover and lose data; some are muted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any

from aiohttp import web

from harken.clock import Clock
from harken.demo.scenario import Scenario
from harken.demo.scenarios.vendor_scenario_base import Busy, Truth, VendorScenario
from harken.event import Recorded
from harken.testing.fakes.datadog import API_KEY, APP_KEY, FakeDatadog

__all__ = ["Monitors", "make"]

ALERTS, DIGEST, MUTE = "service-alerts", "alert-digest", "mute-flapping"
PLATFORM, API, OTHER = "team:platform", "service:api", "team:mobile"
WORDS = {"OK": "ok", "Alert": "triggered", "Warn": "warn", "No Data": "no_data"}
FLAPPING = 1_234_567
HOSTS = ("host:web-1", "host:web-2", "host:web-3")
# two triggers read the same list and requests don't tell which: after so many lists both have seen an item
LISTS = 4
DWELL = 5.0
_MARK = re.compile(r"\((\w+)\)")


class Account(Busy, FakeDatadog):
    """A fake that records what each trigger was shown. `lists`: how often a group was listed in a status."""

    truth: Truth
    lists: Counter[str]

    def is_read(self, request: web.Request) -> bool:
        return request.path.startswith("/api/v1/monitor")

    async def record_shown(self, request: web.Request, answer: Any) -> None:
        if request.path == "/api/v1/monitor":
            self.lists.update(_shown_groups(answer))
            for trigger in (ALERTS, DIGEST):
                self.truth.shown(trigger, [one for one, lists in self.lists.items() if lists >= LISTS])
        elif request.path == f"/api/v1/monitor/{FLAPPING}":
            self.truth.shown(MUTE, _shown_groups([answer]))


class Monitors:
    """Monitors of two teams. One of ours is muted, and one flaps so much that a workflow mutes it."""

    account: Mapping[str, str] = {"api_key": API_KEY, "app_key": APP_KEY}

    def __init__(self, clock: Clock, random: Random) -> None:
        self._random = random
        self.truth = Truth(clock, ALERTS, DIGEST, MUTE, dwell=DWELL)
        self.fake = Account(clock, cap=4)
        self.fake.truth, self.fake.lists = self.truth, Counter()
        self._tags: dict[int, str] = {}
        self._statuses: dict[tuple[int, str], str] = {}
        for number in range(9):
            self._add(HOSTS if number % 3 else ("*",), (PLATFORM, API, OTHER)[number % 3], f"Errors of part {number}")
        self._muted = self._add(HOSTS, PLATFORM, "Errors that everybody knows")
        self.fake.silence(self._muted)
        self._add(HOSTS, API, "Errors that come and go", id=FLAPPING, priority=5)

    def _add(self, groups: Iterable[str], tag: str, name: str, **more: Any) -> int:
        id = self.fake.monitor(*(group for group in groups if group != "*"), name=name, tags=[tag, "env:prod"], **more)
        self._tags[id] = tag
        self._statuses |= {(id, group): "OK" for group in groups}
        return id

    def moment(self) -> None:
        ready = [one for one, status in self._statuses.items() if self.truth.may_change(_standing(*one, status))]
        for id, group in self._random.sample(ready, min(len(ready), self._random.choice((1, 2, 2, 3)))):
            self._change(id, group)

    def _change(self, id: int, group: str) -> None:
        status = self._random.choice([status for status in WORDS if status != self._statuses[id, group]])
        late = self._random.choice((0.0, 0.0, 0.0, 2.0))
        self.fake.change(id, status, group, late=late)
        self._statuses[id, group] = status
        self.truth.late += late > 0
        standing, at = _standing(id, group, status), datetime.fromtimestamp(int(self.fake.now()), UTC)
        self.fake.lists[standing] = 0
        self.truth.touch(standing)
        for trigger in self._triggers(id, status):
            name = f"{_subject(id, group)}@{WORDS[status]}@{at:%Y-%m-%dT%H:%M:%SZ}"
            self.truth.expect(trigger, name, standing)

    def _triggers(self, id: int, status: str) -> Iterator[str]:
        if self._tags[id] != OTHER and status in ("Alert", "Warn"):
            yield ALERTS
        if self._tags[id] == PLATFORM and id != self._muted:
            yield DIGEST
        if id == FLAPPING and status == "Alert":
            yield MUTE

    def occurrence(self, event: Recorded) -> str:
        return f"{event.subject}@{event.state}"

    def written_back(self) -> Iterable[tuple[str, str]]:
        for name, downtime in self.fake.downtimes.items():
            yield _MARK.findall(downtime["attributes"]["message"])[-1], name


def _subject(id: int, group: str) -> str:
    return str(id) if group == "*" else f"{id}:{group}"


def _standing(id: int, group: str, status: str) -> str:
    return f"{_subject(id, group)} is {status}"


def _shown_groups(monitors: Iterable[Mapping[str, Any]]) -> list[str]:
    groups = ((monitor["id"], *one) for monitor in monitors for one in monitor["state"]["groups"].items())
    return [_standing(id, group, state["status"]) for id, group, state in groups]


def make(clock: Clock, random: Random) -> Scenario:
    return VendorScenario("datadog", Monitors(clock, random), clock)
