"""The trace of what comes in: each new event keeps the context of its commit, so that its runs go on from there."""

from __future__ import annotations

import msgspec

from harken.store import Commit, Entry
from harken.tracing import TRACEPARENT, Span, Tracer, context_of

__all__ = ["with_context"]


def with_context(commit: Commit, tracer: Tracer, span: Span) -> Commit:
    """The commit with a `traceparent` in the data of its new events: that of the commit's span.

    An event that brings a context of its own, as a message does, goes on in that trace, from a span that links here.
    """
    entries = [one if one.again else _traced(one, tracer, span) for one in commit.entries]
    return msgspec.structs.replace(commit, entries=entries)


def _traced(entry: Entry, tracer: Tracer, span: Span) -> Entry:
    event, context = entry.event, span.context
    brought = context_of(event.data)
    if brought is not None and brought.trace_id != context.trace_id:
        received = tracer.begin(f"event {event.type}", kind="consumer", parent=brought, links=[context])
        tracer.end(received)
        context = received.context
    data = {**event.data, TRACEPARENT: str(context)}
    return msgspec.structs.replace(entry, event=msgspec.structs.replace(event, data=data, raw=b""))
