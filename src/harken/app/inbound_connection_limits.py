"""Which connections may stay: how many in all and from one address, how long each may take, and which one goes first.

A table that is told the time and closes nothing itself, so that any listener can use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Generic, Literal, TypeVar

import msgspec

__all__ = ["LOOPBACK", "Admission", "ConnectionTable", "Limits", "Phase", "Place", "group_of"]

C = TypeVar("C")

Phase = Literal["head", "body", "busy", "idle", "lingering", "stalled"]
"""What a connection waits for: the head of a request, its body, our answer, the next request, the end after a refusal,
or that the peer reads what it was sent."""

LOOPBACK = ("127.0.0.0/8", "::1/128")
NETWORK_OF_A_HOST = 64
"""An IPv6 host has a whole network of this length to itself, so its addresses count as one."""

# among those of one line the oldest goes first; a request that is being answered never goes
VICTIMS: tuple[tuple[Phase, ...], ...] = (("lingering",), ("idle", "head"), ("body", "stalled"))


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections there may be, and for how long each may be in a phase.

    `reserved` is how many more may come to the API. Addresses in `proxies` have no limit of their own. A refused peer
    gets `linger_seconds` to read why. `stalled_seconds` are many, as a person may have paused the output of a command.
    """

    connections: int = 512
    per_address: int = 64
    reserved: int = 32
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    idle_seconds: float = 75.0
    linger_seconds: float = 2.0
    stalled_seconds: float = 300.0
    proxies: tuple[str, ...] = LOOPBACK

    @property
    def round_seconds(self) -> float:
        """How often the table is looked through: once a second, or as often as the shortest deadline needs."""
        return min(1.0, *self.deadlines.values())

    @property
    def deadlines(self) -> Mapping[Phase, float]:
        return {
            "head": self.head_seconds,
            "body": self.body_seconds,
            "idle": self.idle_seconds,
            "lingering": self.linger_seconds,
            "stalled": self.stalled_seconds,
        }

    def within(self, descriptors: int, kept: int) -> Limits:
        """Fewer connections, if the process may open that few files, and keeps some for itself."""
        room = max(1, descriptors - kept - self.reserved)
        return self if room >= self.connections else msgspec.structs.replace(self, connections=room)


class Place(Generic[C]):
    """A connection's row in the table."""

    __slots__ = ("connection", "group", "in_reserve", "phase", "since")

    def __init__(self, connection: C, group: str, now: float, *, in_reserve: bool) -> None:
        self.connection = connection
        self.group = group
        self.in_reserve = in_reserve
        self.phase: Phase = "head"
        self.since = now


class Admission(msgspec.Struct, Generic[C], frozen=True, kw_only=True):
    """`place` is None for a connection that may not stay; `closed` is the one that has to go for it.

    `limit` names the limit that was met, if any.
    """

    place: Place[C] | None
    closed: Place[C] | None = None
    limit: Literal["", "connections", "address"] = ""


class ConnectionTable(Generic[C]):
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._deadlines = limits.deadlines
        self._count = 0
        self._reserved = 0
        # each in the order in which they came into the phase, so the first is the oldest
        self._phases: dict[Phase, dict[Place[C], None]] = {phase: {} for phase in (*self._deadlines, "busy")}
        self._groups: dict[str, dict[Place[C], None]] = {}
        self._proxies = tuple(ip_network(each) for each in limits.proxies)

    def __len__(self) -> int:
        return self._count + self._reserved

    def admit(self, connection: C, address: str, now: float, *, may_use_reserve: bool = False) -> Admission[C]:
        """Give the connection a place, if need be that of another one, which leaves the table."""
        group = group_of(address, self._proxies)
        if group and len(self._groups.get(group, ())) >= self.limits.per_address:
            closed = _first_to_go(self._groups[group])
            place = closed and self._replace(closed, connection, group, now)
            return Admission(place=place, closed=closed, limit="address")
        if self._count < self.limits.connections:
            return Admission(place=self._add(connection, group, now))
        closed = self._first_to_go(in_reserve=False)
        if closed is None and may_use_reserve:
            if self._reserved < self.limits.reserved:
                return Admission(place=self._add(connection, group, now, in_reserve=True), limit="connections")
            closed = self._first_to_go(in_reserve=True)
        place = closed and self._replace(closed, connection, group, now)
        return Admission(place=place, closed=closed, limit="connections")

    def move(self, place: Place[C], phase: Phase, now: float) -> None:
        """The connection is in this phase from now on."""
        del self._phases[place.phase][place]
        self._phases[phase][place] = None
        place.phase = phase
        place.since = now

    def remove(self, place: Place[C]) -> None:
        """The connection has ended. Removing it twice is fine."""
        if place not in self._phases[place.phase]:
            return
        del self._phases[place.phase][place]
        self._resize(place, -1)
        if place.group:
            group = self._groups[place.group]
            del group[place]
            if not group:
                del self._groups[place.group]

    def overdue(self, now: float) -> list[Place[C]]:
        """The connections whose time is over."""
        found = []
        for phase, seconds in self._deadlines.items():
            for place in self._phases[phase]:
                if now - place.since < seconds:
                    break
                found.append(place)
        return found

    def _add(self, connection: C, group: str, now: float, *, in_reserve: bool = False) -> Place[C]:
        place = Place(connection, group, now, in_reserve=in_reserve)
        self._phases["head"][place] = None
        if group:
            self._groups.setdefault(group, {})[place] = None
        self._resize(place, 1)
        return place

    def _replace(self, closed: Place[C], connection: C, group: str, now: float) -> Place[C]:
        self.remove(closed)
        return self._add(connection, group, now, in_reserve=closed.in_reserve)

    def _resize(self, place: Place[C], by: int) -> None:
        if place.in_reserve:
            self._reserved += by
        else:
            self._count += by

    def _first_to_go(self, *, in_reserve: bool) -> Place[C] | None:
        queues = [self._phases[phase] for phases in VICTIMS for phase in phases]
        oldest = [next((place for place in queue if place.in_reserve is in_reserve), None) for queue in queues]
        return _first_to_go(place for place in oldest if place is not None)


def _first_to_go(places: Iterable[Place[C]]) -> Place[C] | None:
    ranks = {phase: rank for rank, phases in enumerate(VICTIMS) for phase in phases}
    idle = [place for place in places if place.phase in ranks]
    return min(idle, key=lambda place: (ranks[place.phase], place.since), default=None)


@lru_cache(maxsize=4_096)
def group_of(address: str, proxies: Collection[IPv4Network | IPv6Network]) -> str:
    """What is counted as one address; empty for a proxy, behind which there may be anybody."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        # a socket that is no IP socket belongs to this machine
        return ""
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if any(found in network for network in proxies):
        return ""
    if isinstance(found, IPv6Address):
        return str(ip_network((found, NETWORK_OF_A_HOST), strict=False))
    return str(found)
