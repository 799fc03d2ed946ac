"""The scenario of `harken demo pagerduty`: incidents come late and together, are taken, handed on and handed back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from random import Random
from typing import Any

from aiohttp import web

from harken.clock import Clock
from harken.demo.scenario import Scenario
from harken.demo.scenarios.vendor_scenario_base import Busy, Truth, VendorScenario
from harken.event import Recorded
from harken.testing.fakes.pagerduty import Incident, PagerDuty

__all__ = ["OnCall", "make"]

ME, OTHERS = "PUSER123", ("PUSER200", "PUSER300")
MINE, TEAM = "my-triage", "team-services"
SERVICES = {"PSVC001": "Checkout", "PSVC002": "Search", "PSVC003": "Somebody else's"}
OF_TEAM = ("PSVC001", "PSVC002")
TROUBLES = ("is slow", "answers 502", "is out of disk", "lost its database", "has an old certificate")
# an assignment this soon after creation counts as part of the creation
AT_ONCE = timedelta(seconds=6)
OPEN = 60
_MARK = re.compile(r"\(harken ([0-9a-f]+)\)")


class Account(Busy, PagerDuty):
    """The fake PagerDuty, which records what each trigger was shown."""

    truth: Truth

    def is_read(self, request: web.Request) -> bool:
        return request.path == "/incidents"

    async def record_shown(self, request: web.Request, answer: Any) -> None:
        if self.is_read(request):
            trigger = MINE if "user_ids[]" in request.query else TEAM
            self.truth.shown(trigger, [incident["id"] for incident in answer["incidents"]])


class OnCall:
    """Incidents on three services, two of them the team's, assigned to me or to others."""

    account: Mapping[str, str] = {"token": "personal-key"}

    def __init__(self, clock: Clock, random: Random) -> None:
        self._random = random
        self.truth = Truth(clock, MINE, TEAM)
        self.fake = Account(clock, cap=20)
        self.fake.truth = self.truth
        self.fake.services = SERVICES
        for name in (ME, *OTHERS):
            self.fake.add_user(name)
        for hours in range(1, 26):
            self.fake.trigger("From before", to=random.choice((ME, *OTHERS)), service="PSVC001", age=3600 * hours)

    def moment(self) -> None:
        for _ in range(self._random.choice((1, 1, 1, 2, 4))):
            self._page()
        ready = [incident for incident in self.fake.incidents.values() if self._may_change(incident)]
        crowded = len(ready) > OPEN
        for incident in self._random.sample(ready, min(len(ready), 6 if crowded else 2)):
            self._change(incident, crowded)

    def _page(self) -> None:
        service, to = self._random.choice(list(SERVICES)), self._random.choice((ME, ME, *OTHERS))
        late = self._random.choice((0.0, 0.0, 0.0, 2.0))
        title = f"{SERVICES[service]} {self._random.choice(TROUBLES)}"
        urgency = self._random.choice(("high", "low"))
        name = self.fake.trigger(title, service=service, to=to, late=late, urgency=urgency)
        self.truth.late += late > 0
        self.truth.touch(name)
        if to == ME:
            self.truth.expect(MINE, name, name)
        if service in OF_TEAM:
            self.truth.expect(TEAM, name, name)

    def _may_change(self, incident: Incident) -> bool:
        settled = self.fake.now() - incident.created_at > AT_ONCE
        return settled and incident.status != "resolved" and self.truth.may_change(incident.id)

    def _change(self, incident: Incident, crowded: bool) -> None:
        self.truth.touch(incident.id)
        if crowded:
            self.fake.resolve(incident.id)
        elif incident.status == "triggered":
            self.fake.acknowledge(incident.id)
        elif ME in incident.assigned:
            self._random.choice((self.fake.resolve, self.fake.retrigger, self._hand_on))(incident.id)
        else:
            self._give_me(incident.id)

    def _hand_on(self, name: str) -> None:
        self.fake.assign(name, self._random.choice(OTHERS))

    def _give_me(self, name: str) -> None:
        """Reassign an old incident to me, without creating a new one."""
        self.fake.assign(name, ME)
        at = self.fake.incidents[name].assigned[ME]
        self.truth.expect(MINE, f"{name}@{at:%Y-%m-%dT%H:%M:%SZ}", name)

    def occurrence(self, event: Recorded) -> str:
        return event.subject

    def written_back(self) -> Iterable[tuple[str, str]]:
        for incident in self.fake.incidents.values():
            for note in incident.notes:
                yield _MARK.findall(note.content)[-1], f"{incident.id} {note.id}"


def make(clock: Clock, random: Random) -> Scenario:
    return VendorScenario("pagerduty", OnCall(clock, random), clock)
