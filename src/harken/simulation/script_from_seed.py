"""Makes a script of days from a seed: events as the sources of a configuration may show them, and faults.

Only histories in which it is clear what must happen: nothing later than a feed looks back, nothing that comes back
after it may be forgotten, no state that a subject has had before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

import msgspec

from harken.event import Recorded
from harken.feed import Feed
from harken.schedule import Cron
from harken.simulation.made_up_events import Shape, shape_of
from harken.simulation.made_up_tickets import made_up_tickets, tickets_from_history
from harken.simulation.reduced_configuration import ITSELF, Configuration
from harken.simulation.script import (
    START,
    Arrival,
    ClockJump,
    Crash,
    Cut,
    Freeze,
    Happening,
    Lock,
    OfProcess,
    Restart,
    Script,
    Sleep,
    StandIn,
    Trouble,
)
from harken.tickets import tracker_of

__all__ = ["ALL_FAULTS", "OF_REPLICAS", "FaultName", "generate", "read_feeds"]

FaultName = Literal[
    "sleep", "crash", "restart", "lock", "429", "outage", "dst", "late", "duplicate", "clock", "freeze", "cut"
]
ALL_FAULTS: tuple[FaultName, ...] = get_args(FaultName)
OF_REPLICAS: tuple[FaultName, ...] = ("freeze", "cut")
"""Faults that only one of several replicas can have."""

HOUR, DAY = 3_600.0, 86_400.0
EVENTS_PER_DAY = 10
STATES = ("open", "acknowledged", "closed")
SHORT_OF_A_DAY = 20 * HOUR
"""A repeat comes at most so long after the first: what is older may be forgotten."""
BERLIN = "Europe/Berlin"
VERBS = ("commit", "commit", "commit", "record_idle", "lease", "settle", "journal", "claim", "open", "")
FREEZES = (60.0, 700.0, 1_200.0, 3_600.0)
"""Shorter than the claim of a run, longer than that, longer than a lease, and much longer."""


def read_feeds(configuration: Configuration) -> list[Feed]:
    """The feeds that need a stand-in: those that somebody listens to, without schedules, trackers and Harken's own."""
    heard = {trigger.feed for trigger in configuration.triggers}
    return [
        feed
        for feed in configuration.feeds
        if feed.way != "internal" and feed.kind != ITSELF and feed.name in heard and not tracker_of(feed.name)
    ]


def generate(
    configuration: Configuration,
    seed: int,
    *,
    days: float,
    faults: Collection[str] = ALL_FAULTS,
    history: Mapping[str, Sequence[Recorded]] | None = None,
    start: datetime = START,
    replicas: int = 1,
) -> Script:
    """The script of this seed. `history` has recorded events by feed, which are used in place of made-up ones."""
    random = Random(seed)
    seconds = days * DAY
    if "dst" in faults and history is None:
        start = _before_change(configuration, random)
    items: list[Happening] = []
    stand_ins: dict[str, StandIn] = {}
    for feed in read_feeds(configuration):
        stand_in = _stand_in(feed, random)
        if history is not None:
            arrivals = _from_history(feed, history.get(feed.name, ()), start)
        else:
            listeners = [trigger for trigger in configuration.triggers if trigger.feed == feed.name]
            types = [kind for trigger in listeners for kind in trigger.types] or [feed.kind]
            shape = shape_of(listeners, configuration.loaded)
            arrivals = list(_made_up(feed, shape, types, stand_in, random, seconds, "late" in faults))
        if feed.way == "poll":
            stand_ins[feed.name] = stand_in
        items += arrivals
        if "duplicate" in faults:
            items += _repeats(feed, arrivals, stand_in, random)
        items += _troubles(feed, faults, random, seconds)
    for feed in configuration.feeds:
        settings = configuration.loaded.trackers.get(tracker_of(feed.name))
        if settings is not None and settings.projects:
            if history is None:
                items += made_up_tickets(settings, faults, random, seconds)
            else:
                recorded = sorted(history.get(feed.name, ()), key=lambda one: one.id)
                times = [max(0.0, (event.recorded_at - start).total_seconds()) for event in recorded]
                items += tickets_from_history(settings, recorded, times)
            items += _troubles(feed, faults, random, seconds)
    items += _of_process(faults, random, seconds) if replicas == 1 else _of_fleet(faults, random, seconds, replicas)
    items += _of_machine(faults, random, seconds)
    items.sort(key=lambda item: item.at)
    return Script(
        items=tuple(items),
        start=start,
        seconds=seconds,
        stand_ins=stand_ins,
        seed=seed,
        baselined=False,
        replicas=replicas,
    )


