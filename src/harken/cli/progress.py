"""How long work goes on: one line on a terminal that changes. Of a copy there is a line now and then anywhere else."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from harken.cli.output import clean
from harken.clock import Clock, SystemClock

if TYPE_CHECKING:
    from harken.operate.progress import Progress

__all__ = ["Terminal", "Working", "sentence"]

WIDTH = 100
FIRST_SECONDS = 1.0
"""Nothing is said of what is done by then."""
LOOK_SECONDS = 0.25


class Working:
    """One line about an operation that takes long, on a terminal only; it is gone when the operation is over.

    A thread of its own writes it, because the operation does not come up for air while it waits or computes.
    `away`: a controller does the work, and tells nothing before its answer."""

    def __init__(
        self,
        work: str,
        *,
        away: bool = False,
        hidden: bool = False,
        clock: Clock | None = None,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """`wait` sleeps and returns whether the work is over."""
        self._work = work
        self._away = away
        self._over = threading.Event()
        self._clock = clock or SystemClock()
        self._wait = wait or self._over.wait
        self._progress: Progress | None = None
        self._line = ""
        shows = not hidden and sys.stderr.isatty()
        self._writer = threading.Thread(target=self._write, name="progress", daemon=True) if shows else None

    def __enter__(self) -> Self:
        if self._writer is not None:
            self._writer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        if self._writer is not None:
            self._writer.join()
            self._rewrite("")

    def report(self, progress: Progress) -> None:
        self._progress = progress

    def _write(self) -> None:
        began = self._clock.monotonic()
        while not self._wait(LOOK_SECONDS):
            seconds = self._clock.monotonic() - began
            if seconds >= FIRST_SECONDS:
                self._rewrite(sentence(self._work, seconds, self._progress, away=self._away))

    def _rewrite(self, line: str) -> None:
        # a line that wraps cannot be taken back
        line = clean(line)[: shutil.get_terminal_size().columns - 1]
        if line == self._line:
            return
        end = "" if line else "\r"
        print(f"\r{line:<{len(self._line)}}", end=end, file=sys.stderr, flush=True)
        self._line = line


def sentence(work: str, seconds: float, progress: Progress | None, *, away: bool) -> str:
    """`backtest: 420,000 of about 1,000,000 events, 3 s`."""
    if progress is not None:
        total = f"{'' if progress.exact else 'about '}{progress.total:,}"
        return f"{work}: {progress.done:,} of {total} {progress.what}, {int(seconds)} s"
    if away:
        # it would go on without us
        return f"{work}: the controller works on it, {int(seconds)} s; Ctrl-C stops waiting"
    return f"{work}: working, {int(seconds)} s; Ctrl-C ends it"


class Terminal:
    """Tells on standard error, so that what is printed at the end can be read by a program."""

    def __init__(self) -> None:
        self._changing = sys.stderr.isatty()
        self._said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._changing and self._said:
            print(file=sys.stderr)

    def waits(self, writers: Sequence[str]) -> None:
        self._tell("Waiting: " + "; ".join(writers))

    def copied(self, counts: Mapping[str, int]) -> None:
        if self._changing:
            self._tell("Copied " + ", ".join(f"{number} {kind}" for kind, number in counts.items() if number))

    def _tell(self, words: str) -> None:
        words = clean(words)
        if words == self._said:
            return
        self._said = words
        if self._changing:
            print(f"\r{words[:WIDTH]:<{WIDTH}}", end="", file=sys.stderr, flush=True)
        else:
            print(words, file=sys.stderr, flush=True)
