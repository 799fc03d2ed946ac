"""How much one caller may ask: a bucket that fills evenly, told in RateLimit headers."""

from __future__ import annotations

import math
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harken.api import errors
from harken.errors import TooManyRequests

__all__ = ["RequestRate"]

WINDOW = 60.0
MOST_CALLERS = 10_000
"""So many callers are remembered; whoever has not asked for longest is forgotten, and has a full bucket again."""


class RequestRate:
    """Answers 429 when a caller has asked more than `limit` requests in a minute. Health and metrics are free.

    `now` is a monotonic clock; `caller_of` names who asks. A limit of 0 is none.
    """

    def __init__(
        self, app: ASGIApp, limit: int, now: Callable[[], float], caller_of: Callable[[Scope], str] | None = None
    ) -> None:
        self._app = app
        self._limit = limit
        self._now = now
        self._caller_of = caller_of or _address
        self._buckets: dict[str, tuple[float, float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._limit or scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
            return
        left = self._spend(self._caller_of(scope))
        headers = self._headers(left)
        if left < 0:
            wait = math.ceil(-left * WINDOW / self._limit)
            message = f"more than {self._limit} requests in a minute"
            error = TooManyRequests(message, fix=f"Ask again in {wait} s", after=wait)
            refused = errors.problem_of(error)
            refused.headers.update({name.decode(): value.decode() for name, value in headers})
            await refused(scope, receive, send)
            return

        async def send_with_rate(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *headers]}
            await send(message)

        await self._app(scope, receive, send_with_rate)

    def _spend(self, caller: str) -> float:
        """Take one request out of the caller's bucket. Return what is left; below 0, what is missing for this one."""
        now = self._now()
        left, at = self._buckets.pop(caller, (float(self._limit), now))
        left = min(float(self._limit), left + (now - at) * self._limit / WINDOW) - 1
        # what is refused costs nothing, so that whoever waits is served
        self._buckets[caller] = (left + 1 if left < 0 else left, now)
        if len(self._buckets) > MOST_CALLERS:
            del self._buckets[next(iter(self._buckets))]
        return left

    def _headers(self, left: float) -> list[tuple[bytes, bytes]]:
        full_in = math.ceil((self._limit - max(0.0, left)) * WINDOW / self._limit)
        said = {"limit": self._limit, "remaining": max(0, math.floor(left)), "reset": full_in}
        return [(f"ratelimit-{name}".encode(), str(value).encode()) for name, value in said.items()]


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""
