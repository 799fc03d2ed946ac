"""A line for each run that ends, for whoever started the controller in a terminal.

The lines are written by a thread of their own, and at most so many a second: neither a burst of runs nor a terminal
that does not read may hold up the runs.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from harken.clock import Clock
from harken.operate.output_rows import Plain, plain, title_of
from harken.run.worker import RunEnd

__all__ = ["RunLines"]

PER_SECOND = 20
LONGEST_QUEUE = 1_000
LAST_LINES_SECONDS = 1.0

log = structlog.get_logger("harken.app")


class RunLines:
    """`write` is called in a thread with a row for each run, or with `left_out` counts by outcome after a burst.

    `discreet` removes our own secrets from a row as JSON; `workflow` names a revision.
    """

    def __init__(
        self,
        write: Callable[[Plain], None],
        clock: Clock,
        discreet: Callable[[bytes], bytes],
        workflow: Callable[[str], str],
    ) -> None:
        self._write = write
        self._clock = clock
        self._discreet = discreet
        self._workflow = workflow
        self._waiting: queue.Queue[Plain | None] = queue.Queue(LONGEST_QUEUE)
        self._left_out: Counter[str] = Counter()
        self._second, self._shown = 0, 0
        self._thread = threading.Thread(target=self._write_all, name="run lines", daemon=True)
        self._thread.start()

    def add(self, end: RunEnd) -> None:
        """Never waits and never raises because of the reader."""
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second, self._shown = second, 0
        self._shown += 1
        if self._shown <= PER_SECOND and self._put(self._row(end)):
            return
        if not self._left_out:
            asyncio.get_running_loop().call_later(1.0, self._tell_left_out)
        self._left_out[end.outcome] += 1

    def _tell_left_out(self) -> None:
        """Count what was left out in one line."""
        if self._left_out and self._put({"at": plain(self._clock.now()), "left_out": dict(self._left_out)}):
            self._left_out.clear()

    def close(self) -> None:
        self._tell_left_out()
        if self._put(None):
            self._thread.join(LAST_LINES_SECONDS)

    def _put(self, row: Plain | None) -> bool:
        try:
            self._waiting.put_nowait(row)
        except queue.Full:
            return False
        return True

    def _row(self, end: RunEnd) -> Plain:
        claimed = end.claimed
        first = claimed.events[0] if claimed.events else None
        row = {
            "at": plain(self._clock.now()),
            "id": claimed.id,
            "trigger": claimed.trigger,
            "workflow": self._workflow(claimed.workflow_rev),
            "outcome": end.outcome,
            "error": end.error,
            "seconds": round(end.seconds, 3),
            "event_keys": [event.key or event.subject for event in claimed.events],
            "title": title_of(first.data) if first else "",
        }
        cleaned: Any = msgspec.json.decode(self._discreet(msgspec.json.encode(row)))
        return dict(cleaned)

    def _write_all(self) -> None:
        while (row := self._waiting.get()) is not None:
            try:
                self._write(row)
            except OSError as error:
                log.warning("run_lines.ended", reason=str(error))
                return
