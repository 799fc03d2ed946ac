"""What happens around tickets while there are trackers: their runs are shown on them, and answers are handed on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import structlog

from harken.app.source_and_action_factory import Factory
from harken.clock import Clock
from harken.config.loaded import Loaded
from harken.errors import HarkenError
from harken.event import Event
from harken.feed import INTERNAL
from harken.http.known_secret_redaction import redact
from harken.ingest.commit import Committer
from harken.match import Read
from harken.operate.load_and_check_configuration import credentials_of
from harken.run.worker import Worker
from harken.store import Store
from harken.tickets import TrackerSettings, tracker_of
from harken.tickets.comment_marks import receipt_key
from harken.tickets.projector import Projector
from harken.tickets.recovery_after_store_loss import AdoptionResult
from harken.tickets.run_control import RunControl
from harken.tickets.write_pace import WritePace, WritePaces
from harken.timings import Timings

__all__ = ["TicketWork", "signing_key"]

log = structlog.get_logger("harken.app")

LOOK_SECONDS = 5.0
KEY_SECONDS = 60.0
"""A key that could not be read is asked for again after so long."""


class Lease(Protocol):
    async def keep(self) -> bool: ...


def signing_key(loaded: Loaded) -> bytes:
    """The key of what we sign on tickets. Raise Misconfigured if there is none and none can be made."""
    return receipt_key(credentials_of(loaded.directory).signing_secret())


async def _read_key(loaded: Loaded) -> bytes:
    return await asyncio.to_thread(signing_key, loaded)


class TicketWork:
    """Begins when the first tracker is configured. `trouble` says why nothing is shown on tickets; else it is empty.

    Everything that writes to a tracker takes its turn in one pace for each credential.
    """

    def __init__(
        self,
        store: Store,
        factory: Factory,
        committer: Committer,
        worker: Worker,
        clock: Clock,
        key: Callable[[Loaded], Awaitable[bytes]] | None = None,
        timings: Timings = Timings(),
    ) -> None:
        self._store = store
        self._factory = factory
        self._committer = committer
        self._clock = clock
        self._key = key or _read_key
        self._timings = timings
        self._paces = WritePaces(clock)
        self._projector: Projector | None = None
        self.trouble = ""
        self.run_control = RunControl(
            store,
            factory.trackers,
            self._settings,
            clock,
            turn=self._take_turn,
            on_cancelled=worker.check_claims,
            pass_seconds=timings.ticket_runs_round,
        )
        factory.bracket = self.run_control.bracket
        factory.tickets.on_comment = self.run_control.note_comment
        factory.tickets.pace = self._pace_of

    def _settings(self) -> Mapping[str, TrackerSettings]:
        return self._factory.loaded.trackers

    def _pace_of(self, tracker: TrackerSettings) -> WritePace:
        return self._paces.of(tracker.account, tracker.kind)

    def write_pace(self, tracker: str) -> WritePace:
        """The pace of everything that is written with the credential of this tracker."""
        return self._pace_of(self._settings()[tracker])

    async def _take_turn(self, tracker: TrackerSettings, ticket: str) -> None:
        await self._pace_of(tracker).take(ticket)

    async def keep(self, lease: Lease) -> None:
        """Work until cancelled, while the lease is ours."""
        while not self._settings():
            await self._clock.sleep(LOOK_SECONDS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.run_control.keep(lease), name="ticket runs")
            group.create_task((await self._wait_for_key()).keep(lease), name="projector")

    async def _wait_for_key(self) -> Projector:
        while True:
            try:
                return await self.projector()
            except HarkenError as error:
                if not self.trouble:
                    log.error("tickets.no_key", reason=str(error))
                self.trouble = error.message
                await self._clock.sleep(KEY_SECONDS)

    async def projector(self) -> Projector:
        """What shows runs on tickets. Raise Misconfigured without a key to sign with."""
        if self._projector is None:
            key = await self._key(self._factory.loaded)
            self._projector = Projector(
                self._store,
                self._factory.trackers,
                self._settings,
                self._clock,
                key,
                paces=self._paces,
                announce=self._announce,
                redact=lambda text: redact(text, self._factory.secrets()),
                look_seconds=self._timings.projection_round,
            )
            self.trouble = ""
        return self._projector

    async def adopt(self, tracker: str) -> AdoptionResult:
        """Rebuild the memory of a tracker's tickets from what is on them."""
        return await (await self.projector()).adopt(tracker)

    def note_commit(self, feed: str) -> None:
        """Events of a tracker were committed: a run may have begun, or be wanted no more."""
        if tracker_of(feed):
            self.run_control.nudge()
            if self._projector is not None:
                self._projector.nudge()

    async def _announce(self, event: Event) -> None:
        await self._committer.push(INTERNAL, [event], Read(now=self._clock.now()))
