"""The ledger of reads: rows for what happened, one span for all that found nothing, and what is proven covered."""

from __future__ import annotations

from harken.backends.codec import micros
from harken.backends.coverage import KEPT_SPANS, merged, spans_of
from harken.backends.postgres.transaction import Books
from harken.event import Span

__all__ = ["close_span", "extend_coverage"]


async def close_span(books: Books, feed: int) -> None:
    await books.do(
        """WITH span AS (SELECT span_start, span_end, span_count, span_result, span_seen FROM feeds
            WHERE id=$1 AND span_result IS NOT NULL),
        closed AS (UPDATE feeds SET span_result=NULL WHERE id=$1 AND span_result IS NOT NULL)
        INSERT INTO ticks (feed, started_at, ended_at, count, result, seen, new, seconds)
        SELECT $1, span_start, span_end, span_count, span_result, span_seen, 0, 0 FROM span""",
        feed,
    )


async def extend_coverage(books: Books, feed: int, covered: Span) -> None:
    """Add a proven span; adjoining ones grow together."""
    start, end = micros(covered.start), micros(covered.end)
    grown = """UPDATE feeds SET cover_end=greatest(cover_end, $1) WHERE id=$2 AND cover_start<=$3 AND cover_end>=$3"""
    if await books.do(grown, end, feed, start):
        return
    row = await books.row("SELECT cover_start, cover_end, coverage FROM feeds WHERE id=$1", feed)
    *older, newest = merged([covered, *spans_of(books.seal, row[2], row[0], row[1])])
    await books.do(
        "UPDATE feeds SET cover_start=$1, cover_end=$2, coverage=$3 WHERE id=$4",
        micros(newest.start),
        micros(newest.end),
        books.shut_json(older[-KEPT_SPANS:]) if older else None,
        feed,
    )
