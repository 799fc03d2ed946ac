"""Remove a person's data from the store: `harken events forget --subject X`.

X is looked for as a whole word in every text of events, runs and notes, whatever its case: an address, a name, an id.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from harken.errors import Malformed
from harken.event import Recorded
from harken.operate.context import Context
from harken.operate.output_rows import Plain
from harken.runs import FINAL, Run
from harken.store import Erased
from harken.store.document_kinds import ALERT, REQUEST, RUN_ALERT, STALE_REPORT, STARRED, TICKET, TRIGGER_ROW

__all__ = ["forget", "is_about"]

SHORTEST = 3
SLICE = 200
NOTES = (TICKET, ALERT, RUN_ALERT, STALE_REPORT, STARRED)
"""Documents that quote what events said."""
_ESCAPED = re.compile(r"\\[nrt]")

REMAINS = (
    "backups and copies of the store that were made before",
    "what runs have sent to other systems, and what those keep",
    "logs that were written before",
    "hashes in the feeds' memory, which keep the same items from being new again",
)
"""What this cannot remove, whatever was found."""


def is_about(subject: str) -> Callable[[Any], bool]:
    """Whether a value has the subject in one of its texts, as a whole word and in any case."""
    ends = (r"(?<![\w.+-])", r"(?![\w-])(?!\.\w)")
    found = re.compile(f"{ends[0]}{re.escape(subject)}{ends[1]}", re.IGNORECASE)
    return lambda value: any(found.search(text) for text in _texts(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)


async def forget(context: Context, *, subject: str, yes: bool = False) -> Plain:
    """Remove every event, run, dead letter and note that has the subject. Without `yes`, only say what would be."""
    subject = subject.strip()
    if len(subject) < SHORTEST:
        fix = "Name an address, a full name or an id"
        raise Malformed(f"a subject has at least {SHORTEST} characters; this one would be found everywhere", fix=fix)
    carries = is_about(subject)
    events = [event.id async for event in _events(context) if _is_theirs(event, carries)]
    runs = [run async for run in _runs(context, frozenset(events), carries)]
    notes = [(kind, name) for kind in (*NOTES, REQUEST) for name in await _notes(context, kind, carries)]
    answer: Plain = {
        "subject": mark_of(subject),
        "forgotten": yes,
        "events": len(events),
        "runs": len(runs),
        "letters": 0,
        "notes": len(notes),
        "left": [],
        "remains": list(REMAINS),
    }
    if not yes:
        return answer
    for run in runs:
        if run.status not in FINAL:
            await context.store.cancel(run.id, "its data was forgotten")
    erased = await _erase(context, events, [run.id for run in runs], carries)
    for event in events:
        await context.store.delete(STARRED, str(event))
    for kind, name in notes:
        if kind == REQUEST:
            # an answer that is kept for whoever asks twice
            await context.store.delete(kind, name)
        else:
            await _redact(context, kind, name, subject)
    context.nudge()
    left = await _left(context, erased, len(events), len(runs), carries)
    return answer | {"events": erased.events, "runs": erased.runs, "letters": erased.letters, "left": left}


def mark_of(subject: str) -> str:
    """What stands for the subject where it was: enough to see that two are the same, and not who."""
    return f"forgotten-{hashlib.sha256(subject.casefold().encode()).hexdigest()[:12]}"


async def _events(context: Context) -> Any:
    page = await context.store.events(limit=SLICE)
    while True:
        for event in page.items:
            yield event
        if page.next is None:
            return
        page = await context.store.events(before=page.next, limit=SLICE)


def _is_theirs(event: Recorded, carries: Callable[[Any], bool]) -> bool:
    reasons = [verdict.reason for verdict in event.verdicts]
    return carries([event.subject, event.key, event.state or "", event.data, reasons])


async def _runs(context: Context, events: frozenset[int], carries: Callable[[Any], bool]) -> Any:
    page = await context.store.runs(limit=SLICE, journals=True)
    while True:
        for run in page.items:
            if events & set(run.event_ids) or _run_carries(run, carries):
                yield run
        if page.next is None:
            return
        page = await context.store.runs(before=page.next, limit=SLICE, journals=True)


def _run_carries(run: Run, carries: Callable[[Any], bool]) -> bool:
    steps = [[record.input, record.output, record.error, list(record.warnings)] for record in run.journal]
    return carries([run.input, run.output, run.error, list(run.event_keys), steps])


async def _notes(context: Context, kind: str, carries: Callable[[Any], bool]) -> list[str]:
    found = await context.store.documents(kind)
    return [one.name for one in found if carries([one.name, _unquoted(one.value) if kind == REQUEST else one.value])]


def _unquoted(request: Any) -> str:
    """The answer of a request, which is kept as the text of its JSON."""
    return _ESCAPED.sub(" ", str(request.get("body", "")))


async def _erase(
    context: Context, events: Sequence[int], runs: Sequence[str], carries: Callable[[Any], bool]
) -> Erased:
    """In slices: nothing else is written while one is. Runs go first, as an open one keeps its events."""

    def is_theirs(key: str, payload: str) -> bool:
        # the payload of a refused event is quoted, as it may be no JSON
        return carries([key, _ESCAPED.sub(" ", payload)])

    parts: list[tuple[Sequence[int], Sequence[str]]] = [
        ((), runs[begin : begin + SLICE]) for begin in range(0, len(runs), SLICE)
    ]
    parts += [(events[begin : begin + SLICE], ()) for begin in range(0, len(events), SLICE)]
    done = [
        await context.store.erase(some_events, some_runs, is_theirs) for some_events, some_runs in parts or [((), ())]
    ]
    return Erased(
        events=sum(one.events for one in done),
        runs=sum(one.runs for one in done),
        letters=sum(one.letters for one in done),
    )


async def _redact(context: Context, kind: str, name: str, subject: str) -> None:
    """Replace the subject in a note. A note that somebody else writes meanwhile is read again."""
    while True:
        note = await context.store.get(kind, name)
        if note is None:
            return
        found = re.compile(re.escape(subject), re.IGNORECASE)
        cleaned = _replaced(note.value, found, mark_of(subject))
        if await context.store.put(kind, name, cleaned, expect=note.revision) is not None:
            return


def _replaced(value: Any, found: re.Pattern[str], by: str) -> Any:
    if isinstance(value, str):
        return found.sub(by, value)
    if isinstance(value, Mapping):
        return {found.sub(by, str(key)): _replaced(inner, found, by) for key, inner in value.items()}
    return [_replaced(inner, found, by) for inner in value] if isinstance(value, (list, tuple)) else value


async def _left(context: Context, erased: Erased, events: int, runs: int, carries: Callable[[Any], bool]) -> list[str]:
    """What is still there although it has the subject, as sentences."""
    left = []
    if (erased.events, erased.runs) != (events, runs):
        count = runs - erased.runs
        left.append(f"{count} runs that are being executed, and their events: repeat this when they are over")
    feeds = [state.name for state in await context.store.feeds() if carries(state.cursor)]
    if feeds:
        left.append(f"the cursors of {', '.join(map(context.feed_label, feeds))}, which name what was read last")
    rows = [str(one.value["name"]) for one in await context.store.documents(TRIGGER_ROW) if carries(one.value)]
    if rows:
        left.append(f"the configuration of {', '.join(rows)}: change it, or delete the trigger")
    entries = await _audit_entries(context, carries)
    if entries:
        left.append(f"{entries} entries of the audit log, for as long as retention.audit keeps them")
    return left


async def _audit_entries(context: Context, carries: Callable[[Any], bool]) -> int:
    page = await context.store.audits(limit=SLICE)
    count = 0
    while True:
        count += sum(carries([one["what"], one["detail"]]) for one in page.items)
        if page.next is None:
            return count
        page = await context.store.audits(before=page.next, limit=SLICE)
