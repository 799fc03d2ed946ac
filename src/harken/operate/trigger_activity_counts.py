"""How much each trigger saw and matched, hour by hour over the last day: what its line in a list draws.

Every replica counts what it commits and adds it to documents that each hold some of the triggers. So an answer reads
only the documents of the triggers that are shown, and costs the same at a million events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

import msgspec

from harken.clock import from_unix
from harken.errors import Malformed
from harken.event import BANK_LISTS, Verdict
from harken.operate.context import Context
from harken.operate.output_rows import Plain, lag_row, plain
from harken.operate.owner_access import visible_rows
from harken.operate.paging import page_by
from harken.store import Document
from harken.store.document_kinds import TRIGGER_ACTIVITY

__all__ = [
    "Counts",
    "TriggerCounts",
    "add_verdicts",
    "document_of",
    "merge_counts",
    "read_counts",
    "trigger_activity",
]

HOUR = 3600
HOURS = 24
DOCUMENTS = 64
"""Over so many documents triggers are spread: at 1,000 triggers one holds 16 of them."""
MOST_NAMES = 200
SILENT_SECONDS = 30 * 86_400.0
"""After so long without an event it is forgotten when the last one came: the trigger may be gone."""
MATCHED = frozenset(outcome for outcome, listed in BANK_LISTS.items() if listed == "fired")


class TriggerCounts(msgspec.Struct, kw_only=True):
    """Events and matches by the hour's beginning (seconds since 1970, as text), and when the last of each came."""

    hours: dict[str, list[int]] = {}
    last_event: float = 0.0
    last_match: float = 0.0


Counts = dict[str, TriggerCounts]
"""By the name of the trigger."""


def add_verdicts(counts: Counts, verdicts: Iterable[Verdict], names: Mapping[str, str], now: float) -> None:
    """Add what was decided about one event; `names` are those of the triggers by uid, where verdicts have that."""
    hour = str(int(now // HOUR * HOUR))
    for verdict in verdicts:
        if verdict.outcome == "duplicate":
            continue
        name = names.get(verdict.trigger, verdict.trigger)
        found = counts.get(name)
        if found is None:
            found = counts[name] = TriggerCounts()
        numbers = found.hours.setdefault(hour, [0, 0])
        numbers[0] += 1
        found.last_event = now
        if verdict.outcome in MATCHED:
            numbers[1] += 1
            found.last_match = now


def document_of(trigger: str) -> str:
    """The name of the document that holds the counts of this trigger."""
    return str(crc32(trigger.encode()) % DOCUMENTS)


def read_counts(document: Document | None) -> Counts:
    return msgspec.convert(document.value, Counts) if document is not None else {}


def merge_counts(stored: Counts, added: Counts, now: float) -> Counts:
    """Both together, without hours that are too old to be shown, and without triggers that were silent for long."""
    merged: Counts = {}
    for name in {**stored, **added}:
        parts = [part[name] for part in (stored, added) if name in part]
        hours: dict[str, list[int]] = {}
        for part in parts:
            for hour, numbers in part.hours.items():
                if int(hour) >= _first_hour(now):
                    before = hours.get(hour, (0, 0))
                    hours[hour] = [one + other for one, other in zip(before, numbers, strict=True)]
        last_event = max(part.last_event for part in parts)
        if last_event > now - SILENT_SECONDS:
            last_match = max(part.last_match for part in parts)
            merged[name] = TriggerCounts(hours=hours, last_event=last_event, last_match=last_match)
    return merged


async def trigger_activity(context: Context, *, names: Sequence[str] = (), cursor: str = "", limit: int = 0) -> Plain:
    """Events and matches of triggers in each hour of the last day, when the last of each came, and their lag.

    `names`: only of these; those that are not there are left out."""
    if len(names) > MOST_NAMES:
        raise Malformed(f"names can name {MOST_NAMES} triggers at most", fix="Ask for some of them, then for others")
    triggers = context.triggers()
    found: list[Plain] = [{"name": name} for name in (dict.fromkeys(names) if names else triggers) if name in triggers]
    page = page_by(visible_rows(context, "name", found), cursor, limit)
    now = context.clock.time()
    counts = await _counts(context, [row["name"] for row in page["items"]], now)
    lags = context.engine.stream_lags() if context.engine else {}
    rows = [
        _row(row["name"], counts.get(row["name"], TriggerCounts()), now) | lag_row(lags.get(triggers[row["name"]].feed))
        for row in page["items"]
    ]
    return page | {"items": rows}


async def _counts(context: Context, names: Sequence[str], now: float) -> Counts:
    """What all replicas have stored for these triggers, and what this one has not stored yet."""
    stored: Counts = {}
    for document in sorted({document_of(name) for name in names}):
        stored |= read_counts(await context.store.get(TRIGGER_ACTIVITY, document))
    unsaved = context.engine.unsaved_trigger_activity() if context.engine else {}
    return merge_counts(
        {name: stored[name] for name in names if name in stored},
        {name: unsaved[name] for name in names if name in unsaved},
        now,
    )


def _row(name: str, found: TriggerCounts, now: float) -> Plain:
    first = _first_hour(now)
    hours = [found.hours.get(str(first + at * HOUR), (0, 0)) for at in range(HOURS)]
    return {
        "name": name,
        "events": [numbers[0] for numbers in hours],
        "matched": [numbers[1] for numbers in hours],
        "last_event_at": plain(from_unix(found.last_event)) if found.last_event else None,
        "last_match_at": plain(from_unix(found.last_match)) if found.last_match else None,
    }


def _first_hour(now: float) -> int:
    return (int(now // HOUR) - HOURS + 1) * HOUR
