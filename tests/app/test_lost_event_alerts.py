"""Gaps in the ledger and dead letters of events are announced once, whoever keeps house."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harken.app.lost_event_alerts import LedgerAlerts
from harken.config.outcome_webhooks import CATALOGUE, FURTHER
from harken.config.settings import OutcomeWebhook
from harken.event import Event
from harken.match import Read
from tests.operate.conftest import office
from tests.operate.operator_world import POLLED, PUSHED, Office

__all__ = ["office"]


class Told:
    """As much of the intake as is asked for; it keeps what is announced."""

    def __init__(self) -> None:
        self.feeds = {feed.name: SimpleNamespace(feed=feed) for feed in (POLLED, PUSHED)}
        self.rule_cache = SimpleNamespace(get=lambda feed: None)
        self.committer = self
        self.events: list[Event] = []

    def display_name(self, feed: str) -> str:
        return feed

    async def push(self, feed: str, events: list[Event], read: Read) -> None:
        self.events += events


def watching(office: Office, told: Any) -> LedgerAlerts:
    return LedgerAlerts(office.store, told, office.clock)


async def test_a_gap_of_a_poll_is_announced_once_with_its_span(office: Office) -> None:
    told = Told()
    alerts = watching(office, told)
    await office.shows(office.incident("A"))
    end = office.clock.now()
    office.clock.advance(7200)
    await alerts.check()
    await office.shows(office.incident("B"))
    for each in (alerts, alerts, watching(office, told)):
        await each.check()
    [event] = told.events
    assert (event.type, event.data["feed"], event.data["since"]) == ("feed.gap", POLLED.name, end.isoformat())
    assert event.data["alert"] is True
    office.clock.advance(7200)
    await office.shows(office.incident("C"))
    await alerts.check()
    assert [one.data["feed"] for one in told.events] == [POLLED.name] * 2
    assert told.events[1].key != event.key


async def test_dead_letters_of_events_are_announced_once_in_their_order(office: Office) -> None:
    told = Told()
    alerts = watching(office, told)
    await alerts.check()
    for name in ("A", "B"):
        await office.store.dead_letter(POLLED.name, office.incident(name), f"{name} is too large")
    for each in (alerts, alerts, watching(office, told)):
        await each.check()
    assert [(one.type, one.data["error"], one.data["letter"]) for one in told.events] == [
        ("event.dead", "A is too large", "event-1"),
        ("event.dead", "B is too large", "event-2"),
    ]
    await office.store.drop_dead_letter("event-1")
    await office.store.dead_letter(POLLED.name, office.incident("C"), "no")
    another = watching(office, told)
    await another.check()
    assert [one.data["letter"] for one in told.events] == ["event-1", "event-2", "event-3"]


def test_receivers_of_dead_letters_are_told_of_events_too() -> None:
    block = OutcomeWebhook.model_validate({"name": "ops", "channel": "signing", "to": "https://ops.example.com"})
    assert {CATALOGUE[each] for each in block.types} | set(FURTHER["dead.added"]) >= {"run.dead", "event.dead"}
