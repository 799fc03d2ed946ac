"""Every error is named by what happens next, and tells the reader what to do.

None of them may hold a token, a query string or a body: they end up in logs, verdicts and API answers.
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
    """The same error, with the account's own name in the command that mends it: a service knows only its kind."""
    error.fix = error.fix.replace(f"harken integrations {kind} ", f"harken integrations {name or kind} ")
    return error


class RetryLater(HarkenError):
    """It may work later. `after` is how long the other side asked us to wait, in seconds."""

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
    """Nothing was asked: the credential's calls are used up or spaced. Come back in `after` seconds."""

    code = "deferred"

    def __init__(self, message: str, *, after: float | None = None, fix: str = "") -> None:
        super().__init__(message, after=after, reason="rate_limited", fix=fix)


class NeedsAttention(HarkenError):
    """It will not work until a person does something; `fix` says what."""

    code = "attention"


class CursorExpired(HarkenError):
    """The source no longer knows our cursor: what happened meanwhile cannot be asked for."""

    code = "cursor_expired"


class LeaseLost(HarkenError):
    """Someone else holds the feed or the run now; whatever we were about to write is void."""

    code = "lease_lost"


class Refused(HarkenError):
    """We will not do this: it is not allowed, or not valid."""

    code = "refused"


class Misconfigured(Refused):
    """What a person wrote cannot be used as it stands."""

    code = "misconfigured"


class NotFound(Refused):
    """There is nothing of that name."""

    code = "not_found"


class Unauthorized(Refused):
    """Whoever sent this did not prove who they are: a signature or key is missing, wrong or too old."""

    code = "unauthorized"


class Malformed(Refused):
    """What was sent cannot be understood; sending the same again will not help."""

    code = "malformed"


class StoreBusy(RetryLater):
    """The store has more waiting than it may hold; nothing was written. Try again shortly."""

    code = "store_busy"


class StoreUnavailable(RetryLater):
    """The store cannot write now (disk full, locked, unreachable); nothing was acknowledged."""

    code = "store_unavailable"
