"""How fast we write to a platform: one writer per credential, within the limits that the platform has for writes.

GitHub: https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits
Jira: https://developer.atlassian.com/cloud/jira/platform/rate-limiting
GitLab: https://docs.gitlab.com/user/gitlab_com/#rate-limits-on-gitlabcom
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from harken.clock import Clock
from harken.errors import Deferred
from harken.ticket import Ticket, TicketTracker

__all__ = [
    "AUTOMATIC",
    "LIMITS",
    "PROGRESS",
    "NoTurn",
    "PaceLimits",
    "WritePace",
    "WritePaces",
    "swap_in_turn",
    "wait_before",
]

PATIENCE = 2.0
"""A writer waits so many seconds for its turn; a longer wait is left to a later pass, with newer values."""

PROGRESS = 0.5
"""The part of the quota that progress may use. The rest is for what people must not miss."""

AUTOMATIC = 0.96
"""The part of the quota that is used without a person's command: one does not wait behind a thousand tickets."""

_MINUTE, _HOUR = 60.0, 3600.0


class NoTurn(Deferred):
    """A write has to wait for its turn, which may be that of its ticket or of its kind alone."""


class PaceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`gap` and `ticket_gap`: seconds between two writes, and between two writes to one ticket. 0: no limit."""

    gap: float = 0.0
    ticket_gap: float = 0.0
    per_minute: int = 0
    per_hour: int = 0


LIMITS: Mapping[str, PaceLimits] = {
    "github": PaceLimits(gap=1.0, per_minute=80, per_hour=500),
    "gitlab": PaceLimits(per_minute=60),
    "jira": PaceLimits(ticket_gap=1.0),
    "azure_devops": PaceLimits(ticket_gap=1.0),
}


def wait_before(times: Sequence[float], now: float, limits: PaceLimits, *, share: float = 1.0) -> float:
    """Seconds until the next write may be made, after writes at these times, oldest first.

    With a `share` below 1 only that part of the quotas may be used up."""
    wait = times[-1] + limits.gap - now if times and limits.gap else 0.0
    for most, span in ((limits.per_minute, _MINUTE), (limits.per_hour, _HOUR)):
        allowed = math.ceil(most * share)
        if most and len(times) >= allowed:
            wait = max(wait, times[-allowed] + span - now)
    return max(wait, 0.0)


class WritePace:
    """The writes of one credential. Everything that writes with it takes its turn here."""

    def __init__(self, clock: Clock, limits: PaceLimits) -> None:
        self.limits = limits
        self._clock = clock
        self._times: deque[float] = deque()
        self._last: dict[str, float] = {}

    async def take(self, ticket: str, *, share: float = 1.0, by_hand: bool = False) -> None:
        """Wait for the next turn. Raise Deferred, and take none, if that is more than a moment away.

        `by_hand`: a person waits for this write, so it may use the whole quota."""
        while (wait := self.wait(ticket, share=share, by_hand=by_hand)) > 0:
            if wait > PATIENCE:
                raise NoTurn(f"the limit of writes to the tracker is used up for another {wait:.0f} s", after=wait)
            await self._clock.sleep(wait)
        now = self._clock.monotonic()
        self._times.append(now)
        self._last[ticket] = now

    @asynccontextmanager
    async def turn(self, ticket: str, *, share: float = 1.0, by_hand: bool = False) -> AsyncIterator[None]:
        """Wait for the next turn, as `take` does. It lasts until the platform has answered: the gap begins there."""
        await self.take(ticket, share=share, by_hand=by_hand)
        try:
            yield
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        now = self._clock.monotonic()
        if not self.limits.gap or not self._times:
            return
        if now - self._times[-1] >= self.limits.gap:
            # it may have had another write, which counts
            self._times.append(now)
        else:
            # a request that was long on its way came as late as this
            self._times[-1] = now

    def wait(self, ticket: str, *, share: float = 1.0, by_hand: bool = False) -> float:
        share = share if by_hand else min(share, AUTOMATIC)
        now = self._clock.monotonic()
        while self._times and self._times[0] <= now - _HOUR:
            self._times.popleft()
        gap = self.limits.ticket_gap
        self._last = {name: at for name, at in self._last.items() if now - at < gap}
        own = self._last[ticket] + gap - now if ticket in self._last else 0.0
        return max(own, wait_before(self._times, now, self.limits, share=share))


async def swap_in_turn(
    pace: WritePace,
    tracker: TicketTracker,
    ticket: Ticket,
    add: Sequence[str],
    remove: Sequence[str],
    *,
    by_hand: bool = False,
) -> Ticket:
    """Swap labels of the ticket in a turn of its own. Raise Deferred if that is not soon."""
    async with pace.turn(ticket.id, by_hand=by_hand):
        return await tracker.swap_labels(ticket, add, remove)


class WritePaces:
    """The pace of each credential, by the name of its account."""

    def __init__(self, clock: Clock, limits: Mapping[str, PaceLimits] = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._paces: dict[str, WritePace] = {}

    def of(self, account: str, kind: str) -> WritePace:
        if account not in self._paces:
            self._paces[account] = WritePace(self._clock, self._limits.get(kind, PaceLimits()))
        return self._paces[account]
