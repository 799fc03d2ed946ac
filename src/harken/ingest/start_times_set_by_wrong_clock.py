"""Start lines in the future: the clock was ahead when a trigger was created, so nothing would fire until then.

They are noticed when the clock is set back, and once a minute. They are moved back to when the trigger really began,
and that is told: in the log, as an event on the feed `harken`, and by `triggers show`. But it may also be that the
clock is behind now, as on a machine that boots without one: then the start lines are right, and nothing is moved.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median

import structlog

from harken.clock import Clock
from harken.errors import RetryLater
from harken.event import Event
from harken.feed import INTERNAL
from harken.ingest.commit import Committer
from harken.ingest.stored_event_backfill import Backfill, FeedStore
from harken.match import Read
from harken.store import FUTURE_SECONDS, MovedStart, Opened
from harken.store.document_kinds import START_MOVED

__all__ = ["FUTURE", "START_MOVED_EVENT", "StartLines"]

log = structlog.get_logger("harken.ingest")

START_MOVED_EVENT = "trigger.start_moved"
FUTURE = timedelta(seconds=FUTURE_SECONDS)
UNKNOWN_SECONDS = 600.0
"""So long after the start a clock is trusted about which no service says anything: NTP has had its time."""


class StartLines:
    """`refresh(feed)` makes the engine learn the feed's rules again after its start lines were moved.

    `skews()`: how far each service that says so is ahead of our clock; `newest()`: the newest item of each feed.
    """

    def __init__(
        self,
        store: FeedStore,
        committer: Committer,
        backfill: Backfill,
        clock: Clock,
        refresh: Callable[[str], Awaitable[None]],
        is_pushed: Callable[[str], bool],
        skews: Callable[[], Sequence[float]],
        newest: Callable[[], Iterable[datetime]],
    ) -> None:
        self._store = store
        self._committer = committer
        self._backfill = backfill
        self._clock = clock
        self._refresh = refresh
        self._is_pushed = is_pushed
        self._skews = skews
        self._newest = newest
        self._since = clock.monotonic()
        # when triggers began at the latest whose start line was in the future when the process started
        self._began: dict[str, datetime] = {}

    def note(self, opened: Opened, feeds: Mapping[str, str]) -> None:
        """Note which start lines are in the future when the process starts; `feeds` are those of the triggers.

        The trigger began before that, and its feed was then read for as long as the wrong clock says."""
        limit, began = self._clock.now() + FUTURE, self._clock.now()
        for name, state in opened.triggers.items():
            if state.start_line > limit:
                read = opened.feeds[feeds[name]].last_success if name in feeds else None
                self._began[name] = began - max(timedelta(0), (read or began) - state.start_line)

    async def look(self) -> None:
        """Some may be in the future: the clock was set back while no process ran, in small steps, or elsewhere."""
        ahead, now = self._ahead(), self._clock.now()
        if ahead and self._is_right(trusted=self._clock.monotonic() - self._since >= UNKNOWN_SECONDS):
            await self._move({name: self._began.get(name, now) for name in ahead})

    async def clock_set_back(self, seconds: float) -> None:
        """The clock was just set back by so many seconds, most probably because it was ahead."""
        back = timedelta(seconds=seconds)
        self._began = {name: began - back for name, began in self._began.items()}
        ahead = self._ahead()
        if ahead and self._is_right(trusted=True):
            await self._move({name: self._began.get(name, line - back) for name, line in ahead.items()})

    def _ahead(self) -> dict[str, datetime]:
        return self._committer.rule_cache.start_lines_after(self._clock.now() + FUTURE)

    def _is_right(self, trusted: bool) -> bool:
        """Whether our clock is right: as most services say by the dates of their answers, else if it is trusted.

        Items that have been seen and are dated in the future tell that it is behind."""
        skews = self._skews()
        if skews:
            return abs(median(skews)) < FUTURE_SECONDS
        limit = self._clock.now() + FUTURE
        return trusted and not any(newest > limit for newest in self._newest())

    async def _move(self, lines: Mapping[str, datetime]) -> None:
        """While the store is away nothing happens: the next look finds them again."""
        try:
            moved = await self._store.move_start_lines(lines)
            for feed in sorted({one.feed for one in moved}):
                await self._refresh(feed)
            for one in moved:
                await self._tell(one)
            for feed in sorted({one.feed for one in moved if self._is_pushed(one.feed)}):
                await self._backfill.of_feed(feed)
        except RetryLater as error:
            log.warning("store.trouble", reason=str(error))

    async def _tell(self, moved: MovedStart) -> None:
        now = self._clock.now()
        was, line = moved.was.isoformat(), moved.start_line.isoformat()
        log.warning("trigger.start_moved", trigger=moved.trigger, was=was, start_line=line)
        text = (
            f"{moved.trigger} was to start at {moved.was:%Y-%m-%d %H:%M:%S}Z, which is in the future: the clock was "
            f"ahead when it was set. It starts at {moved.start_line:%Y-%m-%d %H:%M:%S}Z instead, and looks back to it."
        )
        rules = self._committer.rule_cache.get(moved.feed)
        feed = rules.feed.display_name if rules is not None else moved.feed
        data = {"trigger": moved.trigger, "feed": feed, "was": was, "start_line": line, "text": text}
        await self._store.put(START_MOVED, moved.trigger, {"was": was, "start_line": line, "at": now.isoformat()})
        if self._committer.rule_cache.get(INTERNAL) is None:
            return
        key = f"{START_MOVED_EVENT}:{moved.trigger}@{was}"
        event = Event(subject=moved.trigger, type=START_MOVED_EVENT, key=key, state=key, occurred_at=now, data=data)
        await self._committer.push(INTERNAL, [event], Read(now=now))
