"""Spans of what happens to an event, from where it came in to the steps of its runs, as OpenTelemetry names them.

The current span is a context variable. What crosses the store is the W3C `traceparent` of an event, kept in its data.
Nothing is measured and nothing is stored while tracing is off: every place asks `tracer.on` first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from harken.clock import Clock

__all__ = ["NO_TRACER", "TRACEPARENT", "Kind", "Span", "SpanContext", "Tracer", "context_of", "current_context"]

TRACEPARENT = "traceparent"
"""The field of an event's data that has its context, and the header that brings one (W3C Trace Context)."""
METADATA = "_message"
"""Where messages of a broker have their headers, if they are asked for."""

Kind = Literal["internal", "server", "client", "producer", "consumer"]
Attribute = str | int | float | bool

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII | re.DOTALL)
_current: ContextVar[Span | None] = ContextVar("harken_span", default=None)


@dataclass(frozen=True, slots=True)
class SpanContext:
    """Which span of which trace; `sampled` says whether the trace is kept."""

    trace_id: str
    span_id: str
    sampled: bool = True

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    @classmethod
    def parse(cls, text: object) -> SpanContext | None:
        """The context in a `traceparent`; None if it is none."""
        found = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
            return None
        if not found[2].strip("0") or not found[3].strip("0"):
            return None
        return cls(found[2], found[3], bool(int(found[4], 16) & 1))


@dataclass(kw_only=True, slots=True)
class Span:
    """Something that took time. Set attributes while it lasts; `dropped` ones are not told."""

    name: str
    kind: Kind
    context: SpanContext
    parent: SpanContext | None
    links: Sequence[SpanContext]
    started: float
    ended: float = 0.0
    error: str = ""
    dropped: bool = False
    attributes: dict[str, Attribute] = field(default_factory=dict)

    def note(self, **attributes: Attribute) -> None:
        """Set attributes; `run_id` is told as `harken.run_id`, and names with `__` as they are with dots."""
        for name, value in attributes.items():
            self.attributes[name.replace("__", ".") if "__" in name else f"harken.{name}"] = value


def current_context() -> SpanContext | None:
    """The context of the span that we are in, None outside of all."""
    span = _current.get()
    return None if span is None else span.context


def context_of(data: Mapping[str, Any]) -> SpanContext | None:
    """The context that an event or message brings: its `traceparent`, or that of its headers."""
    own = SpanContext.parse(data.get(TRACEPARENT))
    if own is not None:
        return own
    metadata = data.get(METADATA)
    headers = metadata.get("headers") if isinstance(metadata, Mapping) else None
    return SpanContext.parse(headers.get(TRACEPARENT)) if isinstance(headers, Mapping) else None


class Tracer:
    """Makes spans and gives those that ended to `sink`. `sample` is the part of new traces that is kept."""

    def __init__(
        self, clock: Clock, random: Random, sink: Callable[[Span], None], *, sample: float = 1.0, on: bool = True
    ) -> None:
        self.on = on
        self._clock = clock
        self._random = random
        self._sink = sink
        self._sample = sample

    @contextmanager
    def span(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        parent: SpanContext | None = None,
        links: Sequence[SpanContext] = (),
        root: bool = False,
        **attributes: Attribute,
    ) -> Iterator[Span]:
        """A span around what is done within. Its parent is `parent`, else the current span unless it is a `root`."""
        made = self.begin(name, kind=kind, parent=parent, links=links, root=root, **attributes)
        token = _current.set(made)
        try:
            yield made
        except BaseException as error:
            # the name alone: a message may quote what strangers wrote
            made.error = made.error or type(error).__name__
            raise
        finally:
            _current.reset(token)
            self.end(made)

    def begin(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        parent: SpanContext | None = None,
        links: Sequence[SpanContext] = (),
        root: bool = False,
        **attributes: Attribute,
    ) -> Span:
        """A span that is not the current one; `end` it."""
        above = parent if parent is not None or root else current_context()
        if above is not None:
            context = SpanContext(above.trace_id, self._id(64), above.sampled)
        else:
            context = SpanContext(self._id(128), self._id(64), self._random.random() < self._sample)
        made = Span(name=name, kind=kind, context=context, parent=above, links=tuple(links), started=self._clock.time())
        made.note(**attributes)
        return made

    def end(self, span: Span) -> None:
        span.ended = self._clock.time()
        if span.context.sampled and not span.dropped:
            self._sink(span)

    def _id(self, bits: int) -> str:
        # zero is no id
        return f"{self._random.getrandbits(bits) or 1:0{bits // 4}x}"


class _NoClock:
    def time(self) -> float:
        return 0.0


NO_TRACER = Tracer(_NoClock(), Random(0), lambda span: None, sample=0.0, on=False)  # type: ignore[arg-type]
"""Where tracing is off."""
