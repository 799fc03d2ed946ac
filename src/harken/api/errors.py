"""Errors as problem+json (RFC 9457): what happened, to which request, and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from harken.errors import (
    CursorExpired,
    Forbidden,
    HarkenError,
    KeyReused,
    LeaseLost,
    Malformed,
    Misconfigured,
    NeedsAttention,
    NotFound,
    Outdated,
    Refused,
    RetryLater,
    StillRunning,
    TooManyRequests,
    Unauthorized,
    Unconditional,
)

__all__ = [
    "current_path",
    "current_request",
    "error",
    "error_of",
    "is_admin",
    "problem",
    "problem_of",
    "retry_after",
    "status_of",
]


# the first match decides, so subclasses stand before their base classes
_STATUSES: tuple[tuple[type[HarkenError], int], ...] = (
    (NotFound, 404),
    (Unconditional, 428),
    (Outdated, 412),
    (KeyReused, 422),
    (StillRunning, 409),
    (TooManyRequests, 429),
    (Malformed, 400),
    (Unauthorized, 401),
    (Forbidden, 403),
    (Misconfigured, 422),
    (Refused, 409),
    (LeaseLost, 409),
    (CursorExpired, 409),
    (NeedsAttention, 502),
    (RetryLater, 503),
)


current_request: ContextVar[str] = ContextVar("current_request", default="")
"""The id of the request that is being answered; `RequestIds` sets it."""
current_path: ContextVar[str] = ContextVar("current_path", default="")


def status_of(error: HarkenError) -> int:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def problem_of(error: HarkenError) -> Response:
    wait = error.after if isinstance(error, RetryLater) else None
    return problem(
        status_of(error),
        error.message,
        error.fix,
        code=error.code,
        headers=retry_after(error),
        wait=wait,
        findings=getattr(error, "findings", ()),
    )


def retry_after(error: HarkenError) -> dict[str, str] | None:
    """The Retry-After header for an error that may pass."""
    if not isinstance(error, RetryLater):
        return None
    return {"retry-after": str(max(1, math.ceil(error.after or 1)))}


def problem(
    status: int,
    detail: str,
    fix: str = "",
    *,
    code: str = "refused",
    headers: Mapping[str, str] | None = None,
    wait: float | None = None,
    findings: Sequence[Mapping[str, object]] = (),
) -> Response:
    """The body under /api. `wait`: how many seconds to wait, if the cause of the error knows it.

    `findings` are all the things that are wrong with what was sent."""
    body: dict[str, object] = {
        "type": f"urn:harken:error:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": current_path.get(),
        "request_id": current_request.get(),
        "fix": fix,
        "code": code,
    }
    if wait is not None:
        body["wait_seconds"] = wait
    if findings:
        body["errors"] = findings
    return Response(msgspec.json.encode(body), status, headers, media_type="application/problem+json")


def is_admin(path: str) -> bool:
    return path == "/admin" or path.startswith("/admin/")


def error_of(found: HarkenError) -> Response:
    """The status under /admin: 401 and 403 as everywhere, 404 not found, 503 may work later, 400 anything else."""
    own = isinstance(found, (NotFound, RetryLater, Unauthorized, Forbidden))
    status = status_of(found) if own else 400
    return error(status, found.message, found.fix, code=found.code, headers=retry_after(found))


def error(
    status: int, message: str, fix: str = "", *, code: str = "refused", headers: Mapping[str, str] | None = None
) -> Response:
    """The body under /admin: `error` says everything; `fix` and `code` are extras for the command line."""
    body = {"error": message, "fix": fix, "code": code}
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
