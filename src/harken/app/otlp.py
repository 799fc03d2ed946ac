"""Sends spans to an OpenTelemetry collector: OTLP over HTTP as JSON, in batches, and never in the way of the work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec
import structlog

from harken import __version__
from harken.clock import Clock
from harken.tracing import Kind, Span, SpanContext

__all__ = ["SpanExporter", "request_of"]

log = structlog.get_logger("harken.app")

MOST_WAITING = 10_000
"""So many spans wait at most; what comes beyond is dropped and counted."""
BATCH = 512
EVERY_SECONDS = 2.0
LONGEST_PAUSE = 60.0
TIMEOUT_SECONDS = 10.0

KINDS: Mapping[Kind, int] = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
PASSING = frozenset({429, 502, 503, 504})
"""The answers after which OTLP wants us to try again."""


class SpanExporter:
    """Takes spans as they end (`add`) and sends them until it is stopped (`run`, then `close`)."""

    def __init__(
        self, endpoint: str, clock: Clock, *, headers: Mapping[str, str] | None = None, service: str = "harken"
    ) -> None:
        self._url = endpoint if endpoint.rstrip("/").endswith("/v1/traces") else f"{endpoint.rstrip('/')}/v1/traces"
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._service = service
        self._clock = clock
        self._waiting: deque[Span] = deque()
        self._failing = False
        self.on_exported: Callable[[int], None] = lambda count: None
        self.on_dropped: Callable[[int], None] = lambda count: None

    def add(self, span: Span) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self.on_dropped(1)
            return
        self._waiting.append(span)

    async def run(self) -> None:
        """Send what has ended every few seconds; after a failure wait longer each time."""
        pause = EVERY_SECONDS
        async with aiohttp.ClientSession() as session:
            while True:
                await self._clock.sleep(pause)
                sent = await self._send_waiting(session)
                pause = EVERY_SECONDS if sent else min(LONGEST_PAUSE, pause * 2)

    async def close(self) -> None:
        """Send what is left, once."""
        if self._waiting:
            async with aiohttp.ClientSession() as session:
                await self._send_waiting(session)
        if self._waiting:
            self.on_dropped(len(self._waiting))

    async def _send_waiting(self, session: aiohttp.ClientSession) -> bool:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            try:
                status = await self._post(session, msgspec.json.encode(request_of(batch, self._service)))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                status, reason = 503, type(error).__name__
            else:
                reason = f"it answered {status}"
            if status in PASSING:
                self._note(failing=True, reason=reason)
                self._waiting.extendleft(reversed(batch))
                return False
            if status >= 300:
                self._note(failing=True, reason=reason)
                self.on_dropped(len(batch))
                continue
            self._note(failing=False)
            self.on_exported(len(batch))
        return True

    async def _post(self, session: aiohttp.ClientSession, body: bytes) -> int:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with session.post(
            self._url, data=body, headers=self._headers, timeout=timeout, allow_redirects=False
        ) as answer:
            with suppress(aiohttp.ClientError):
                await answer.read()
            return answer.status

    def _note(self, *, failing: bool, reason: str = "") -> None:
        """One line when it begins to fail, and one when it works again."""
        if failing and not self._failing:
            log.warning("tracing.failing", reason=reason, fix="Check tracing.endpoint and its headers in harken.yaml")
        elif self._failing and not failing:
            log.info("tracing.recovered")
        self._failing = failing


def request_of(spans: Sequence[Span], service: str) -> dict[str, Any]:
    """The body of an OTLP request (ExportTraceServiceRequest as JSON)."""
    resource = {"service.name": service, "service.version": __version__}
    scope = {"name": "harken", "version": __version__}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": scope, "spans": [_span(span) for span in spans]}],
            }
        ]
    }


def _span(span: Span) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": span.context.trace_id,
        "spanId": span.context.span_id,
        "flags": 1,
        "name": span.name,
        "kind": KINDS[span.kind],
        # 64-bit numbers are texts in the JSON of protobuf
        "startTimeUnixNano": str(round(span.started * 1e9)),
        "endTimeUnixNano": str(round(span.ended * 1e9)),
        "attributes": _attributes(span.attributes),
        "status": {"code": 2, "message": span.error} if span.error else {},
    }
    if span.parent is not None:
        found["parentSpanId"] = span.parent.span_id
    if span.links:
        found["links"] = [_link(link) for link in span.links]
    return found


def _link(context: SpanContext) -> dict[str, Any]:
    return {"traceId": context.trace_id, "spanId": context.span_id, "flags": int(context.sampled)}


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}
