"""Makes up what people do to the tickets of a tracker: they open, label, withdraw, close, and ask for another run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from random import Random
from typing import Any

from harken.event import Recorded
from harken.simulation.script import TicketChange
from harken.simulation.ticket_platform import wanted_labels
from harken.tickets import Lifecycle, ProjectSettings, TrackerSettings, feed_name

__all__ = ["made_up_tickets", "tickets_from_history"]

HOUR, DAY = 3_600.0, 86_400.0
TICKETS_PER_DAY = 6
LAGS = (0.0, 0.0, 5.0, 30.0, 50.0)
"""Seconds by which a search is behind: a minute is what is promised to be borne."""
WEBHOOKS = (0, 1, 1, 2)
"""How many webhooks tell of a change: one gets lost, one is sent twice."""


def made_up_tickets(
    settings: TrackerSettings, faults: Collection[str], random: Random, seconds: float
) -> Iterator[TicketChange]:
    """The lives of some tickets in each day."""
    for number in range(max(3, round(TICKETS_PER_DAY * seconds / DAY))):
        project = random.choice(settings.projects)
        at = random.uniform(0.0, seconds)
        for change in _life(settings, project, random, at):
            yield TicketChange(
                feed=feed_name(settings.name),
                ticket=str(number + 1),
                webhooks=random.choice(WEBHOOKS) if "duplicate" in faults else 1,
                lag=random.choice(LAGS) if "late" in faults else 0.0,
                **change,
            )


def _life(settings: TrackerSettings, project: ProjectSettings, random: Random, at: float) -> Iterator[dict[str, Any]]:
    """What people do to one ticket, in the order of its time."""
    label = random.choice(wanted_labels(settings, project))
    early = random.random() < 0.6
    yield {"at": _whole(at), "what": "open", "project": project.name, "labels": (label,) if early else ("idea",)}
    if not early:
        if random.random() < 0.3:
            return
        at += random.choice((20.0, 600.0, 2 * HOUR))
        yield {"at": _whole(at), "what": "label", "labels": (label,)}
    at += random.choice((10.0, 300.0, HOUR, 4 * HOUR))
    end = random.choice(("stay", "stay", "again", "again", "withdraw", "withdraw and back", "close"))
    if end == "again" and project.routes.by_label:
        yield {"at": _whole(at), "what": "again"}
    elif end.startswith("withdraw"):
        yield {"at": _whole(at), "what": "unlabel", "labels": (label,)}
        if end != "withdraw":
            yield {"at": _whole(at + random.choice((30.0, 3 * HOUR))), "what": "label", "labels": (label,)}
    elif end == "close":
        yield {"at": _whole(at), "what": "close"}


def tickets_from_history(
    settings: TrackerSettings, events: Sequence[Recorded], times: Sequence[float]
) -> Iterator[TicketChange]:
    """The tickets that were ready, each opened with its label when it first was; `times` are those of the events."""
    known: set[str] = set()
    pending = settings.lifecycle.label(Lifecycle.PENDING)
    for event, at in zip(events, times, strict=True):
        data = event.data
        if event.type != "ticket.ready" or event.subject in known or settings.project(data["project"]) is None:
            continue
        known.add(event.subject)
        yield TicketChange(
            at=_whole(at),
            feed=feed_name(settings.name),
            ticket=str(data["number"] or len(known)),
            what="open",
            labels=(data["label"] or pending,),
            project=data["project"],
        )


def _whole(seconds: float) -> float:
    """In milliseconds, as files of cases have them."""
    return round(seconds * 1_000) / 1_000
