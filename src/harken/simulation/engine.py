"""Plays a script on the real engine, on virtual time: one process or several replicas, with stand-ins outside."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from random import Random
from typing import Any

import msgspec
import structlog

from harken.clock import from_unix
from harken.config.feed_sources import source_for
from harken.errors import StoreUnavailable
from harken.event import Event, Recorded
from harken.feed import Feed, FeedState
from harken.ingest.intake import Intake
from harken.ingest.webhook import PREFIX
from harken.match import Read
from harken.runs import OPEN, Run
from harken.schedule import Every
from harken.services import registry
from harken.simulation.killable_process import REQUEUE_SECONDS, OneProcess
from harken.simulation.reduced_configuration import ITSELF, Configuration, SharedPlans
from harken.simulation.script import Arrival, ClockJump, Happening, OfProcess, Script, Sleep, TicketChange
from harken.simulation.setting import Setting, StandInSource
from harken.simulation.simulated_replicas import Fleet
from harken.simulation.sources import RecordedSource, ScriptedPoll, ScriptedPush, ScriptedStream, event_of
from harken.simulation.step_stand_ins import Answer, Effects
from harken.simulation.ticket_platform import TicketPlatform
from harken.source import Host
from harken.testing import VirtualClock, VirtualLoop
from harken.testing.crashing import Crash as Killed
from harken.ticket import Notice
from harken.tickets import feed_name, tracker_of

__all__ = ["Simulation", "without_logs"]

SENT_AGAIN = (5.0, 30.0, 120.0, 600.0)
"""The sender of a webhook that was not accepted tries again after so many seconds, then as often as the last says."""
LAST_LOOKS = 3
SETTLED_SECONDS = 3_600.0
"""So long nobody has written on tickets when all that was to be written is: four sweeps were made."""
DRAIN_SECONDS = 3 * 86_400.0
"""Work that is not over so long after the last thing happened is not waited for."""
PAGE = 500


class Simulation:
    """Plays one script on its `processes`. `clock` is ours, and may be set wrong; `true` is that of the world outside.

    `unread`: feeds that were not read at the end, because a person has to resume their triggers.
    `plans` may be shared by simulations of one configuration, as compiling workflows takes longer than most cases.
    """

    def __init__(
        self,
        configuration: Configuration,
        script: Script,
        loop: VirtualLoop,
        *,
        answers: Sequence[Answer] = (),
        plans: SharedPlans | None = None,
        on_progress: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self.configuration = configuration
        self._on_progress = on_progress
        self.script = script
        # the clocks of a loop begin at its own time, which may have passed in an earlier case
        epoch = script.start.timestamp() - loop.time()
        self.clock, self.true = VirtualClock(loop, from_unix(epoch)), VirtualClock(loop, from_unix(epoch))
        self._random = Random(script.seed)
        loaded = configuration.loaded
        self.effects = Effects(self.clock, answers, loaded.secrets)
        self.platforms = {
            name: TicketPlatform(settings, script, self.true)
            for name, settings in loaded.trackers.items()
            if any(feed.name == feed_name(name) for feed in configuration.feeds)
        }
        self.sources = {feed.name: source for feed in configuration.feeds if (source := self._source(feed))}
        setting = Setting(
            configuration=configuration,
            clock=self.clock,
            true=self.true,
            random=self._random,
            effects=self.effects,
            plans=plans or SharedPlans(loaded),
            sources=self.sources,
            platforms=self.platforms,
        )
        self.processes: OneProcess | Fleet = (
            OneProcess(setting) if script.replicas == 1 else Fleet(setting, script.replicas)
        )
        self.sent: set[tuple[str, str, str | None]] = set()
        self.unread: frozenset[str] = frozenset()
        self._waiting: list[tuple[float, int, Arrival]] = []
        self._telling: set[asyncio.Task[None]] = set()

    @property
    def store(self) -> Any:
        return self.processes.store

    def _source(self, feed: Feed) -> StandInSource | None:
        if feed.way == "internal" or tracker_of(feed.name) in self.platforms:
            return None
        if feed.way == "push":
            return ScriptedPush()
        if feed.way == "stream":
            return ScriptedStream(self.script, feed.name, self.true)
        if feed.kind == ITSELF:
            nothing: Any = None
            host = Host(http=nothing, clock=self.clock, random=self._random)
            source: Any = source_for(feed, self.configuration.loaded, registry(), host)
            return RecordedSource(source)
        return ScriptedPoll(self.script, feed.name, self.true)

    async def play(self) -> None:
        """Play the whole script, then let everything that is under way come to its end."""
        # tasks that died with their process are found when they are collected, which may be after the end
        asyncio.get_running_loop().set_exception_handler(_ignore_planned)
        await self.processes.start()
        if self.script.baselined:
            await self.processes.surviving(self._read_all)
        for item in sorted(self.script.items, key=lambda one: one.at):
            await self._wait_until(item.at)
            self._on_progress(self.elapsed)
            await self.processes.surviving(lambda: self._do(item))  # noqa: B023
        await self._wait_until(self.script.end)
        await self._drain()

    async def _read_all(self) -> None:
        """The first read of each feed, which finds nothing: whatever the script brings is new."""
        for name, source in self.sources.items():
            if isinstance(source, ScriptedPoll):
                await self.processes.read(name)

    async def close(self) -> None:
        """End the engine; what it has stored can be read no more."""
        await self.processes.close()

    @property
    def elapsed(self) -> float:
        """Seconds of the world's time since the start."""
        return self.true.time() - self.script.start.timestamp()

    async def _wait_until(self, seconds: float) -> None:
        """Let the world's time pass, and send what senders send again meanwhile."""
        while True:
            due = [one for one in self._waiting if one[0] <= self.elapsed]
            for at, tries, arrival in due:
                self._waiting.remove((at, tries, arrival))
                await self.processes.surviving(lambda: self._send(arrival, tries))  # noqa: B023
            following = min([seconds, *(at for at, _, _ in self._waiting)])
            left = following - self.elapsed
            if left > 0:
                await self.processes.surviving(lambda: asyncio.sleep(left))  # noqa: B023
            elif following == seconds:
                return

    async def _do(self, item: Happening) -> None:
        if isinstance(item, Arrival):
            await self._arrive(item)
        elif isinstance(item, TicketChange):
            self._change(item)
        elif isinstance(item, OfProcess):
            await self.processes.suffer(item)
        elif isinstance(item, Sleep):
            self.clock.sleep_laptop(item.seconds)
            self.true.sleep_laptop(item.seconds)
        elif isinstance(item, ClockJump):
            self.clock.jump(item.seconds)

    async def _arrive(self, arrival: Arrival) -> None:
        """Polls and streams find it themselves."""
        source = self.sources.get(arrival.feed)
        if isinstance(source, ScriptedPush) or source is None:
            # before the first try, as the process may die in it
            self._waiting.append((self.elapsed, 0, arrival))

    def _change(self, item: TicketChange) -> None:
        """A person does something to a ticket; webhooks tell of it, each once: what nobody takes is lost."""
        feed = self.configuration.feed(item.feed)
        notice = self.platforms[tracker_of(item.feed)].change(item)
        if notice is None or not feed.path:
            return
        for _ in range(item.webhooks):
            telling = asyncio.get_running_loop().create_task(self._tell(feed, notice), context=Context())
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def _tell(self, feed: Feed, notice: Notice) -> None:
        body = msgspec.json.encode(notice)
        with suppress(Killed, StoreUnavailable):
            await self.processes.act(lambda intake: self._post(intake, feed, body))

    async def _send(self, arrival: Arrival, tries: int) -> None:
        """Send a webhook, or something to Harken's own feed; again later if it is not accepted."""
        wait = SENT_AGAIN[min(tries, len(SENT_AGAIN) - 1)]
        again = (self.elapsed + wait, tries + 1, arrival)
        self._waiting.append(again)
        event = event_of(arrival, self.script.start.timestamp())
        source = self.sources.get(arrival.feed)
        if isinstance(source, ScriptedPush):
            feed = self.configuration.feed(arrival.feed)
            body = msgspec.json.encode(event)
            accepted = await self.processes.act(lambda intake: self._post(intake, feed, body))
        else:
            accepted = await self.processes.act(lambda intake: self._commit(intake, arrival.feed, event))
        if accepted:
            self._waiting.remove(again)
            self.sent.add((arrival.feed, arrival.subject, arrival.state))
            if source is not None:
                source.served.add([event])

    async def _post(self, intake: Intake, feed: Feed, body: bytes) -> bool:
        """Whether the webhook was answered with 2xx."""
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        scope: dict[str, Any] = {
            "path": f"{PREFIX}{feed.path}",
            "method": "POST",
            "headers": [],
            "query_string": b"",
            "client": None,
        }
        await intake.webhooks(scope, receive, send)
        return statuses[0] < 300

    async def _commit(self, intake: Intake, feed: str, event: Event) -> bool:
        try:
            await intake.committer.push(feed, [event], Read(now=self.clock.now()))
        except StoreUnavailable:
            return False
        return True

    async def _drain(self) -> None:
        """Let all reads find what is there, and all runs come to their end."""
        await self.processes.spare()
        self._ended = self.true.time()
        while self._waiting:
            await self._wait_until(min(at for at, _, _ in self._waiting) + 0.001)
        await self._resume_stopped()
        self.unread = await self._resting()
        await self._read_rare()
        marks = {name: await self._reads(name) + LAST_LOOKS for name in self.sources}
        end = self.true.time() + DRAIN_SECONDS
        pause = 1.0
        while self.true.time() < end and not await self._is_quiet(marks):
            await asyncio.sleep(pause)
            pause = min(pause * 2, REQUEUE_SECONDS)

    async def _resting(self) -> frozenset[str]:
        """The feeds that nobody reads, because all their triggers wait for a person."""
        paused = {state.name: bool(state.paused) for state in await self.store.triggers()}
        feeds = {trigger.feed for trigger in self.configuration.triggers}
        awake = {trigger.feed for trigger in self.configuration.triggers if not paused.get(trigger.name)}
        return frozenset(feeds - awake)

    async def _read_rare(self) -> None:
        """Read feeds by hand that are due at certain times only: the next one may be weeks away."""
        for name, source in self.sources.items():
            if isinstance(source, ScriptedPoll) and name not in self.unread and not self._is_regular(name):
                await self.processes.read(name)

    def _is_regular(self, feed: str) -> bool:
        found = self.configuration.feed(feed)
        return found.way == "stream" or isinstance(found.schedule, Every)

    async def _resume_stopped(self) -> None:
        """As a person does when a service works again: feeds that stopped after many failures go on."""
        for feed in self.configuration.feeds:
            if feed.way != "internal" and await self._is_paused(feed.name):
                for trigger in self.configuration.triggers:
                    if trigger.feed == feed.name:
                        await self.store.resume(trigger.name)
                await self.processes.refresh(feed.name)

    async def _is_quiet(self, marks: Mapping[str, int]) -> bool:
        for name, source in self.sources.items():
            read = isinstance(source, ScriptedPoll | ScriptedStream) and name not in self.unread
            if (
                read
                and self._is_regular(name)
                and await self._reads(name) < marks[name]
                and not await self._is_paused(name)
            ):
                return False
        if [run for run in await self._open_runs() if _goes_on(run)]:
            return False
        return all([await self._is_settled(name, platform) for name, platform in self.platforms.items()])

    async def _is_settled(self, name: str, platform: TicketPlatform) -> bool:
        """Whether the tracker was swept since the script ended, and nobody has written on a ticket for a while."""
        feed = feed_name(name)
        if feed in self.unread or await self._is_paused(feed):
            return True
        quiet_since = max([self._ended, *(one.changed_at for one in platform.tickets.values())])
        return self.true.time() - quiet_since > SETTLED_SECONDS

    async def _reads(self, feed: str) -> int:
        """How many reads of the feed have come to their end, and are stored or will be."""
        state: FeedState = await self.store.state(feed)
        source = self.sources[feed]
        return min(state.reads, source.served.reads)

    async def _is_paused(self, feed: str) -> bool:
        state: FeedState = await self.store.state(feed)
        return state.health.state == "paused"

    async def _open_runs(self) -> list[Run]:
        counts = await self.store.counts()
        if not any(counts.get(f"runs_{state}", 0) for state in OPEN):
            return []
        return [run for run in await self.runs() if run.status in OPEN]

    async def runs(self) -> list[Run]:
        """All runs without their journals, oldest first."""
        found: list[Run] = []
        before: int | None = None
        while True:
            page = await self.store.runs(limit=PAGE, before=before)
            found += page.items
            if page.next is None:
                return found[::-1]
            before = page.next

    async def run(self, run_id: str) -> Run:
        """A run with its journal."""
        found: Run = await self.store.run(run_id)
        return found

    async def events(self) -> list[Recorded]:
        """All events with their verdicts, oldest first; verdicts name their triggers."""
        names = {state.uid: state.name for state in await self.store.triggers()}
        found: list[Recorded] = []
        while page := await self.store.events_after(found[-1].id if found else 0, PAGE):
            found += page
        return [_with_names(event, names) for event in found]


@contextmanager
def without_logs() -> Iterator[None]:
    """Say nothing of what happens inside: processes that are killed on purpose have nothing to tell."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


def _goes_on(run: Run) -> bool:
    """Whether the run ends without a person."""
    return not (run.status == "held" or (run.status == "waiting" and run.waiting_for))


def _with_names(event: Recorded, names: Mapping[str, str]) -> Recorded:
    named = [msgspec.structs.replace(one, trigger=names.get(one.trigger, one.trigger)) for one in event.verdicts]
    return msgspec.structs.replace(event, verdicts=tuple(named))


def _ignore_planned(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tasks that died with the process have nobody left to tell."""
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)
