"""How much happened over time: events, runs that were done and runs that failed, in buckets of three lengths.

Every replica counts what it does and adds it to one document, so that an answer costs the same at a million rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from harken.clock import from_unix
from harken.operate.context import Context
from harken.operate.events import moment_of
from harken.operate.output_rows import Plain, plain
from harken.store.document_kinds import ACTIVITY, COUNTED

__all__ = ["COUNTS", "Buckets", "activity", "add_counts", "merge", "series"]

COUNTS = ("events", "done", "failed")
SPANS: Mapping[int, int] = {10: 180, 300: 288, 10_800: 240}
"""The seconds of a bucket, and how many of them are kept: half an hour, a day, a month."""

Buckets = dict[str, dict[str, list[int]]]
"""Counts by the bucket's beginning, by its seconds; both are text, as keys in JSON are."""


def add_counts(buckets: Buckets, at: float, counts: Sequence[int]) -> None:
    """Add what was counted at this time (seconds since 1970) to the bucket of each length."""
    for seconds in SPANS:
        found = buckets.setdefault(str(seconds), {}).setdefault(str(int(at // seconds * seconds)), [0] * len(COUNTS))
        for index, number in enumerate(counts):
            found[index] += number


def merge(stored: Mapping[str, Mapping[str, Sequence[int]]], added: Buckets, now: float) -> Buckets:
    """Both together, without the buckets that are too old to be kept."""
    merged: Buckets = {}
    for seconds, most in SPANS.items():
        oldest = now - seconds * (most + 1)
        found = merged.setdefault(str(seconds), {})
        for source in (stored, added):
            for begin, counts in source.get(str(seconds), {}).items():
                if int(begin) > oldest:
                    before = found.get(begin, [0] * len(COUNTS))
                    found[begin] = [one + other for one, other in zip(before, counts, strict=True)]
    return merged


def series(buckets: Buckets, begin: float, now: float) -> Plain:
    """Columns from `begin` until now, in the shortest buckets that reach so far back; 0 where nothing was counted."""
    seconds = next((length for length, most in SPANS.items() if now - begin <= length * most), max(SPANS))
    first = max(int(begin // seconds), int(now // seconds) - SPANS[seconds]) * seconds
    starts = range(first, int(now) + 1, seconds)
    found = buckets.get(str(seconds), {})
    columns = {
        name: [found[str(start)][index] if str(start) in found else 0 for start in starts]
        for index, name in enumerate(COUNTS)
    }
    return {
        "bucket_seconds": seconds,
        "at": [str(plain(from_unix(start))) for start in starts],
        **columns,
        "total": {name: sum(numbers) for name, numbers in columns.items()},
    }


async def activity(context: Context, *, since: str = "30m") -> Plain:
    """Events, runs done and runs failed in each bucket since a time, or within a duration, as far as it is kept."""
    now = context.clock.now()
    begin: datetime = moment_of(since, now) or now
    document = await context.store.get(ACTIVITY, COUNTED)
    stored = msgspec.convert(document.value, Buckets) if document is not None else {}
    unsaved = context.engine.unsaved_activity() if context.engine else {}
    return series(merge(stored, unsaved, now.timestamp()), begin.timestamp(), now.timestamp())
