"""A scripted outside world: items that come, change, flap and go on time, behind an API with an API's weaknesses.

It needs no network and no tasks: what a read shows is computed from the script and the clock. It is also the example
of a source for authors: `WorldSource` is complete in the way a real one has to be.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from harken.clock import Clock, from_unix
from harken.errors import Garbled, NeedsAttention, NoConnection, RetryLater
from harken.event import Event, Span
from harken.source import Batch, Cursor

__all__ = ["Change", "Fault", "Item", "View", "World", "WorldSource", "suffer"]

View: TypeAlias = Literal["listing", "since", "log", "forward"]
"""What the API offers: all current items; those changed since a time; a log of every change; or such a log that goes
only forward: who asks with a cursor has everything up to it, and it is never shown again."""

FaultKind: TypeAlias = Literal["timeout", "rate_limited", "unavailable", "garbage", "forbidden", "malformed", "offline"]
HANG_SECONDS = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Item:
    """An item as the API shows it. An undated one has no `stamp`."""

    id: str
    state: str
    stamp: float | None
    serial: int

    def event(self, kind: str = "item") -> Event:
        dated = None if self.stamp is None else from_unix(self.stamp)
        data = {"id": self.id, "state": self.state, "updated": None if dated is None else dated.isoformat()}
        return Event(
            subject=self.id, type=kind, state=self.state, key=f"{self.id}:{self.state}", occurred_at=dated, data=data
        )


@dataclass(frozen=True, kw_only=True)
class Change:
    """At `at`, readers begin to see the item in `state`; None removes it.

    `stamp` is the time the API claims for it: before `at` it is late (eventual consistency), after it in the future.
    """

    at: float
    id: str
    state: str | None
    stamp: float | None = None


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Between `begin` and `end` every read fails in this way. `after` is the Retry-After of a 429."""

    begin: float
    end: float
    kind: FaultKind
    after: float | None = None


@dataclass
class World:
    """The script, and what a reader sees of it now. Changes may be added at any time, also in the past of `at`."""

    clock: Clock
    faults: list[Fault] = field(default_factory=list)
    latency: float = 0.0
    _changes: list[Change] = field(default_factory=list)

    def script(self, changes: Iterable[Change]) -> None:
        self._changes = sorted([*self._changes, *changes], key=lambda change: change.at)

    def put(self, id: str, state: str = "new", *, late: float = 0.0, undated: bool = False) -> None:
        """Create or change an item now. `late` is how long ago it says it happened; a negative one is in the future."""
        now = self.clock.time()
        self.script([Change(at=now, id=id, state=state, stamp=None if undated else now - late)])

    def remove(self, id: str) -> None:
        self.script([Change(at=self.clock.time(), id=id, state=None)])

    def log(self) -> list[Item]:
        """Every change that is visible now, in the order in which they became visible."""
        return [
            Item(id=change.id, state=change.state, stamp=change.stamp, serial=serial)
            for serial, change in enumerate(self._visible(), 1)
            if change.state is not None
        ]

    def listing(self) -> list[Item]:
        """What exists now, oldest first; ties are in the order of ids, as APIs do."""
        current: dict[str, Item] = {}
        for serial, change in enumerate(self._visible(), 1):
            current.pop(change.id, None)
            if change.state is not None:
                current[change.id] = Item(id=change.id, state=change.state, stamp=change.stamp, serial=serial)
        return sorted(current.values(), key=_place)

    def version(self) -> int:
        """Rises with every visible change: the API's ETag."""
        return len(self._visible())

    def fault(self) -> Fault | None:
        now = self.clock.time()
        return next((fault for fault in self.faults if fault.begin <= now < fault.end), None)

    def _visible(self) -> Sequence[Change]:
        now = self.clock.time()
        return self._changes[: bisect_right(self._changes, now, key=lambda change: change.at)]


def _place(item: Item) -> tuple[float, str]:
    return (item.stamp or 0.0, item.id)