def _stand_in(feed: Feed, random: Random) -> StandIn:
    view: Any = random.choice(("log", "listing", "since"))
    return StandIn(view=view, page_size=random.choice((100, 100, 2, 3)))


def _whole(seconds: float) -> float:
    """In milliseconds, as files of cases have them."""
    return round(seconds * 1_000) / 1_000


def _made_up(
    feed: Feed, shape: Shape, types: Sequence[str], stand_in: StandIn, random: Random, seconds: float, late: bool
) -> Iterator[Arrival]:
    count = max(4, round(EVENTS_PER_DAY * seconds / DAY))
    number = 0
    while number < count:
        at = _time(random, seconds)
        burst = random.choice((1, 1, 1, 2, 5))
        # items of a burst share their time, which falls on the border of a page or on the start
        dated = _dated(feed, at, random, late)
        for _ in range(burst):
            number += 1
            subject = f"{feed.display_name}-{number}"
            yield from _life(feed, shape, random.choice(types), stand_in, random, subject, at, dated)


def _time(random: Random, seconds: float) -> float:
    if random.random() < 0.1:
        return 0.0
    at = random.uniform(0.0, seconds)
    # in whole seconds, as most services have them
    return float(int(at)) if random.random() < 0.5 else _whole(at)


def _dated(feed: Feed, at: float, random: Random, late: bool) -> float:
    if not late or random.random() < 0.6:
        return at
    return _whole(max(0.0, at - random.uniform(0.0, 0.9 * feed.lookback)))


def _life(
    feed: Feed, shape: Shape, kind: str, stand_in: StandIn, random: Random, subject: str, at: float, dated: float
) -> Iterator[Arrival]:
    """An item, and the states that it comes into, hours apart."""
    changes = 1 if feed.identity == "once" else random.choice((1, 2, 3))
    for change in range(changes):
        state = None
        if feed.identity != "once":
            state = STATES[change] if feed.identity == "transition" else f"v{change + 1}"
        data = shape.data(random, subject)
        begun = _whole(at + change * 3 * HOUR)
        happened = dated if not change else begun
        arrival = Arrival(at=begun, feed=feed.name, subject=subject, type=kind, data=data, state=state, dated=happened)
        hides = stand_in.view == "listing" and feed.way == "poll" and changes == 1 and random.random() < 0.3
        if not hides:
            yield arrival
            continue
        gone = begun + random.choice((0.25, 1.0, 3.0)) * HOUR
        back = gone + random.choice((1.0, 4.0, 12.0)) * HOUR
        yield msgspec.structs.replace(arrival, gone=gone)
        yield msgspec.structs.replace(arrival, at=back)


def _repeats(feed: Feed, arrivals: Sequence[Arrival], stand_in: StandIn, random: Random) -> Iterator[Arrival]:
    """Items that are shown again; of one that changes, before its next state."""
    if feed.way == "poll" and stand_in.view != "log":
        return
    longest = HOUR if feed.identity == "transition" else SHORT_OF_A_DAY
    for arrival in arrivals:
        if random.random() < 0.25:
            yield msgspec.structs.replace(arrival, at=_whole(arrival.at + random.uniform(0.0, longest)))


def _from_history(feed: Feed, events: Sequence[Recorded], start: datetime) -> list[Arrival]:
    """Recorded events at their times. One that was there before is left out, unless each change of state counts."""
    arrivals: list[Arrival] = []
    seen: set[tuple[str, str | None]] = set()
    for event in sorted(events, key=lambda one: one.id):
        at = max(0.0, _whole((event.recorded_at - start).total_seconds()))
        name = (event.subject, None if feed.identity == "once" else event.state)
        if name in seen:
            continue
        seen.add(name)
        dated = at
        if event.occurred_at is not None:
            dated = max(0.0, at - 0.9 * feed.lookback, min(at, _whole((event.occurred_at - start).total_seconds())))
        data = event.data if isinstance(event.data, Mapping) else {"value": event.data}
        arrivals.append(
            Arrival(
                at=at,
                feed=feed.name,
                subject=event.subject,
                type=event.type,
                data=data,
                state=event.state,
                dated=_whole(dated),
            )
        )
    return arrivals


