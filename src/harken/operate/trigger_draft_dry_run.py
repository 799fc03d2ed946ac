"""What a trigger that is not stored would do: decided by what fires, on stored events or on what its service shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from harken.errors import HarkenError
from harken.event import Event, Recorded, Verdict
from harken.feed import INTERNAL, Feed, Trigger, TriggerState
from harken.language.cel import bind, compile_condition
from harken.language.cel.failed_clauses import and_clauses
from harken.match import Read, Rules, Screen, Sighting, compile_rules, match, variables_of
from harken.operate.backtest_scan import history_pages, screen_page
from harken.operate.context import Context
from harken.operate.engine_protocol import DraftFeed
from harken.operate.event_from_record import event_of
from harken.operate.output_rows import Plain, event_row, plain, title_of
from harken.operate.owner_access import Ownership, visible
from harken.operate.wording import count
from harken.store import Intent, Listeners

__all__ = ["Draft", "dry_run", "per_hour"]

ALWAYS = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
LOOKBACK_SECONDS = 7 * 86_400.0
PAGE = 200
HOUR = 3600
LONGEST_REASON = 400
LARGEST_SAMPLE = 100_000
_MICROS = 1_000_000


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger that was compiled and not stored. `condition` is the person's own, without what its kind adds."""

    trigger: Trigger
    feed: Feed
    query: Any
    account: Any
    secrets: frozenset[str]
    condition: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """An event to decide about: a stored one has an id."""

    event: Event
    id: int | None = None
    recorded_at: datetime | None = None


async def dry_run(context: Context, draft: Draft, feed: str, limit: int, *, read: bool) -> Plain:
    """`dry_run` and `clauses` of the answer, on the newest stored events of the feed; with `read`, if there are none,
    on what the service shows now."""
    seen = await _stored(context, feed, draft.trigger, limit) if limit else []
    source, notes, complete = "stored" if seen else "none", [], True
    trouble: Plain | None = None
    if not seen and read and limit:
        try:
            shown = await context.running().read_draft(_feed(draft), LOOKBACK_SECONDS)
        except HarkenError as error:
            trouble = {"message": error.message, "fix": error.fix}
        else:
            seen = [Seen(event=event) for event in reversed(shown.events[-limit:])]
            source, notes, complete = "read", [*shown.unknown, *shown.notes], shown.complete
    rows = _decide(context, draft, seen)
    firing = sum(row["outcome"] in ("fired", "gathered") for row in rows)
    run = {
        "source": source,
        "feed": context.feed_label(feed) if feed in context.feeds() else draft.feed.display_name,
        "events": len(rows),
        "would_fire": firing,
        "would_not": len(rows) - firing,
        "sentence": _sentence(len(rows), firing),
        "outcomes": dict(Counter(str(row["outcome"]) for row in rows)),
        "notes": notes,
        "complete": complete,
        "trouble": trouble,
        "can_read": draft.feed.way == "poll",
        "shown": rows,
        "sample": _sample(seen),
    }
    return {"dry_run": run, "clauses": _clauses(draft, rows)}


def _feed(draft: Draft) -> DraftFeed:
    return DraftFeed(feed=draft.feed, query=draft.query, account=draft.account, secrets=draft.secrets)


async def _stored(context: Context, feed: str, trigger: Trigger, limit: int) -> list[Seen]:
    """The newest events of the feed that the trigger would hear of and the caller may see."""
    see, names = visible(context, "verdicts"), await context.names()
    found: list[Seen] = []
    before: int | None = None
    # among those of others, or of other types, it is not looked for ever
    for _ in range(10):
        page = (await context.store.events(feed=feed, before=before, limit=PAGE)).items
        for event in page:
            heard = not trigger.types or event.type in trigger.types
            if heard and see(event_row(event, names, feed)) is not None:
                found.append(_seen(event))
        if len(page) < PAGE or len(found) >= limit:
            break
        before = page[-1].id
    return found[:limit]


def _seen(recorded: Recorded) -> Seen:
    return Seen(event=event_of(recorded), id=recorded.id, recorded_at=recorded.recorded_at)


def _rules(trigger: Trigger, feed: Feed) -> Rules:
    state = TriggerState(uid=trigger.name, name=trigger.name, epoch=1, start_line=ALWAYS, created_at=ALWAYS)
    return compile_rules(Listeners(revision=0, feed=feed, triggers=[(trigger, state)]))


