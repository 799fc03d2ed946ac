"""Coverage: the spans of time that a feed has read completely. The newest is in columns, older ones are in a list."""

from __future__ import annotations

from collections.abc import Iterable

from harken.backends.codec import decode_spans, moment
from harken.backends.encryption import Seal
from harken.event import Span

__all__ = ["KEPT_SPANS", "merge_spans", "spans_of"]

KEPT_SPANS = 200
"""How many older spans are kept."""


def spans_of(seal: Seal, older: bytes | None, start: int | None, end: int | None) -> list[Span]:
    """The spans of a feed's row, oldest first."""
    spans = [] if older is None else decode_spans(seal.open(older))
    if start is not None and end is not None:
        spans.append(Span(moment(start), moment(end)))
    return spans


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Merge overlapping and adjoining spans, oldest first."""
    result: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if result and span.start <= result[-1].end:
            result[-1] = Span(result[-1].start, max(result[-1].end, span.end))
        else:
            result.append(span)
    return result
