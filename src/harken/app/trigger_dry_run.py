"""A dry run of a trigger: reads the service and matches, but writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from harken.clock import Clock
from harken.errors import NeedsAttention, RetryLater
from harken.event import Event, Known, Verdict
from harken.feed import Feed, Trigger, TriggerState
from harken.kit.timeout_without_own_work import answer_within
from harken.match import Read, Rules, compile_rules, match, memory_id, recognise
from harken.operate.engine_protocol import Preview, Shown
from harken.operate.output_rows import title_of
from harken.source import Checked, ClockedSource, PollSource, Source
from harken.store import Feeds, Intent, Listeners

__all__ = ["UNDATED", "preview", "read_pages"]

MAX_PAGES = 50
MAX_ITEMS = 5_000
"""The newest so many items are shown; each of them is matched at once."""
UNDATED = "Items without a time count as new once they appear after the first read, which is a quiet baseline"


async def preview(
    store: Feeds | None,
    feed: Feed,
    trigger: Trigger,
    source: Source,
    clock: Clock,
    lookback: float,
    names: Checked | None = None,
    start_line: datetime | None = None,
) -> Preview:
    """What the trigger would do with the service's items of the last `lookback` seconds.

    `names` is the service's answer about the names in the query. A trigger without a start line starts with that span.
    """
    since = clock.now() - timedelta(seconds=lookback)
    if not isinstance(source, PollSource):
        name = feed.display_name
        note = f"{name} is pushed: there is nothing to read. Send something, then: harken explain {trigger.name}"
        return Preview(trigger=trigger.name, feed=name, since=None, notes=(note,))
    try:
        events, complete = await read_pages(source, feed, since)
    except NeedsAttention as error:
        # the error of a read names one wrong name at most; the check has found all of them
        reasons = [*names.unknown] if names else []
        reasons += [] if any(error.message in reason for reason in reasons) else [error.message]
        raise NeedsAttention("; ".join(reasons), fix=error.fix) from error
    rules = _rules(feed, trigger, start_line or since)
    known = await _recall(store, feed, events)
    notes = () if all(event.occurred_at for event in events) else (UNDATED,)
    lag = source.service_clock.lag if isinstance(source, ClockedSource) else 0
    shown = _judge(events, known, rules, Read(now=clock.now(), lag=lag))
    return Preview(
        trigger=trigger.name,
        feed=feed.display_name,
        since=since,
        shown=tuple(shown),
        complete=complete,
        notes=notes,
        found=dict(names.found) if names else {},
        unknown=tuple(names.unknown) if names else (),
    )


async def read_pages(
    source: PollSource, feed: Feed, since: datetime, pages: int = MAX_PAGES
) -> tuple[list[Event], bool]:
    """The newest items since then, and whether these are all of them."""
    cursor = None
    events: list[Event] = []
    dropped = False
    for _ in range(pages):
        try:
            with answer_within(feed.page_timeout):
                batch = await source.poll(cursor, since)
        except TimeoutError as error:
            raise RetryLater(
                f"{feed.display_name} gave no page within {feed.page_timeout:.0f} s", reason="timeout"
            ) from error
        dropped = dropped or len(events) + len(batch.events) > MAX_ITEMS
        events = [*events, *batch.events[-MAX_ITEMS:]][-MAX_ITEMS:]
        cursor = batch.cursor
        if not batch.more:
            return events, not dropped
    return events, False


def _rules(feed: Feed, trigger: Trigger, start: datetime) -> Rules:
    state = TriggerState(uid=trigger.name, name=trigger.name, epoch=1, start_line=start, created_at=start)
    return compile_rules(Listeners(revision=0, feed=feed, triggers=[(trigger, state)]))


async def _recall(store: Feeds | None, feed: Feed, events: Sequence[Event]) -> Mapping[str, Known]:
    if store is None:
        return {}
    return await store.recall(feed.name, [memory_id(event, feed.identity) for event in events])


def _judge(events: Sequence[Event], known: Mapping[str, Known], rules: Rules, read: Read) -> list[Shown]:
    fresh = recognise(events, known, rules.feed.identity)
    entries = {id(entry): entry for entry in match(fresh, rules, read)}
    shown = [_to_shown(entry.event, entry.decisions[0]) for entry in entries.values() if entry.decisions]
    new = {sighting.memory_id for sighting in fresh}
    repeats = [event for event in events if memory_id(event, rules.feed.identity) not in new]
    seen = Verdict(trigger="", outcome="duplicate", reason="seen in an earlier read")
    return [_to_shown(event, seen) for event in repeats] + shown


def _to_shown(event: Event, decision: Verdict | Intent) -> Shown:
    if isinstance(decision, Intent):
        outcome, reason = "gathered" if decision.gather else "fired", decision.reason
    else:
        outcome, reason = decision.outcome, decision.reason
    return msgspec.convert(
        {
            "key": event.key or event.subject,
            "subject": event.subject,
            "type": event.type,
            "outcome": outcome,
            "reason": reason,
            "occurred_at": event.occurred_at,
            "title": title_of(event.data),
        },
        Shown,
    )
