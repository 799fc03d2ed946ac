"""Any Singer tap: its records become events, and its state is the cursor."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, Literal

import msgspec
from pydantic import Field, SecretStr, field_validator, model_validator

from harken.errors import HarkenError, RetryLater
from harken.kit import QueryModel, dump_cursor, load_cursor
from harken.kit.subprocesses import Program, secrets_in, start_program
from harken.services.singer.catalog import read_catalog, select_streams
from harken.services.singer.process import PATIENCE_SECONDS, PrivateDirectory, TapRun
from harken.source import Batch, Cursor, Host, Plugin

__all__ = ["Query", "TapSource", "plugin"]

LONGEST_CATALOG = 32 * 1024 * 1024


class Query(QueryModel):
    """Which tap to run, and its configuration."""

    tap: list[str] = Field(min_length=1, description="the tap and its arguments; no shell is used")
    config: dict[str, Any] = Field(default_factory=dict, description="the tap's configuration, given to it in a file")
    streams: list[str] = Field(default_factory=list, description="streams to select; empty: as the tap decides")
    catalog: dict[str, Any] | None = Field(None, description="a whole catalog instead of streams")
    catalog_option: Literal["--catalog", "--properties"] = Field(
        "--catalog", description="--properties for old taps that do not know --catalog"
    )
    key: dict[str, list[str]] = Field(
        default_factory=dict, description="by stream: the fields that identify a row, where the tap tells none"
    )
    state: dict[str, Any] | None = Field(None, description="the state to start from at the first read")
    env: dict[str, SecretStr] = Field(default_factory=dict, description="variables for the tap; never shown again")
    timeout: float = Field(300.0, gt=0, le=86_400, description="seconds of silence after which the tap is ended")
    max_runtime: float = Field(3600.0, gt=0, le=604_800, description="seconds that one run of the tap may take")

    @field_validator("tap")
    @classmethod
    def _is_program(cls, value: list[str]) -> list[str]:
        if not value[0].strip() or any("\0" in word for word in value):
            raise ValueError("must begin with a program, and hold no NUL")
        return value

    @model_validator(mode="after")
    def _not_both(self) -> Query:
        if self.streams and self.catalog is not None:
            raise ValueError("name streams or a catalog, not both")
        return self


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tap's state. `page` numbers the pages of one run, so that a page that was not committed is noticed."""

    state: Any = None
    page: int = 0


class TapSource:
    """Runs the tap once per read, over all its pages; after a failure the tap is run again from the last state."""

    def __init__(self, query: Query, host: Host) -> None:
        self._query = query
        self._host = host
        self._env = {name: value.get_secret_value() for name, value in query.env.items()}
        self._secrets = frozenset([*secrets_in(self._env), *secrets_in(query.config)])
        self._name = self._program().name
        self._catalog: dict[str, Any] | None = query.catalog
        self._starting: asyncio.Task[TapRun] | None = None
        self._run: TapRun | None = None
        self._expected: Cursor = None

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        if cursor != self._expected:
            # the last page was not committed, or the cursor was reset
            await self.aclose()
        place = load_cursor(cursor, Place) or Place()
        run = self._run or await self._start(place)
        if run is None:
            self._expected = cursor
            return Batch(cursor=cursor, more=True)
        try:
            events = await run.page()
        except HarkenError:
            self._run = None
            raise
        following = Place(state=run.state, page=0 if run.finished else place.page + 1)
        self._run = None if run.finished else run
        self._expected = dump_cursor(following)
        return Batch(events=events, cursor=self._expected, more=not run.finished)

    async def aclose(self) -> None:
        """End the tap if it runs."""
        starting, self._starting = self._starting, None
        run, self._run = self._run, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait({starting})
            run = None if starting.cancelled() or starting.exception() else starting.result()
        if run is not None:
            await run.end()

    async def _start(self, place: Place) -> TapRun | None:
        """The run, or None while it is being prepared: discovering a tap's streams may take long."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._prepare(place), name=f"start {self._name}")
        starting = self._starting
        done, _ = await asyncio.wait({starting}, timeout=PATIENCE_SECONDS)
        if not done:
            return None
        self._starting = None
        if starting.cancelled():
            raise RetryLater(f"{self._name} was stopped while it was starting")
        self._run = starting.result()
        return self._run

    async def _prepare(self, place: Place) -> TapRun:
        query, directory = self._query, PrivateDirectory()
        try:
            words = ["--config", directory.put("config.json", query.config)]
            if self._catalog is None and query.streams:
                self._catalog = select_streams(await self._discover(words), query.streams, self._name)
            if self._catalog is not None:
                words += [query.catalog_option, directory.put("catalog.json", self._catalog)]
            state = place.state if place.state is not None else query.state
            if state is not None:
                words += ["--state", directory.put("state.json", state)]
            child = await start_program(self._program(*words), self._host)
        except BaseException:
            directory.remove()
            raise
        clock, limits = self._host.clock, {"silence": query.timeout, "longest": query.max_runtime}
        return TapRun(child, directory, clock, state=state, keys=query.key, **limits)

    async def _discover(self, words: list[str]) -> dict[str, Any]:
        child = await start_program(self._program(*words, "--discover"), self._host)
        text = bytearray()
        try:
            async with asyncio.timeout(self._query.timeout):
                while (line := await child.read_line()) is not None and len(text) < LONGEST_CATALOG:
                    text += line
                if await child.exit_code() != 0:
                    raise await child.crash_error()
        except TimeoutError:
            message = f"{self._name} --discover took more than {self._query.timeout:g} s and was ended"
            raise RetryLater(message, reason="timeout") from None
        finally:
            await child.end()
        return read_catalog(bytes(text), self._name)

    def _program(self, *words: str) -> Program:
        return Program(
            command=(*self._query.tap, *words),
            env=self._env,
            directory=self._host.directory,
            secrets=self._secrets,
        )


def _source(query: Query, account: object, host: Host) -> TapSource:
    return TapSource(query, host)


plugin = Plugin(
    kind="singer",
    summary="Any Singer tap, run as a program",
    docs="reference/services/singer.md",
    query=Query,
    source=_source,
    identity="change",
)