@dataclass
class WorldSource:
    """Reads a World. `cap`: the API shows only so many of the newest. `conditional`: it answers 304 to a known ETag."""

    world: World
    view: View = "listing"
    page_size: int = 100
    cap: int = 0
    conditional: bool = False
    served: list[tuple[float, Batch]] = field(default_factory=list)
    passed: int = 0

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        await self.world.clock.sleep(self.world.latency)
        await suffer(self.world.fault(), self.world.clock)
        batch = self._answer(cursor if isinstance(cursor, dict) else {}, since)
        self.served.append((self.world.clock.time(), batch))
        return batch

    def _answer(self, cursor: dict[str, Any], since: datetime) -> Batch:
        if self.view in ("log", "forward"):
            return self._log(cursor)
        if self.view == "since":
            return self._since(cursor, since)
        return self._listing(cursor)

    def _log(self, cursor: dict[str, Any]) -> Batch:
        last = cursor.get("serial", 0)
        if self.view == "forward":
            last = self.passed = max(self.passed, last)
        rest = [item for item in self.world.log() if item.serial > last]
        page = rest[: self.page_size]
        following = {"serial": page[-1].serial} if page else {"serial": last} if last else {}
        return Batch(events=_events(page), cursor=following or None, more=len(rest) > len(page))

    def _since(self, cursor: dict[str, Any], since: datetime) -> Batch:
        # the place within a read is a stamp and an id: many items may share the stamp at a page's border
        after = tuple(cursor["after"]) if "after" in cursor else (since.timestamp(), "")
        rest = [item for item in self.world.listing() if item.stamp is not None and _place(item) > after]
        page = rest[: self.page_size]
        more = len(rest) > len(page)
        covered = None if more or after[1] else Span(since, self._now())
        return Batch(
            events=_events(page), cursor={"after": list(_place(page[-1]))} if more else {}, more=more, covered=covered
        )

    def _listing(self, cursor: dict[str, Any]) -> Batch:
        offset, version = cursor.get("offset", 0), self.world.version()
        if self.conditional and not offset and cursor.get("tag") == version:
            return Batch(cursor=cursor, unchanged=True)
        shown = self.world.listing()
        whole = not self.cap or len(shown) <= self.cap
        shown = shown[-self.cap :] if self.cap else shown
        page, more = shown[offset : offset + self.page_size], len(shown) > offset + self.page_size
        begun = cursor.get("begun", version) if offset else version
        if more:
            return Batch(
                events=_events(page), cursor={"offset": offset + len(page), "begun": begun}, more=True, complete=False
            )
        # pages of a listing that moved meanwhile may hide an item: no tag, so that the next read shows all again
        steady = begun == version
        return Batch(events=_events(page), cursor={"tag": version} if steady else {}, complete=whole and steady)

    def _now(self) -> datetime:
        return self.world.clock.now().astimezone(UTC)


def _events(items: Sequence[Item]) -> list[Event]:
    return [item.event() for item in items]


async def suffer(fault: Fault | None, clock: Clock) -> None:
    """Fail as the fault says, if there is one."""
    if fault is None:
        return
    if fault.kind == "timeout":
        # a reader with a deadline has gone long before; one without gets the error of the connection at last
        await clock.sleep(HANG_SECONDS)
    if fault.kind == "rate_limited":
        raise RetryLater("world.example answered 429", after=fault.after, reason="rate_limited")
    if fault.kind == "forbidden":
        raise NeedsAttention("world.example answered 401", fix="Check the token")
    if fault.kind == "malformed":
        raise Garbled("the answer of world.example has no list; it is null", fix="Check the address")
    if fault.kind == "offline":
        raise NoConnection("could not connect to world.example", host="world.example", cause="no_route")
    if fault.kind == "garbage":
        raise ValueError("not JSON at all")
    raise RetryLater("world.example answered 503")
