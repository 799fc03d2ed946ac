"""Compare what the store recorded with what really happened: lost, duplicate and unexpected runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from harken.event import Recorded
from harken.runs import Run
from harken.store import Records

__all__ = ["Naming", "RecordedOutcome", "Summary", "compare", "read_outcome"]

Naming = Callable[[Recorded], str]
"""The name of the occurrence that an event is, empty when it is none of the demo's."""

_EXAMPLES = 5


class RecordedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds: events by id, runs with the names of their triggers, and how many messages it refused."""

    events: Mapping[int, Recorded]
    runs: tuple[tuple[str, Run], ...]
    dead_letters: int = 0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """How a demo went. It went well when nothing was lost, doubled or unexpected."""

    seconds: float
    events_at_source: int
    recorded: int
    runs: int
    lost: int
    duplicate: int
    unexpected: int
    rate_limited: int
    late: int
    deliveries: int
    dead_letters: int
    lost_examples: tuple[str, ...] = ()
    duplicate_examples: tuple[str, ...] = ()
    files: str = ""

    @property
    def good(self) -> bool:
        return not (self.lost or self.duplicate or self.unexpected)


async def read_outcome(store: Records) -> RecordedOutcome:
    names = {state.uid: state.name for state in await store.triggers()}
    events: dict[int, Recorded] = {}
    while page := await store.events_after(max(events, default=0)):
        events.update((event.id, event) for event in page)
    runs: list[tuple[str, Run]] = []
    before: int | None = None
    while True:
        found = await store.runs(before=before, limit=200)
        runs.extend((names.get(run.trigger, run.trigger), run) for run in found.items)
        before = found.next
        if before is None:
            break
    refused = (await store.counts()).get("refused_events", 0)
    return RecordedOutcome(events=events, runs=tuple(runs), dead_letters=refused)


def compare(
    outcome: RecordedOutcome,
    expected: Mapping[str, Iterable[str]],
    deliveries: Mapping[str, Collection[str]],
    occurrence: Naming,
    *,
    refused: int = 0,
    **counted: Any,
) -> Summary:
    """Sum up a demo. An occurrence is lost without a finished run, and doubled with two runs or two messages.

    `refused` is how many messages must be dead letters, each of them once.
    """
    wanted = {(trigger, name) for trigger, names in expected.items() for name in names}
    started = _runs_by_occurrence(outcome, occurrence)
    finished = {pair for pair, runs in started.items() if any(run.status == "done" for run in runs.values())}
    lost = sorted(wanted - finished)
    doubled = sorted(pair for pair, runs in started.items() if len(runs) > 1)
    told_twice = {name for name, messages in deliveries.items() if len(set(messages)) > 1}
    twice = sorted({name for _, name in doubled} | told_twice)
    at_source = {name for _, name in wanted}
    return Summary(
        events_at_source=len(at_source),
        recorded=len(at_source & {occurrence(event) for event in outcome.events.values()}),
        runs=sum(run.status == "done" for _, run in outcome.runs),
        lost=len(lost) + max(0, refused - outcome.dead_letters),
        duplicate=len(twice),
        unexpected=len(set(started) - wanted) + max(0, outcome.dead_letters - refused),
        deliveries=sum(len(set(messages)) for messages in deliveries.values()),
        dead_letters=outcome.dead_letters,
        lost_examples=tuple(f"{trigger} {name}" for trigger, name in lost[:_EXAMPLES]),
        duplicate_examples=tuple(twice[:_EXAMPLES]),
        **counted,
    )


def _runs_by_occurrence(outcome: RecordedOutcome, occurrence: Naming) -> dict[tuple[str, str], dict[str, Run]]:
    found: dict[tuple[str, str], dict[str, Run]] = {}
    for trigger, run in outcome.runs:
        if run.status == "cancelled":
            # what was called off is no run that should not have been; where one was wanted, it is lost
            continue
        for event_id in run.event_ids:
            event = outcome.events.get(event_id)
            name = occurrence(event) if event else ""
            if name:
                found.setdefault((trigger, name), {})[run.id] = run
    return found
