"""What happens at the demo's simulated company: the history that the audit compares with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random

import msgspec

from harken.clock import Clock

__all__ = ["Article", "Deploy", "Incident", "World"]

# the API lists this many; older ones drop off its last page
LISTED = 120
DWELL = 2.0
HISTORY = 30
_NEXT = {"triggered": "acknowledged", "acknowledged": "resolved", "resolved": "triggered"}
_SERVICES = ("checkout", "search", "login", "billing", "mail", "images")
_TROUBLES = (
    "is slow",
    "answers 502",
    "is out of disk",
    "lost its database",
    "drops messages",
    "has an old certificate",
)
_SUBJECTS = ("Planned maintenance", "Status update", "Postmortem", "New region")


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One incident as the API shows it. `revision` names this status of it, as a status may come back."""

    id: str
    revision: str
    title: str
    service: str
    urgency: str
    status: str
    created_at: datetime
    updated_at: datetime


class Article(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str
    published: datetime


class Deploy(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    service: str
    at: datetime


class World:
    """A company where things break. `expected` is the truth: what each trigger must run for since it opened."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._incidents: dict[str, Incident] = {}
        self._changes: dict[str, int] = {}
        self._shown: set[str] = set()
        self._made = 0
        self._next_late = HISTORY + 3
        self._settled_at: dict[str, float] = {}
        self._opened_at: datetime | None = None
        self.articles: list[Article] = []
        self._deploys = 0
        self.expected: dict[str, list[str]] = {"triage": [], "urgent": [], "news": [], "deploys": []}
        self.late = 0
        for minutes in range(HISTORY, 0, -1):
            self._break(clock.now() - timedelta(minutes=minutes, seconds=30))

    def open(self) -> None:
        """From now on everything counts: what was there before is history that no trigger asked for."""
        self._opened_at = self._clock.now()

    def advance(self) -> list[Deploy]:
        """Let a moment pass: things break, are worked on and written about. Returns what was deployed meanwhile."""
        for _ in range(self._random.choice((0, 0, 1, 1, 2, 4))):
            self._break(self._clock.now())
        if self._made >= self._next_late:
            self._break_late()
        self._work()
        if self._random.random() < 0.2:
            self._publish()
        return [self._deploy()] if self._random.random() < 0.2 else []

    def page(self, offset: int, limit: int) -> tuple[Sequence[Incident], bool]:
        """Incidents newest first, and whether there are more. What was shown once may change its status later."""
        listed = sorted(self._incidents.values(), key=lambda incident: incident.created_at, reverse=True)[:LISTED]
        page = listed[offset : offset + limit]
        for incident in page:
            self._shown.add(incident.revision)
        return page, offset + limit < len(listed)

    def _break(self, at: datetime) -> None:
        self._made += 1
        name = f"INC-{self._made}"
        service = self._random.choice(_SERVICES)
        instant = self._instant(at)
        incident = Incident(
            id=name,
            revision=f"{name}.1",
            title=f"{service} {self._random.choice(_TROUBLES)}",
            service=service,
            urgency=self._random.choice(("high", "low")),
            status="triggered",
            created_at=instant,
            updated_at=instant,
        )
        self._keep(incident)

    def _break_late(self) -> None:
        # reported now, but it began before incidents that were read already
        self._break(self._clock.now() - timedelta(seconds=self._random.uniform(3, 20)))
        self._next_late = self._made + 5
        self.late += 1

    def _instant(self, at: datetime) -> datetime:
        # whole seconds make ties: several incidents of one instant
        whole = at.replace(microsecond=0)
        return whole if self._opened_at is None else max(whole, self._opened_at)

    def _work(self) -> None:
        ready = [incident for incident in self._young() if self._may_change(incident)]
        for incident in self._random.sample(ready, min(len(ready), 2)):
            changes = self._changes[incident.id] + 1
            self._keep(
                msgspec.structs.replace(
                    incident,
                    revision=f"{incident.id}.{changes}",
                    status=_NEXT[incident.status],
                    updated_at=self._instant(self._clock.now()),
                )
            )

    def _young(self) -> list[Incident]:
        return list(self._incidents.values())[-LISTED // 3 :]

    def _may_change(self, incident: Incident) -> bool:
        # a status that no read has shown may not vanish: the truth is what the API showed
        rested = self._clock.monotonic() - self._settled_at[incident.id] >= DWELL
        return rested and incident.revision in self._shown and self._changes[incident.id] < 5

    def _keep(self, incident: Incident) -> None:
        self._incidents[incident.id] = incident
        self._changes[incident.id] = self._changes.get(incident.id, 0) + 1
        self._settled_at[incident.id] = self._clock.monotonic()
        self._expect("triage", incident.revision)
        if incident.urgency == "high" and incident.status == "triggered":
            self._expect("urgent", incident.revision)
        while len(self._incidents) > 2 * LISTED:
            oldest = next(iter(self._incidents))
            del self._incidents[oldest], self._changes[oldest], self._settled_at[oldest]

    def _publish(self) -> None:
        # feeds tell time in whole seconds; what came in the first one could seem to be from before the opening
        if self._opened_at is None or self._clock.now() - self._opened_at < timedelta(seconds=1):
            return
        number = len(self.articles) + 1
        title = f"{self._random.choice(_SUBJECTS)} <{number}> & more"
        self.articles.append(Article(id=f"news-{number}", title=title, published=self._clock.now()))
        self._expect("news", f"news-{number}")

    def _deploy(self) -> Deploy:
        self._deploys += 1
        return Deploy(id=f"deploy-{self._deploys}", service=self._random.choice(_SERVICES), at=self._clock.now())

    def deployed(self, deploy: Deploy) -> None:
        """The webhook about it was accepted: from now on it must not be lost."""
        self._expect("deploys", deploy.id)

    def _expect(self, trigger: str, occurrence: str) -> None:
        if self._opened_at is not None:
            self.expected[trigger].append(occurrence)
