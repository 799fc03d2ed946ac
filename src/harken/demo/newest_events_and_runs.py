"""What a demo shows at one moment: the newest events and runs, and the counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

import msgspec

from harken.event import Recorded, Verdict
from harken.feed import INTERNAL
from harken.operate.output_rows import outcome_of, title_of
from harken.runs import Run
from harken.store import DeadLetter, Records

__all__ = ["Recent", "Snapshot", "about_run", "describe_event", "say_verdict"]

KEPT = 40
_PLAIN = ("fired", "before_start")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """`events` and `runs` are the newest, newest first; `fresh` are all events since the snapshot before, oldest first.

    `triggers` has their names by uid, `outcomes` how each of the runs ended, by its id. `notes` are what was seen at
    the services, newest first, and `fresh_notes` those since the snapshot before, oldest first.
    """

    fresh: tuple[Recorded, ...] = ()
    events: tuple[Recorded, ...] = ()
    runs: tuple[Run, ...] = ()
    outcomes: Mapping[str, str] = {}
    triggers: Mapping[str, str] = {}
    counters: Mapping[str, int] = {}
    notes: tuple[str, ...] = ()
    fresh_notes: tuple[str, ...] = ()


class Recent:
    """Reads the store for what is new, and remembers the newest events."""

    def __init__(self, store: Records) -> None:
        self._store = store
        self._after = 0
        self._events: deque[Recorded] = deque(maxlen=KEPT)
        self._notes: deque[str] = deque(maxlen=KEPT)
        self._refused = 0

    async def read(self, counted: Mapping[str, int], notes: Collection[str] = ()) -> Snapshot:
        """The state now; `counted` are the counters that the store does not have, `notes` what is new elsewhere."""
        found = await self._store.events_after(self._after)
        self._after = found[-1].id if found else self._after
        fresh = [event for event in found if event.feed != INTERNAL]
        self._events.extendleft(fresh)
        counts = await self._store.counts()
        fresh_notes = [*notes, *await self._dead_letters(counts.get("refused_events", 0))]
        self._notes.extendleft(fresh_notes)
        runs = (await self._store.runs(limit=KEPT)).items
        return Snapshot(
            fresh=tuple(fresh),
            events=tuple(self._events),
            runs=tuple(runs),
            outcomes={run.id: outcome_of(run) for run in runs},
            triggers={state.uid: state.name for state in await self._store.triggers()},
            counters={**counts, **counted},
            notes=tuple(self._notes),
            fresh_notes=tuple(fresh_notes),
        )

    async def _dead_letters(self, refused: int) -> list[str]:
        """What was refused since the last look, one line each, oldest first."""
        new, self._refused = refused - self._refused, refused
        if new <= 0:
            return []
        letters = [letter for letter in (await self._store.dead()).items if letter.what == "event"][:new]
        return [_describe_letter(letter) for letter in reversed(letters)]


def describe_event(event: Recorded) -> str:
    """The event in one line: its subject, what it is about in words, and its status."""
    data = event.data if isinstance(event.data, Mapping) else {}
    words = title_of(data) or str(data.get("service") or "")
    told = (event.subject, words, str(data.get("status") or ""))
    if event.type.startswith("ticket."):
        # what people call it, and where it stands for us
        told = (f"#{data.get('number')}", event.state or "", words)
    return _one_line(" ".join(part for part in told if part))


def about_run(run: Run, snapshot: Snapshot) -> str:
    """What the run is about, in one line: its first event in words, or else its key; and how many more it has."""
    first = next((event for event in snapshot.events if event.id in run.event_ids), None)
    named = describe_event(first) if first is not None else next(iter(run.event_keys), "")
    more = len(run.event_ids) - 1
    return _one_line(f"{named} and {more} more" if more > 0 else named)


def say_verdict(verdict: Verdict, name: Callable[[str], str], *, reasons: bool = False) -> str:
    """A verdict in words, with its reason where it needs one and `reasons` are wanted."""
    said = f"{name(verdict.trigger)} {verdict.outcome.replace('_', ' ')}"
    return f"{said} ({verdict.reason})" if reasons and verdict.reason and verdict.outcome not in _PLAIN else said


def _describe_letter(letter: DeadLetter) -> str:
    return _one_line(f"{letter.at.astimezone():%H:%M:%S} dead letter {letter.id}: {letter.reason} ({letter.key})")


def _one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
