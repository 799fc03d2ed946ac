"""Who is who on a tracker: our own account, and what others may do, each remembered for a while."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from harken.clock import Clock
from harken.ticket import Access, Actor, TicketTracker
from harken.tickets.labeller_trust import Trust, Trusted, judge

__all__ = ["Accounts"]

ACCESS_FOR = timedelta(minutes=1)
OWN_FOR = timedelta(hours=1)
MOST_KNOWN = 1_000


class Accounts:
    """The accounts of one tracker. `where` is the location that an account may do something in."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._own: dict[str, tuple[datetime, Actor]] = {}
        self._access: dict[tuple[str, str, str], tuple[datetime, Access]] = {}

    async def own(self, tracker: TicketTracker, where: str) -> Actor:
        found = self._own.get(where)
        if found is None or self._clock.now() - found[0] >= OWN_FOR:
            found = self._own[where] = (self._clock.now(), await tracker.own_account())
        return found[1]

    async def judge(self, tracker: TicketTracker, where: str, actor: Actor | None, trust: Trust) -> Trusted:
        """Whether what this account does counts; what it may do is asked only if that decides.

        An account may be known by its login alone."""
        own = await self.own(tracker, where)
        if actor is not None and not actor.id and actor.login.casefold() == own.login.casefold():
            actor = own
        if actor is not None and actor.id != own.id and not (actor.bot or actor.form):
            if trust.label in ("write", "triage"):
                # a history may have proved more than we may ask for
                access = max(actor.access, await self._access_of(tracker, where, actor))
                actor = replace(actor, access=access)
            actor = replace(actor, id=actor.id or actor.login)
        return judge(actor, trust, own.id)

    async def _access_of(self, tracker: TicketTracker, where: str, actor: Actor) -> Access:
        now, name = self._clock.now(), (where, actor.id, actor.login)
        found = self._access.get(name)
        if found is not None and now - found[0] < ACCESS_FOR:
            return found[1]
        access = await tracker.access_of(actor)
        if len(self._access) >= MOST_KNOWN:
            self._access = {one: known for one, known in self._access.items() if now - known[0] < ACCESS_FOR}
        self._access[name] = (now, access)
        return access
