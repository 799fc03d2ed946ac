"""Every error is named by what happens next, and says what to do about it.

None of them may contain a token, a query string or a body: they end up in logs, verdicts and API answers.
"""

from __future__ import annotations

from typing import ClassVar, Literal

__all__ = [
    "CursorExpired",
    "Deferred",
    "HarkenError",
    "LeaseLost",
    "Malformed",
    "Misconfigured",
    "NeedsAttention",
    "NotFound",
    "Refused",
    "RetryLater",
    "RetryReason",
    "StoreBusy",
    "StoreUnavailable",
    "Unauthorized",
    "addressed",
]

RetryReason = Literal["failed", "timeout", "rate_limited"]


class HarkenError(Exception):
    """Something went wrong; `message` says what and to what, `fix` what a person can do about it."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}. {self.fix}" if self.fix else self.message


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


class NeedsAttention(HarkenError):
    """It will not work until a person does something; `fix` says what."""

    code = "attention"


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


class Malformed(Refused):
    """The request cannot be parsed; sending the same again will not help."""

    code = "malformed"


class StoreBusy(RetryLater):
    """The queue of the store is full; nothing was written. Try again shortly."""

    code = "store_busy"


class StoreUnavailable(RetryLater):
    """The store cannot write now (disk full, locked, unreachable); nothing was acknowledged."""

    code = "store_unavailable"
