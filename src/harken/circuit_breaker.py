"""When to try again: backoff and circuit breaker as pure functions over a stored `Health`, and a loop that retries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Literal, TypeVar

import msgspec

from harken.clock import Clock
from harken.errors import (
    CursorExpired,
    Deferred,
    Garbled,
    HarkenError,
    LeaseLost,
    NeedsAttention,
    Offline,
    Refused,
    RetryLater,
    StoreBusy,
    StoreUnavailable,
)

__all__ = [
    "REFUSED",
    "Change",
    "Health",
    "Policy",
    "Step",
    "after_failure",
    "after_progress",
    "after_success",
    "before_try",
    "doubled",
    "doubling",
    "error_code",
    "error_text",
    "is_permanent",
    "jittered",
    "retry",
    "retry_wait",
]

T = TypeVar("T")

State = Literal["closed", "open", "half_open", "paused"]
Change = Literal["", "failing", "error", "opened", "paused", "rate_limited", "offline", "recovered"]

REFUSED = ("refused", "misconfigured", "not_found", "unauthorized", "malformed")
"""Codes of errors that a person has to resolve, like a wrong token."""

RETRIES = (10.0, 60.0, 300.0, 600.0)
"""Seconds before the next try after one, two, three and more failures in a row; never more than the interval."""

PAUSE_SECONDS = 5_400.0
"""A feed that has failed often enough is paused only when it has failed for so long: an outage of an hour passes."""

RATE_LIMIT_FIRST, RATE_LIMIT_CAP = 30.0, 600.0
PROBE_FIRST, PROBE_CAP = 30.0, 300.0
ATTENTION_FIRST, ATTENTION_CAP = 900.0, 21_600.0
"""A feed that needs a person is read again after so many seconds, doubling: perhaps it was mended elsewhere."""

OFFLINE_WAIT = 60.0
STORE_WAIT_CAP = 30.0
GARBLED = "garbled"
"""The code of a first answer that makes no sense; the second in a row needs attention."""

BACKOFF_SPREAD = 0.1


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a feed is doing; `Health()` has no failures. All times are wall time, so they hold after a restart.

    `blocked_until` is when the next try may begin. `failing_since` is when the failures in a row began, and
    `offline_since` when the feed found this machine offline. `probes` counts the reads of a paused feed that were to
    find out whether it works again.
    """

    failures: int = 0
    rate_limited: int = 0
    blocked_until: float | None = None
    state: State = "closed"
    code: str = ""
    message: str = ""
    since: float | None = None
    failing_since: float | None = None
    offline_since: float | None = None
    probes: int = 0

    @property
    def clean(self) -> bool:
        troubled = self.failures or self.rate_limited or self.blocked_until or self.offline_since
        return not troubled and self.state == "closed"

    @property
    def failing(self) -> bool:
        """Whether the service could not be used; one that asked for fewer calls, or was not reachable offline, can."""
        return self.failures > 0 or self.state != "closed"

    @property
    def probed(self) -> bool:
        """Whether the feed is paused and read now and then, to find out whether it works again."""
        return self.state == "paused" and self.blocked_until is not None

    def may_try(self, now: float) -> bool:
        """Tell whether a read may start now; a paused feed that is not probed is read only when a person asks."""
        if self.blocked_until is None:
            return self.state != "paused"
        return now >= self.blocked_until


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """After how many failures in a row an error is logged, the feed paused or the breaker opened; None means never.

    It is paused only when the failures span `pause_seconds` as well.
    After a 429 we wait `limited_first` seconds, doubling up to `limited_cap`, or longer if the server wants it.
    """

    error_at: int | None = None
    pause_at: int | None = None
    open_at: int | None = None
    pause_seconds: float = PAUSE_SECONDS
    limited_first: float = RATE_LIMIT_FIRST
    limited_cap: float = RATE_LIMIT_CAP

    @classmethod
    def workflow(cls) -> Policy:
        return cls(error_at=5, pause_at=10)

    @classmethod
    def poller(cls, threshold: int = 5) -> Policy:
        return cls(open_at=threshold)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from an attempt: the health to store, how long to wait at least, and which change to log."""

    health: Health
    wait_seconds: float = 0.0
    change: Change = ""


def before_try(health: Health, now: float) -> Health:
    """The health to try with: an open breaker whose wait is over becomes half open, for one probe."""
    if health.state == "open" and health.may_try(now):
        return msgspec.structs.replace(health, state="half_open")
    return health


def after_success(health: Health, now: float) -> Step:
    """Forget the failures. A clean health is returned as the same object.

    A pause ends if it is probed; any other stays until a person resumes."""
    if health.clean or (health.state == "paused" and not health.probed):
        return Step(health=health)
    failed = health.failures > 0 or health.state != "closed" or health.offline_since is not None
    return Step(health=Health(since=now), change="recovered" if failed else "")


def after_failure(
    error: BaseException, health: Health, policy: Policy, *, interval: float, now: float, roll: float = 0.0
) -> Step:
    """What to store, how long to wait and what to log; `roll` in [0, 1) only ever lengthens the wait."""
    if isinstance(error, LeaseLost):
        return Step(health=health, wait_seconds=interval)
    if isinstance(error, StoreBusy | StoreUnavailable):
        # the source did nothing wrong: a full disk must not pause every feed
        return Step(health=health, wait_seconds=max(error.after or 0.0, min(interval, STORE_WAIT_CAP)))
    if isinstance(error, Garbled) and health.code != GARBLED and health.state != "paused":
        return _garbled(error, health, policy, interval, now, roll)
    if isinstance(error, NeedsAttention | CursorExpired | Refused):
        return _paused(error, health, interval, now, roll)
    if isinstance(error, Offline):
        return _offline(error, health, interval, now, roll)
    if isinstance(error, Deferred):
        return _deferred(error, health, interval, now, roll)
    if isinstance(error, RetryLater) and error.reason == "rate_limited":
        return _rate_limited(error, health, policy, now, roll)
    return _failed(error, health, policy, interval, now, roll)


def after_progress(
    error: BaseException, health: Health, policy: Policy, *, interval: float, now: float, roll: float = 0.0
) -> Step:
    """A page failed, but pages before it were committed: a passing error is no failed read, and ends earlier ones.

    A long listing that breaks off now and then gets to its end, so it must not be paused on its way.
    """
    step = after_failure(error, health, policy, interval=interval, now=now, roll=roll)
    counted = step.health.failures > health.failures
    if not counted or health.state == "paused" or is_permanent(error_code(error)):
        return step
    wait = _wait(retry_wait(1, interval), error, roll)
    recovered = after_success(health, now)
    blocked = msgspec.structs.replace(recovered.health, blocked_until=now + wait)
    return Step(health=blocked, wait_seconds=wait, change=recovered.change)


def error_code(error: BaseException) -> str:
    """The code of an error for records and metrics; it never depends on its text."""
    if isinstance(error, RetryLater) and error.reason != "failed" and not isinstance(error, Deferred):
        return error.reason
    if isinstance(error, HarkenError):
        return error.code
    return "timeout" if isinstance(error, TimeoutError) else "retry"


def error_text(error: BaseException) -> str:
    """The text of an error for records and people; it never contains a token."""
    # an unexpected error may quote an address with a token in it: keep only its name
    return (str(error) if isinstance(error, HarkenError) else f"unexpected {type(error).__name__}")[:500]


def is_permanent(code: str) -> bool:
    """Whether an error of this code lasts until a person resolves it."""
    return code in ("attention", "cursor_expired", *REFUSED)


def retry_wait(failures: int, interval: float) -> float:
    """Seconds before the next try after so many failures in a row: soon at first, and never more than the interval."""
    return min(interval, RETRIES[min(failures, len(RETRIES)) - 1])


def jittered(interval: float, fraction: float, floor: float, roll: float) -> float:
    """Return the interval give or take `fraction` of it, but never less than `floor`."""
    return max(floor, interval * (1 + fraction * (2 * roll - 1)))


def doubled(first: float, times: int, cap: float) -> float:
    """Return `first` doubled so many times, but never more than `cap`."""
    return min(cap, first * 2.0 ** min(times, 30))


def doubling(first: float, cap: float) -> Iterator[float]:
    """Pauses without end: `first`, then twice the one before, up to `cap`."""
    return (doubled(first, times, cap) for times in count())


async def retry(
    call: Callable[[], Awaitable[T]],
    clock: Clock,
    *,
    on: tuple[type[RetryLater], ...],
    pauses: Iterator[float],
    on_wait: Callable[[RetryLater], None],
    honour_after: bool = True,
) -> T:
    """Repeat the call for as long as it fails with one of `on`; every other error passes.

    The wait is the next of `pauses`, or what the error asks for if that is longer and `honour_after` is set. `on_wait`
    is called with an error when it differs from the one before.
    """
    known = ""
    while True:
        try:
            return await call()
        except on as error:
            if str(error) != known:
                known = str(error)
                on_wait(error)
            asked = (error.after or 0.0) if honour_after else 0.0
            await clock.sleep(max(next(pauses), asked))


def _paused(error: HarkenError, health: Health, interval: float, now: float, roll: float) -> Step:
    marked = _marked(error, health, now, failures=health.failures + 1)
    change: Change = "" if health.state == "paused" else "paused"
    if not isinstance(error, NeedsAttention):
        paused = msgspec.structs.replace(marked, state="paused", blocked_until=None, probes=0)
        return Step(health=paused, wait_seconds=interval, change=change)
    until, probes = health.blocked_until, health.probes
    if until is None or not health.probed or now >= until:
        until = now + doubled(ATTENTION_FIRST, probes, ATTENTION_CAP) * (1 + BACKOFF_SPREAD * roll)
        probes += 1
    # otherwise a person asked for this read, and the next probe comes when it would have come
    paused = msgspec.structs.replace(marked, state="paused", blocked_until=until, probes=probes)
    return Step(health=paused, wait_seconds=until - now, change=change)


def _still_paused(health: Health, now: float, wait: float) -> Step:
    """A read of a paused feed found nothing out about the reason of its pause."""
    if health.probed:
        health = msgspec.structs.replace(health, blocked_until=now + wait)
    return Step(health=health, wait_seconds=wait)


def _garbled(error: Garbled, health: Health, policy: Policy, interval: float, now: float, roll: float) -> Step:
    step = _failed(error, health, policy, interval, now, roll)
    return msgspec.structs.replace(step, health=msgspec.structs.replace(step.health, code=GARBLED))


def _offline(error: Offline, health: Health, interval: float, now: float, roll: float) -> Step:
    """The service did nothing wrong, so this is no failure: try again soon, until it can be reached."""
    wait = min(interval, OFFLINE_WAIT) * (1 + BACKOFF_SPREAD * roll)
    if health.state == "paused":
        return _still_paused(health, now, wait)
    marked = _marked(error, health, now, failures=health.failures)
    offline = msgspec.structs.replace(
        marked, blocked_until=now + wait, state=_untried(health), offline_since=health.offline_since or now
    )
    return Step(health=offline, wait_seconds=wait, change="offline" if health.offline_since is None else "")


def _deferred(error: Deferred, health: Health, interval: float, now: float, roll: float) -> Step:
    """No call was made, so this is no failure: wait until the credential may be used again."""
    wait = (interval if error.after is None else error.after) * (1 + BACKOFF_SPREAD * roll)
    if health.state == "paused":
        return _still_paused(health, now, wait)
    marked = _marked(error, health, now, failures=health.failures)
    limited = msgspec.structs.replace(
        marked, rate_limited=max(1, health.rate_limited), blocked_until=now + wait, state=_untried(health)
    )
    return Step(health=limited, wait_seconds=wait)


def _rate_limited(error: RetryLater, health: Health, policy: Policy, now: float, roll: float) -> Step:
    count = health.rate_limited + 1
    wait = _wait(doubled(policy.limited_first, count - 1, policy.limited_cap), error, roll)
    if health.state == "paused":
        return _still_paused(msgspec.structs.replace(health, rate_limited=count), now, wait)
    marked = _marked(error, health, now, failures=health.failures)
    limited = msgspec.structs.replace(marked, rate_limited=count, blocked_until=now + wait, state=_untried(health))
    return Step(health=limited, wait_seconds=wait, change="rate_limited" if count == 1 else "")


def _untried(health: Health) -> State:
    # a probe that was answered 429 proves nothing, so the breaker stays open
    return "open" if health.state == "half_open" else health.state


def _failed(error: BaseException, health: Health, policy: Policy, interval: float, now: float, roll: float) -> Step:
    failures = health.failures + 1
    if health.probed:
        # the service is away: what a person has to mend is still what it was
        wait = _wait(doubled(ATTENTION_FIRST, health.probes - 1, ATTENTION_CAP), error, roll)
        return _still_paused(msgspec.structs.replace(health, failures=failures), now, wait)
    marked = _marked(error, health, now, failures=failures)
    if health.state == "paused" or _pauses(marked, policy, now):
        paused = msgspec.structs.replace(marked, state="paused", blocked_until=None)
        return Step(health=paused, wait_seconds=interval, change="" if health.state == "paused" else "paused")
    if policy.open_at is not None and failures >= policy.open_at:
        wait = _wait(doubled(PROBE_FIRST, failures - policy.open_at, PROBE_CAP), error, roll)
        opened = msgspec.structs.replace(marked, state="open", blocked_until=now + wait)
        return Step(health=opened, wait_seconds=wait, change="opened" if health.state == "closed" else "")
    wait = _wait(retry_wait(failures, interval), error, roll)
    change: Change = "error" if failures == policy.error_at else "failing" if failures == 1 else ""
    return Step(health=msgspec.structs.replace(marked, blocked_until=now + wait), wait_seconds=wait, change=change)


def _pauses(health: Health, policy: Policy, now: float) -> bool:
    """Whether the feed has failed often enough, and for long enough."""
    began = health.failing_since
    often = policy.pause_at is not None and health.failures >= policy.pause_at
    return often and began is not None and now - began >= policy.pause_seconds


def _marked(error: BaseException, health: Health, now: float, *, failures: int) -> Health:
    counted = failures > health.failures
    # being offline before was no trouble of the feed's own
    own = health.failures or health.rate_limited or health.state != "closed"
    began = health.since if health.failures else now
    return msgspec.structs.replace(
        health,
        failures=failures,
        rate_limited=0 if counted else health.rate_limited,
        code=error_code(error),
        message=error_text(error),
        since=health.since if own or (health.offline_since and not counted) else now,
        failing_since=(health.failing_since or began) if counted else health.failing_since,
        offline_since=None,
    )


def _wait(own: float, error: BaseException, roll: float) -> float:
    requested = error.after if isinstance(error, RetryLater) else None
    return max(own, requested or 0.0) * (1 + BACKOFF_SPREAD * roll)
