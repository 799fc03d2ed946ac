"""What a demo prints: a live table on a terminal, one line per event elsewhere."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from textwrap import shorten
from typing import TYPE_CHECKING, Protocol

from harken.event import Recorded, Verdict
from harken.feed import INTERNAL
from harken.runs import Run
from harken.store import Records

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

__all__ = ["Display", "Lines", "Screen", "Silent", "display_for"]

SHOWN = 12
TITLE = 60
_TITLES = ("title", "summary", "name", "text", "service")
_PLAIN = ("fired", "before_start")
_COLOURS = {"fired": "green", "done": "green", "filtered": "yellow", "duplicate": "yellow", "before_start": "dim"}


class Display(Protocol):
    async def refresh(self, store: Records, counters: Mapping[str, int]) -> None:
        """Show what is new in the store since the last call."""
        ...


class Silent:
    async def refresh(self, store: Records, counters: Mapping[str, int]) -> None:
        return None


class Lines:
    """Prints each event with its verdicts once, for logs and pipes."""

    def __init__(self, write: Callable[[str], None] = print) -> None:
        self._after = 0
        self._write = write

    async def refresh(self, store: Records, counters: Mapping[str, int]) -> None:
        names = {state.uid: state.name for state in await store.triggers()}
        for event in await store.events_after(self._after):
            self._after = event.id
            if event.feed == INTERNAL:
                continue
            verdicts = ", ".join(_say(verdict, names) for verdict in event.verdicts) or "no trigger listens"
            self._write(f"{event.recorded_at:%H:%M:%S} {event.feed} {_title(event)}: {verdicts}")


class Screen:
    """Keeps the newest events, verdicts and runs in view."""

    def __init__(self, title: str, hint: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title = title
        self._hint = hint
        self._after = 0
        self._events: deque[Recorded] = deque(maxlen=SHOWN)
        self.live = Live(console=Console(), auto_refresh=False, transient=True)

    async def refresh(self, store: Records, counters: Mapping[str, int]) -> None:
        names = {state.uid: state.name for state in await store.triggers()}
        for event in await store.events_after(self._after):
            self._after = event.id
            if event.feed != INTERNAL:
                self._events.append(event)
        runs = (await store.runs(limit=SHOWN)).items
        self.live.update(self._draw(names, runs, counters), refresh=True)

    def _draw(self, names: Mapping[str, str], runs: Sequence[Run], counters: Mapping[str, int]) -> Group:
        from rich.console import Group
        from rich.text import Text

        totals = "   ".join(f"{name} {count}" for name, count in counters.items())
        return Group(
            Text(self._title, style="bold"),
            Text(self._hint, style="dim"),
            _events_table(reversed(self._events), names),
            _runs_table(runs),
            Text(totals, style="bold"),
        )


@asynccontextmanager
async def display_for(as_json: bool, title: str, hint: str) -> AsyncIterator[Display]:
    """The display for this output (terminal, pipe or JSON), open until the block ends."""
    if as_json:
        yield Silent()
    elif sys.stdout.isatty():
        screen = Screen(title, hint)
        with screen.live:
            yield screen
    else:
        print(title, hint, sep="\n", flush=True)
        yield Lines(lambda line: print(line, flush=True))


def _events_table(events: Iterable[Recorded], names: Mapping[str, str]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table("at", "feed", "event", "verdicts", expand=True, title="events", title_justify="left", box=None)
    for event in events:
        verdicts = "  ".join(_paint(verdict.outcome, escape(_say(verdict, names))) for verdict in event.verdicts)
        table.add_row(f"{event.recorded_at:%H:%M:%S}", event.feed, escape(_title(event)), verdicts)
    return table


def _runs_table(runs: Sequence[Run]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table("run", "workflow", "about", "status", expand=True, title="runs", title_justify="left", box=None)
    for run in runs:
        about = ", ".join(run.event_keys[:3]) + (" …" if len(run.event_keys) > 3 else "")
        table.add_row(run.id[:8], escape(run.workflow), escape(about), _paint(run.status, run.status))
    return table


def _say(verdict: Verdict, names: Mapping[str, str]) -> str:
    said = f"{names.get(verdict.trigger, verdict.trigger)} {verdict.outcome.replace('_', ' ')}"
    return f"{said} ({verdict.reason})" if verdict.reason and verdict.outcome not in _PLAIN else said


def _title(event: Recorded) -> str:
    data = event.data if isinstance(event.data, Mapping) else {}
    named = next((text for key in _TITLES if isinstance(text := data.get(key), str) and text), "")
    parts = [event.subject, shorten(named, TITLE, placeholder=" …"), str(data.get("status") or "")]
    return " ".join(part for part in parts if part)


def _paint(word: str, text: str) -> str:
    colour = _COLOURS.get(word, "red" if word in ("failed", "dead", "error") else "cyan")
    return f"[{colour}]{text}[/{colour}]"
