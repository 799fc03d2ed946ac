"""What goes on around the engine in one case, as a list of things that happen at their times.

Times are seconds from the start of the case, so that any of them can be left out without moving the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec

from harken.testing import START
from harken.testing.scripted import View

__all__ = [
    "ALIKE",
    "START",
    "Arrival",
    "ClockJump",
    "Crash",
    "Cut",
    "FaultKind",
    "Freeze",
    "Happening",
    "Lock",
    "OfProcess",
    "Restart",
    "Script",
    "Sleep",
    "StandIn",
    "TicketChange",
    "TicketVerb",
    "Trouble",
    "moment",
]

TicketVerb: TypeAlias = Literal["open", "label", "unlabel", "close", "reopen", "again"]
FaultKind: TypeAlias = Literal["rate_limited", "unavailable", "offline", "timeout", "forbidden", "malformed", "garbage"]


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """From `at` on, the source of the feed shows this occurrence; one with the same subject and state is a repeat.

    `dated` is when it says that it happened; None for an undated one. `gone`: from then on a listing has it no more.
    `feed` is the stored name of the feed.
    """

    at: float
    feed: str
    subject: str
    type: str
    data: Mapping[str, Any]
    key: str = ""
    state: str | None = None
    dated: float | None = None
    gone: float | None = None


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """For so many seconds every read of the feed fails in this way."""

    at: float
    feed: str
    kind: FaultKind
    seconds: float
    retry_after: float | None = None


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """The process is killed at a store verb to come, and is away for `down` seconds.

    `verb`: at one of this name; `skip`: so many pass before. `after`: it has taken effect, and nobody was told.
    `replica` is the number of the one that it befalls, where there are several; the first is 1.
    """

    at: float
    verb: str = ""
    skip: int = 0
    after: bool = False
    down: float = 0.0
    replica: int = 1


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """The store cannot write for so many verbs. `after`: they take effect, and their answers are lost."""

    at: float
    verbs: int = 1
    verb: str = ""
    after: bool = False
    replica: int = 1


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """The process is stopped in order, and started again after `down` seconds."""

    at: float
    down: float = 0.0
    replica: int = 1


class Freeze(msgspec.Struct, frozen=True, kw_only=True):
    """One of several replicas stands still at a store verb to come, as SIGSTOP does, and then goes on."""

    at: float
    seconds: float
    verb: str = ""
    skip: int = 0
    after: bool = False
    replica: int = 1


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """From a store verb to come, one of several replicas does not reach the store. `after`: this verb took effect."""

    at: float
    seconds: float
    verb: str = ""
    skip: int = 0
    after: bool = False
    replica: int = 1


class TicketChange(msgspec.Struct, frozen=True, kw_only=True):
    """A person does something to a ticket of a tracker; `feed` is the stored name of the tracker's feed.

    `open` makes the ticket in the project, with these labels; `again` takes off the label of a run's end, if it was
    shown, which asks for another run. `webhooks`: how many tell of it, where the tracker has them; each is sent once.
    `lag`: lists and searches show it, and what we write after it, only so many seconds later; a read of this ticket
    alone is behind for a few.
    """

    at: float
    feed: str
    ticket: str
    what: TicketVerb
    labels: tuple[str, ...] = ()
    project: str = ""
    webhooks: int = 1
    lag: float = 0.0


class Sleep(msgspec.Struct, frozen=True, kw_only=True):
    """The lid of the laptop is closed for so long."""

    at: float
    seconds: float


class ClockJump(msgspec.Struct, frozen=True, kw_only=True):
    """Our clock is set forward or back; the time of the world outside goes on."""

    at: float
    seconds: float


Happening: TypeAlias = Arrival | TicketChange | Trouble | Crash | Lock | Restart | Freeze | Cut | Sleep | ClockJump
OfProcess: TypeAlias = Crash | Lock | Restart | Freeze | Cut
"""What befalls a process, or one of several replicas."""


class StandIn(msgspec.Struct, frozen=True, kw_only=True):
    """How the stand-in of a polled source shows its items: see `harken.testing.scripted.View`."""

    view: View = "log"
    page_size: int = 100


ALIKE = StandIn()


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides how a case goes. `seconds`: how long it lasts at least; then all work is finished.

    `baselined`: each feed is read once before anything happens, so that whatever comes is new. `replicas` share one
    store; with one, the store is its own.
    """

    items: tuple[Happening, ...] = ()
    start: datetime = START
    seconds: float = 0.0
    stand_ins: Mapping[str, StandIn] = {}
    seed: int = 0
    baselined: bool = True
    replicas: int = 1

    @property
    def end(self) -> float:
        """When the last thing has happened."""
        return max([self.seconds, *(item.at + _length(item) for item in self.items)])

    def of(self, feed: str) -> list[Arrival]:
        return [item for item in self.items if isinstance(item, Arrival) and item.feed == feed]


def _length(item: Happening) -> float:
    return item.seconds if isinstance(item, Trouble) else 0.0


def moment(script: Script, seconds: float) -> datetime:
    """The time that is so many seconds after the start."""
    return datetime.fromtimestamp(script.start.timestamp() + seconds, UTC)
