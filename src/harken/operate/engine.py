"""What operations ask of the parts around them; app.py joins these with the real ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from harken.event import Outcome
from harken.rate_limit import Level

if TYPE_CHECKING:
    from harken.config.loaded import Account
    from harken.source import Host

__all__ = ["Engine", "Preview", "Shown"]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One item that a source shows now, and what would become of it."""

    key: str
    subject: str
    type: str
    outcome: Outcome
    reason: str = ""
    occurred_at: datetime | None = None


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a read would do. `complete` is False when there was more than a dry run reads.

    `found` says what names in the query stand for; `unknown` has a sentence for each that the service does not know.
    """

    trigger: str
    feed: str
    since: datetime | None
    shown: tuple[Shown, ...] = ()
    complete: bool = True
    notes: tuple[str, ...] = ()
    found: Mapping[str, str] = {}
    unknown: tuple[str, ...] = ()


class Engine(Protocol):
    """The running controller, or, without one, as much of it as a single command needs."""

    async def reload(self) -> Mapping[str, Any]:
        """Load the configuration again and apply it; the plan: add, replace, remove, keep, refused, findings, freed.

        What had stopped for want of a credential that is another now is freed."""
        ...

    async def diff(self) -> Mapping[str, Any]:
        """The plan that `reload` would apply, without applying it."""
        ...

    async def tick(self, feed: str, by_hand: str = "") -> Mapping[str, Any]:
        """Read the feed now through the same lease and commit as its schedule: result, seen, new, error.

        The runs of the trigger `by_hand` do not wait for its quiet hours."""
        ...

    async def preview(self, trigger: str, lookback_seconds: float) -> Preview:
        """Read the API and match, but write nothing."""
        ...

    def status(self) -> Mapping[str, Any]:
        """uptime, version, pid, url, generation, worker counters and lag. Empty when no controller runs here."""
        ...

    def lend(self, account: Account) -> Host:
        """What a service needs to answer a person about this account."""
        ...

    def budgets(self) -> Mapping[str, Level]:
        """What each credential may still ask, by the credential's name."""
        ...

    def nudge(self) -> None:
        """The store was changed by a person: look at it now instead of at the next timer."""
        ...

    async def changed(self, seconds: float) -> bool:
        """Return True once something was committed or `seconds` have passed; False when the engine is stopping."""
        ...