def _decide(context: Context, draft: Draft, seen: Sequence[Seen]) -> list[Plain]:
    """A row for each event, with what the engine would decide and which clauses are not true for it."""
    sightings = [Sighting(one.event, "", 0, 1) for one in seen]
    entries = match(sightings, _rules(draft.trigger, draft.feed), Read(now=context.clock.now()))
    clauses = and_clauses(compile_condition(draft.condition)) if draft.condition else []
    rows = []
    for one, entry in zip(seen, entries, strict=True):
        if not entry.decisions:
            continue
        bound = bind(_variables(one.event, draft.feed.name))
        says = [clause.outcome(bound)[0] for clause in clauses]
        rows.append(_row(one, entry.decisions[0], says))
    return rows


def _variables(event: Event, feed: str) -> dict[str, Any]:
    """As matching has them: no stored event is a replay."""
    return variables_of(msgspec.structs.replace(event, data={"replay": False, **event.data}), feed)


def _row(seen: Seen, decision: Verdict | Intent, says: Sequence[str]) -> Plain:
    if isinstance(decision, Intent):
        outcome, reason = "gathered" if decision.gather else "fired", decision.reason
    else:
        outcome, reason = decision.outcome, decision.reason
    event = seen.event
    return {
        "id": seen.id,
        "key": event.key or event.subject,
        "subject": event.subject,
        "type": event.type,
        "title": title_of(event.data),
        "outcome": outcome,
        "reason": reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…",
        "occurred_at": plain(event.occurred_at),
        "recorded_at": plain(seen.recorded_at),
        # true, false or error for each clause of the condition, in its order
        "clauses": list(says),
    }


def _sample(seen: Sequence[Seen]) -> Plain | None:
    """The payload of the newest event, for whoever wants to know which fields there are; None if it is large."""
    if not seen:
        return None
    data: Plain = plain(seen[0].event.data)
    return data if len(msgspec.json.encode(data)) <= LARGEST_SAMPLE else None


def _clauses(draft: Draft, rows: Sequence[Plain]) -> list[Plain]:
    """Each clause of the condition: for how many events it is true, false or an error, and held them back alone."""
    if not draft.condition:
        return []
    found = []
    for at, clause in enumerate(and_clauses(compile_condition(draft.condition))):
        said = Counter(row["clauses"][at] for row in rows)
        alone = sum(1 for row in rows if [n for n, one in enumerate(row["clauses"]) if one != "true"] == [at])
        counts = {"passed": said["true"], "failed": said["false"], "errors": said["error"], "alone": alone}
        found.append({"clause": clause.source, **counts})
    return found


def _sentence(events: int, firing: int) -> str:
    if not events:
        return "There is no event to try it on"
    rest = events - firing
    if not rest:
        return f"All of the {count(events, 'event')} would start a run" if events > 1 else "1 event would start a run"
    return f"{count(firing, 'event')} would start a run, {rest} would not"


async def per_hour(context: Context, draft: Draft, feed: str, hours: int) -> list[Plain]:
    """For each hour until now how many events there were, and how many of them the condition lets through."""
    now = context.clock.now()
    last = int(now.timestamp()) // HOUR
    first = last - hours + 1
    events, passed = Counter[int](), Counter[int]()
    rules = _rules(draft.trigger, draft.feed)
    condition = compile_condition(draft.trigger.condition) if draft.trigger.condition else None
    screen = Screen(rules.rules[0], rules, condition)
    since = datetime.fromtimestamp(first * HOUR, UTC)
    if context.principal.limited and not _listens(context, feed):
        return []
    async for page in history_pages(context.store, feed, draft.trigger.name, since, None):
        if not page.ids:
            continue
        screened = await screen_page(context.store, screen, page)
        for at, kind, said in zip(page.recorded_at, page.types, screened, strict=True):
            if screen.listens(kind):
                hour = at // _MICROS // HOUR
                events[hour] += 1
                passed[hour] += said.changed == "true"
    return [
        {"at": plain(since + timedelta(hours=hour - first)), "events": events[hour], "would_fire": passed[hour]}
        for hour in range(first, last + 1)
    ]


def _listens(context: Context, feed: str) -> bool:
    """Whether one of the triggers that the caller may see hears of the feed's events."""
    ownership = Ownership(context, context.principal)
    # how many events of Harken itself there are would tell of the runs of others
    if context.principal.owner and feed == INTERNAL:
        return False
    return any(feed in one.feeds and ownership.sees(one.name) for one in context.triggers().values())
