"""What a demo prints: a live screen on a terminal, one line per event elsewhere."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from harken.demo.legend import COUNTERS, VERDICTS, counter_words
from harken.demo.newest_events_and_runs import Snapshot, about_run, describe_event, say_verdict
from harken.event import Recorded
from harken.runs import Run

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["Display", "Heading", "Lines", "Screen", "Silent", "display_for", "screen_lines"]

_COLOURS = {"fired": "green", "done": "green", "filtered": "yellow", "duplicate": "yellow", "before_start": "dim"}
_BAD = ("failed", "dead", "error")
# what a small terminal leaves out first stands last: without these rows the events, runs and counters have more room
_ROOM_FOR_LEGEND = 20
_ROOM_FOR_HINTS = 14
VERDICT_CELLS = 31
WORKFLOW_CELLS = 14
OUTCOME_CELLS = 21


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change while a demo runs: its title, and what else can be done meanwhile.

    `noted` is what the notes of a demo are about; they take the place of the legend.
    """

    title: str
    hints: tuple[str, ...] = ()
    noted: str = ""


class Display(Protocol):
    def show(self, snapshot: Snapshot) -> None: ...


class Silent:
    def show(self, snapshot: Snapshot) -> None:
        return None


class Lines:
    """Prints each event with its verdicts once, for logs and pipes. `label` is what people call a feed."""

    def __init__(self, write: Callable[[str], None] = print, label: Callable[[str], str] = str) -> None:
        self._write = write
        self._label = label

    def show(self, snapshot: Snapshot) -> None:
        for event in snapshot.fresh:
            said = (say_verdict(verdict, _names(snapshot), reasons=True) for verdict in event.verdicts)
            at, feed = f"{event.recorded_at.astimezone():%H:%M:%S}", self._label(event.feed)
            self._write(f"{at} {feed} {describe_event(event)}: {', '.join(said) or 'no trigger listens'}")
        for note in snapshot.fresh_notes:
            self._write(note)


class Screen:
    """Fills the terminal with the newest events and runs, and the counters, and never more than fills it."""

    def __init__(self, heading: Heading) -> None:
        from rich.console import Console
        from rich.live import Live

        self._heading = heading
        self._console = Console()
        self.live = Live(console=self._console, screen=True, auto_refresh=False)

    def show(self, snapshot: Snapshot) -> None:
        from rich.console import Group

        width, height = self._console.size
        self.live.update(Group(*screen_lines(self._heading, snapshot, width, height)), refresh=True)


@asynccontextmanager
async def display_for(as_json: bool, heading: Heading, label: Callable[[str], str]) -> AsyncIterator[Display]:
    """The display for this output (terminal, pipe or JSON), open until the block ends."""
    if as_json:
        yield Silent()
    elif _is_screen():
        screen = Screen(heading)
        with screen.live:
            yield screen
    else:
        print(heading.title, *heading.hints, sep="\n", flush=True)
        yield Lines(lambda line: print(line, flush=True), label)


def _is_screen() -> bool:
    from rich.console import Console

    return sys.stdout.isatty() and not Console().is_dumb_terminal


def screen_lines(heading: Heading, snapshot: Snapshot, width: int, height: int) -> list[Text]:
    """The whole screen: at most `height` lines of at most `width` cells each."""
    from rich.text import Text

    tail = _tail(heading, height)
    notes = _note_lines(heading, snapshot, (height - len(tail) - 4) // 2)
    room = height - len(tail) - len(notes) - 4
    runs = max(1, room * 2 // 5)
    events = max(1, room - runs)
    shown_events = [_event_line(event, snapshot, width) for event in snapshot.events[:events]]
    shown_runs = [_run_line(run, snapshot, width) for run in snapshot.runs[:runs]]
    lines = [
        Text(heading.title, style="bold"),
        _counter_line(snapshot.counters),
        Text("events, the newest first", style="bold cyan"),
        *_filled(shown_events, events, "nothing has happened yet"),
        Text("runs, the newest first", style="bold cyan"),
        *_filled(shown_runs, runs, "nothing has run yet"),
        *notes,
        *(Text(line, style="dim") for line in tail),
    ]
    for line in lines:
        line.no_wrap = True
        line.truncate(width, overflow="ellipsis")
    return lines[:height]


def _tail(heading: Heading, height: int) -> list[str]:
    verdicts = " · ".join(f"{word}: {VERDICTS[word]}" for word in ("fired", "gathered", "filtered"))
    legend = ["", verdicts, *(f"{word}: {meaning}" for word, meaning in COUNTERS.items())]
    if height >= _ROOM_FOR_LEGEND and not heading.noted:
        return [*legend, *heading.hints]
    return list(heading.hints) if height >= _ROOM_FOR_HINTS else []


def _note_lines(heading: Heading, snapshot: Snapshot, room: int) -> list[Text]:
    from rich.text import Text

    if not heading.noted or room < 2:
        return []
    lines = [Text(note, style="default") for note in snapshot.notes[: room - 1]]
    title = Text(f"{heading.noted}, the newest first", style="bold cyan")
    return [title, *_filled(lines, room - 1, "nothing has happened yet")]


def _filled(lines: Sequence[Text], room: int, nothing: str) -> list[Text]:
    from rich.text import Text

    first = list(lines) or [Text(f"  {nothing}", style="dim")]
    return [*first, *(Text() for _ in range(room - len(first)))]


def _counter_line(counters: Mapping[str, int]) -> Text:
    from rich.text import Text

    words = counter_words(counters).items()
    return Text("  ").join(
        Text(f"{word} {number}", style="bold red" if word == "failed" else "bold") for word, number in words
    )


def _event_line(event: Recorded, snapshot: Snapshot, width: int) -> Text:
    from rich.text import Text

    line = Text(f"{_clock(event.recorded_at)} ", style="dim")
    line.append(_fit(describe_event(event), max(10, width - 9 - VERDICT_CELLS)), style="default")
    for number, verdict in enumerate(event.verdicts):
        line.append(", " if number else " ", style="default")
        line.append(say_verdict(verdict, _names(snapshot)), style=_colour(verdict.outcome))
    return line


def _run_line(run: Run, snapshot: Snapshot, width: int) -> Text:
    from rich.text import Text

    outcome = snapshot.outcomes.get(run.id, run.status)
    line = Text(f"{_clock(run.created_at)} ", style="dim")
    line.append(_fit(run.workflow, WORKFLOW_CELLS), style="default")
    line.append(
        f" {_fit(about_run(run, snapshot), max(10, width - 10 - WORKFLOW_CELLS - OUTCOME_CELLS))}", style="default"
    )
    line.append(f" {_fit(outcome, 9)}", style=_colour(outcome))
    if run.started_at and run.finished_at:
        line.append(f" {(run.finished_at - run.started_at).total_seconds():.2f} s", style="dim")
    return line


def _fit(text: str, width: int) -> str:
    """The text in exactly so many cells."""
    from rich.cells import cell_len, set_cell_size

    return set_cell_size(text, width) if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"


def _names(snapshot: Snapshot) -> Callable[[str], str]:
    return lambda uid: snapshot.triggers.get(uid, uid)


def _clock(moment: datetime) -> str:
    return f"{moment.astimezone():%H:%M:%S}"


def _colour(word: str) -> str:
    return _COLOURS.get(word, "red" if word in _BAD else "cyan")
