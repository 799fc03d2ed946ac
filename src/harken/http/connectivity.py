"""Whether this machine is offline: a service that nobody here can reach has not failed."""

from __future__ import annotations

from typing import NamedTuple

from harken.clock import Clock
from harken.errors import NoConnection, Offline

__all__ = ["LATELY_SECONDS", "Connectivity", "is_loopback"]

LATELY_SECONDS = 900.0
"""A host that could not be reached counts for so long; it is tried again sooner than that."""

OURS = ("no_route", "no_dns")
"""What is met on the way when there is no network here; one host is enough to tell."""

MOST_KNOWN = 1_000


class Missed(NamedTuple):
    """When a host could not be reached, for the first and the last time in a row, by the monotonic clock."""

    first: float
    last: float
    private: bool


class Connectivity:
    """What the attempts to reach hosts tell. Loopback tells nothing, and a private network nothing about others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # the last answer, by whether the host may be in a private network
        self._answered: dict[bool, float] = {}
        self._known: set[str] = set()
        self._missed: dict[str, Missed] = {}

    def answered(self, host: str, *, private: bool) -> None:
        """Note that the host has answered, whatever it said."""
        if is_loopback(host):
            return
        self._answered[private] = self._clock.monotonic()
        self._missed.pop(host, None)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known.add(host)

    def judge(self, error: Exception) -> Exception:
        """Return Offline in place of a failed connection if no host can be reached, and any other error as it is."""
        if not isinstance(error, NoConnection) or is_loopback(error.host):
            return error
        missed = self._note(error)
        answered = self._last_answer(private=error.private)
        # somebody has answered since this host was missed first: it is the host that is away
        if answered >= missed.first or not (self._is_ours(error) or self._is_common(missed, answered)):
            return error
        return Offline(f"offline: {error.message}", fix=error.fix)

    def _note(self, error: NoConnection) -> Missed:
        now, before = self._clock.monotonic(), self._missed.get(error.host)
        in_a_row = before is not None and now - before.last < LATELY_SECONDS
        first = before.first if before is not None and in_a_row else now
        found = self._missed[error.host] = Missed(first=first, last=now, private=error.private)
        return found

    def _last_answer(self, *, private: bool) -> float:
        found = [at for near, at in self._answered.items() if private or not near]
        return max(found, default=float("-inf"))

    def _is_ours(self, error: NoConnection) -> bool:
        # some systems say that a name does not exist when no DNS server can be asked
        return error.cause in OURS or (error.cause == "unknown_name" and error.host in self._known)

    def _is_common(self, missed: Missed, answered: float) -> bool:
        """Whether another host was missed lately too, and nobody has answered since."""
        since = max(answered, missed.last - LATELY_SECONDS)
        alike = [one for one in self._missed.values() if one.last > since and (missed.private or not one.private)]
        return len(alike) > 1


def is_loopback(host: str) -> bool:
    """Whether the host is this machine, by its name or address."""
    return host in ("localhost", "::1") or host.startswith("127.")
