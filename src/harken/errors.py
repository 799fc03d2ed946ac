"""Every error is named by what happens next, and says what to do about it.

None of them may contain a token, a query string or a body: they end up in logs, verdicts and API answers.
"""

from __future__ import annotations

from typing import ClassVar, Literal

__all__ = [
    "AnswerLost",
    "ConnectionFault",
    "CursorExpired",
    "Deferred",
    "Forbidden",
    "Garbled",
    "HarkenError",
    "KeyReused",
    "LeaseLost",
    "Malformed",
    "Misconfigured",
    "NeedsAttention",
    "NoConnection",
    "NotFound",
    "Offline",
    "Outdated",
    "Refused",
    "RetryLater",
    "RetryReason",
    "StillRunning",
    "StoreBusy",
    "StoreUnavailable",
    "TooManyRequests",
    "Unauthorized",
    "Unconditional",
    "addressed",
]

RetryReason = Literal["failed", "timeout", "rate_limited"]
ConnectionFault = Literal["no_route", "no_dns", "unknown_name", "refused", "timeout"]
"""No route from here; no DNS server answers; DNS does not know the name; nobody listens there; no answer in time."""


class HarkenError(Exception):
    """Something went wrong; `message` says what and to what, `fix` what a person can do about it."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        end = "" if self.message.endswith("?") else "."
        return f"{self.message}{end} {self.fix}" if self.fix else self.message


def addressed(error: HarkenError, kind: str, name: str) -> HarkenError:
    """Put the account's name into the command that the error suggests: a service knows only its own kind."""
    error.fix = error.fix.replace(f"harken integrations {kind} ", f"harken integrations {name or kind} ")
    return error


class RetryLater(HarkenError):
    """It may work later. `after`: for how many seconds the server wants us to wait."""

    code = "retry"

    def __init__(
        self,
        message: str,
        *,
        after: float | None = None,
        reason: RetryReason = "failed",
        fix: str = "",
    ) -> None:
        super().__init__(message, fix=fix)
        self.after = after
        self.reason = reason


class Deferred(RetryLater):
    """No call was made: the rate limit of the credential has no room now. Try again in `after` seconds."""

    code = "deferred"

    def __init__(self, message: str, *, after: float | None = None, fix: str = "") -> None:
        super().__init__(message, after=after, reason="rate_limited", fix=fix)


class NoConnection(RetryLater):
    """No connection could be made with `host`. `cause` is what was met on the way.

    `private`: the host may be in a private network, which can be reached when nothing else can.
    """

    def __init__(
        self,
        message: str,
        *,
        host: str,
        cause: ConnectionFault,
        private: bool = False,
        reason: RetryReason = "failed",
        fix: str = "",
    ) -> None:
        super().__init__(message, reason=reason, fix=fix)
        self.host = host
        self.cause = cause
        self.private = private


class Offline(RetryLater):
    """This machine reaches nobody now, so the service has not failed. It is tried again soon."""

    code = "offline"


class NeedsAttention(HarkenError):
    """It will not work until a person does something; `fix` says what."""

    code = "attention"


class Garbled(NeedsAttention):
    """The answer is not what the service is to send. One may be a bad moment; the next one needs a person."""


class CursorExpired(HarkenError):
    """The source no longer accepts our cursor, so what happened since then cannot be read."""

    code = "cursor_expired"


class LeaseLost(HarkenError):
    """Another process holds the feed or the run now; nothing of ours may be written for it."""

    code = "lease_lost"


class Refused(HarkenError):
    """Not done, because it is not allowed or not valid."""

    code = "refused"


class Misconfigured(Refused):
    """The configuration, or what a person entered, is not valid."""

    code = "misconfigured"


class NotFound(Refused):
    """Nothing has that name."""

    code = "not_found"


class Unauthorized(Refused):
    """The sender is not authenticated: a signature or key is missing, wrong or too old."""

    code = "unauthorized"


class Forbidden(Refused):
    """The caller is known, and may not do this."""

    code = "forbidden"


class Malformed(Refused):
    """The request cannot be parsed; sending the same again will not help."""

    code = "malformed"


class Outdated(Refused):
    """Somebody changed it since it was read: read it again, and decide again."""

    code = "outdated"


class Unconditional(Malformed):
    """A change that does not say which version it means to change."""

    code = "unconditional"


class KeyReused(Refused):
    """An Idempotency-Key that was sent with another request before."""

    code = "key_reused"


class AnswerLost(Refused):
    """An earlier request with this Idempotency-Key was done, or may have been, and its answer cannot be given again."""

    code = "answer_lost"


class StillRunning(RetryLater):
    """The first request with this Idempotency-Key is not answered yet."""

    code = "still_running"


class TooManyRequests(RetryLater):
    """The caller has used up what it may ask in this minute."""

    code = "too_many_requests"


class StoreBusy(RetryLater):
    """The queue of the store is full; nothing was written. Try again shortly."""

    code = "store_busy"


class StoreUnavailable(RetryLater):
    """The store cannot write now (disk full, locked, unreachable); nothing was acknowledged."""

    code = "store_unavailable"
