"""One run of a tap. The process lives on between two pages; its full pipe blocks it meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.event import Event
from harken.kit.subprocesses import Child
from harken.services.singer.event import Stream, event_of, parse_message, stream_of

__all__ = ["PATIENCE_SECONDS", "PrivateDirectory", "TapRun"]

log = structlog.get_logger("harken.services")

# below the engine's limit for a page: if no record came until then, the page is empty
PATIENCE_SECONDS = 5.0
MOST_RECORDS = 500
MOST_BYTES = 4 * 1024 * 1024
_LOCK = "in-use"


class TapRun:
    """`state` is the tap's last STATE; `finished` once it has exited with code 0."""

    def __init__(
        self,
        child: Child,
        directory: PrivateDirectory,
        clock: Clock,
        *,
        state: Any,
        keys: Mapping[str, Sequence[str]],
        silence: float,
        longest: float,
    ) -> None:
        self._child = child
        self._directory = directory
        self._clock = clock
        self._name = child.program.name
        self._keys = keys
        self._silence, self._longest = silence, longest
        self._began, self._silent = clock.monotonic(), 0.0
        self._streams: dict[str, Stream] = {}
        # records that were read but not returned yet: a cancelled poll loses none of them
        self._events: list[Event] = []
        self._bytes = 0
        self._failure: HarkenError | None = None
        self.state = state
        self.finished = False

    async def page(self) -> list[Event]:
        """The next records, perhaps none. A failure is raised after all records before it were returned."""
        if self._failure is None:
            try:
                await self._read_lines()
            except HarkenError as error:
                self._failure = error
                await self.end()
        if self._failure is not None and not self._events:
            raise self._failure
        events, self._events, self._bytes = self._events, [], 0
        return events

    async def end(self) -> None:
        """End the tap, and remove the files that it was given."""
        try:
            await self._child.end()
        finally:
            self._directory.remove()

    async def _read_lines(self) -> None:
        until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        if self._clock.monotonic() - self._began > self._longest:
            message = f"{self._name} ran for more than {self._longest:g} s and was ended"
            raise RetryLater(message, reason="timeout", fix="Raise max_runtime if it needs that long")
        while len(self._events) < MOST_RECORDS and self._bytes < MOST_BYTES:
            try:
                line = await self._line(until)
            except TimeoutError:
                return
            if line is None:
                await self._finish()
                return
            if line.strip():
                self._handle(line)

    async def _line(self, until: float) -> bytes | None:
        """The next line. Silence counts only while we read: a tap whose pipe is full cannot write."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(min(until, began + self._silence - self._silent)):
                line = await self._child.read_line()
        except TimeoutError:
            self._silent += asyncio.get_running_loop().time() - began
            if self._silent >= self._silence:
                message = f"{self._name} wrote nothing for {self._silence:g} s and was ended"
                raise RetryLater(message, reason="timeout") from None
            raise
        self._silent = 0.0
        return line

    def _handle(self, line: bytes) -> None:
        message = parse_message(line, self._name)
        if message.type == "RECORD":
            self._events.append(event_of(message, self._streams.get(message.stream, Stream()), self._name))
            self._bytes += len(line)
        elif message.type == "STATE":
            self.state = message.value
        elif message.type == "SCHEMA":
            self._streams[message.stream] = stream_of(message, self._keys)
        elif message.type == "BATCH":
            fix = "Take batch_config out of the tap's config"
            raise NeedsAttention(f"{self._name} sends its records in files, which is not supported", fix=fix)
        elif message.type != "ACTIVATE_VERSION":
            log.debug("singer.unknown_message", tap=self._name, type=message.type[:60])

    async def _finish(self) -> None:
        if await self._child.exit_code() != 0:
            raise await self._child.crash_error()
        self.finished = True
        await self.end()


class PrivateDirectory:
    """A directory readable only by us (0700). Those that a killed process left behind are removed by the next one."""

    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir()) / f"harken-singer-{os.getuid()}"
        parent.mkdir(mode=0o700, exist_ok=True)
        if parent.is_symlink() or parent.stat().st_uid != os.getuid():
            # another user created it first, and could read our files
            parent = Path(tempfile.mkdtemp(prefix="harken-singer-"))
        _remove_abandoned(parent)
        self.path = Path(tempfile.mkdtemp(dir=parent))
        # the kernel releases the lock when we die; the file gets its name only once it is locked
        self._lock = os.open(self.path / "claimed", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(self.path / "claimed", self.path / _LOCK)

    def put(self, name: str, value: Any) -> str:
        """Write the value as JSON and return the file's path."""
        path = self.path / name
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.encode(value))
        return str(path)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def _remove_abandoned(parent: Path) -> None:
    for left in parent.iterdir():
        with contextlib.suppress(OSError), open(left / _LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