def _troubles(feed: Feed, faults: Collection[str], random: Random, seconds: float) -> Iterator[Trouble]:
    if feed.way == "push":
        return
    days = max(1, round(seconds / DAY))
    if "429" in faults:
        for _ in range(random.randint(0, days)):
            after = random.choice((None, 30.0, 900.0))
            length = random.choice((30.0, 600.0, HOUR))
            at = _whole(random.uniform(0.0, seconds))
            yield Trouble(at=at, feed=feed.name, kind="rate_limited", seconds=length, retry_after=after)
    if "outage" in faults:
        for _ in range(random.randint(0, days)):
            kind: Any = random.choice(("unavailable", "offline", "timeout"))
            length = random.choice((60.0, 900.0, 3 * HOUR))
            yield Trouble(at=_whole(random.uniform(0.0, seconds)), feed=feed.name, kind=kind, seconds=length)


def _of_process(faults: Collection[str], random: Random, seconds: float) -> Iterator[Happening]:
    days = max(1, round(seconds / DAY))

    def at() -> float:
        return _whole(random.uniform(0.0, seconds))

    if "crash" in faults:
        for _ in range(random.randint(2, 5 * days)):
            verb = random.choice(("commit", "commit", "commit", "settle", "journal", "record_idle", ""))
            skip = random.choice((0, 0, 1, 3))
            down = random.choice((0.0, 40.0, HOUR))
            yield Crash(at=at(), verb=verb, skip=skip, after=random.random() < 0.5, down=down)
    if "lock" in faults:
        for _ in range(random.randint(0, 2 * days)):
            verb = random.choice(("commit", "settle", "journal", ""))
            yield Lock(at=at(), verbs=random.randint(1, 4), verb=verb, after=random.random() < 0.5)
    if "restart" in faults:
        for _ in range(random.randint(0, days)):
            yield Restart(at=at(), down=random.choice((0.0, 300.0, 2 * HOUR)))


def _of_fleet(faults: Collection[str], random: Random, seconds: float, replicas: int) -> Iterator[OfProcess]:
    """What befalls replicas: any of them, mostly at what a reader or a worker does with its lease."""
    days = max(1, round(seconds / DAY))

    def one() -> dict[str, Any]:
        verb = random.choice(VERBS)
        return {
            "at": _whole(random.uniform(0.0, seconds)),
            "replica": random.randint(1, replicas),
            "verb": verb,
            "skip": random.choice((0, 0, 1, 3)) if verb else random.randint(0, 12),
            "after": random.random() < 0.5,
        }

    if "crash" in faults:
        for _ in range(random.randint(2, 5 * days)):
            yield Crash(**one(), down=random.choice((0.0, 40.0, HOUR)))
    if "freeze" in faults:
        for _ in range(random.randint(2, 6 * days)):
            yield Freeze(**one(), seconds=random.choice(FREEZES))
    if "cut" in faults:
        for _ in range(random.randint(1, 4 * days)):
            yield Cut(**one(), seconds=random.choice((60.0, 1_200.0, HOUR)))
    if "lock" in faults:
        for _ in range(random.randint(0, 2 * days)):
            where = one()
            yield Lock(at=where["at"], replica=where["replica"], verb=where["verb"], after=where["after"])
    if "restart" in faults:
        for _ in range(random.randint(0, 2 * days)):
            at, replica = _whole(random.uniform(0.0, seconds)), random.randint(1, replicas)
            yield Restart(at=at, replica=replica, down=random.choice((0.0, 300.0, 2 * HOUR)))


def _of_machine(faults: Collection[str], random: Random, seconds: float) -> Iterator[Happening]:
    days = max(1, round(seconds / DAY))
    if "sleep" in faults:
        for day in range(days):
            if random.random() < 0.7:
                yield Sleep(
                    at=_whole(day * DAY + random.uniform(12, 16) * HOUR), seconds=random.choice((0.5, 2, 9)) * HOUR
                )
    if "clock" in faults:
        for _ in range(random.randint(0, 2)):
            at = _whole(random.uniform(0.0, seconds))
            yield ClockJump(at=at, seconds=random.choice((-1_800.0, -30.0, 30.0, 1_800.0)))


def _before_change(configuration: Configuration, random: Random) -> datetime:
    """A day before the clocks change, in the time zone of a schedule or of quiet hours."""
    zones = [feed.schedule.tz for feed in configuration.feeds if isinstance(feed.schedule, Cron)]
    zones += [trigger.quiet.tz for trigger in configuration.triggers if trigger.quiet is not None]
    named = [zone for zone in dict.fromkeys(zones) if zone != "UTC"] or [BERLIN]
    zone = ZoneInfo(random.choice(named))
    changes = []
    day = START
    for _ in range(366):
        following = day + timedelta(days=1)
        if day.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            changes.append(day)
        day = following
    return random.choice(changes) - timedelta(days=1) if changes else START
