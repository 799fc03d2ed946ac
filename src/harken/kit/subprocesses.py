"""Programs that a service runs: without a shell, with a minimal environment, bounded, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from harken.clock import Clock
from harken.errors import NeedsAttention, Refused, RetryLater
from harken.http.known_secret_redaction import redact
from harken.source import Host

__all__ = ["LONGEST_LINE", "Child", "Program", "secrets_in", "start_program"]

log = structlog.get_logger("harken.services")

LONGEST_LINE = 8 * 1024 * 1024
GRACE_SECONDS = 2.0
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")
_DIE_WITH_PARENT = str(Path(__file__).with_name("die_with_parent.py"))
_SECRET_NAME = re.compile(r"auth|cookie|credential|dsn|key|passw|secret|signature|token|url", re.IGNORECASE)
_QUERY_STRING = re.compile(r"\?[\w.%\[\]-]+=[^\s\"')]*")
_CHUNK = 65_536
_KEPT_LINES, _LONGEST_KEPT = 2, 300
_LINES_PER_SPAN, _SPAN_SECONDS = 20, 10.0


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to run. `env` is added to a minimal environment; nothing else is inherited. `secrets` stay out of logs."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    directory: str = ""
    secrets: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name for errors: that of the script where there is one. Other arguments may hold secrets."""
        script = self.command[1] if len(self.command) > 1 else ""
        is_script = bool(script) and os.path.isfile(os.path.join(self.directory, script))
        return os.path.basename(script if is_script else self.command[0])

    def environment(self) -> dict[str, str]:
        return {**{name: os.environ[name] for name in _INHERITED if name in os.environ}, **self.env}

    def redact(self, text: str) -> str:
        """Return its output without the secrets, and without the query strings of URLs."""
        return _QUERY_STRING.sub("?***", redact(text, self.secrets))


class Child:
    """A running program. Its process group ends with it, and on Linux it ends when our process does."""

    def __init__(self, program: Program, process: asyncio.subprocess.Process, clock: Clock) -> None:
        assert process.stdin and process.stdout and process.stderr
        self.program = program
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self._stderr = _Stderr(program, clock)
        self._stderr_task = asyncio.create_task(self._stderr.read(process.stderr), name=f"stderr of {program.name}")

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def write_line(self, line: bytes) -> None:
        # a program that closed its input is noticed when its output is read
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._in.write(line + b"\n")
            await self._in.drain()

    async def read_line(self) -> bytes | None:
        """Return its next line; None at the end. Cancelling loses nothing. A line that is too long ends the program."""
        try:
            return (await self._out.readuntil(b"\n")).rstrip(b"\r\n")
        except asyncio.IncompleteReadError as error:
            return error.partial or None
        except asyncio.LimitOverrunError:
            await self.end()
            size = f"{LONGEST_LINE // 1024 // 1024} MiB"
            fix = "Let it write less at a time"
            raise NeedsAttention(f"{self.program.name} wrote a line of more than {size}", fix=fix) from None

    async def exit_code(self) -> int:
        """Return its exit code, once it has closed its output. End it if it does not exit by itself."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._process.wait()
        await self.end()
        return await self._process.wait()

    async def crash_error(self) -> RetryLater:
        """Return the error for a program that ended although it was still needed."""
        code = await self.exit_code()
        how = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        output = f": {self.last_output}" if self.last_output else ""
        return RetryLater(f"{self.program.name} {how}{output}")

    @property
    def last_output(self) -> str:
        """The end of its stderr, without secrets: the last lines mostly tell what went wrong."""
        return " | ".join(self._stderr.last)[-_LONGEST_KEPT:]

    async def end(self, *, patience: float = 0.0) -> None:
        """End it and all that it started. Its input is closed, and it has `patience` seconds to exit by itself."""
        self._in.close()
        try:
            if patience:
                await self._wait(patience)
            if self.alive:
                self._signal(signal.SIGTERM)
                await self._wait(GRACE_SECONDS)
        finally:
            # also when it has ended: it may have started others
            self._signal(signal.SIGKILL)
        await self._process.wait()
        await self._drain()

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()

    async def _drain(self) -> None:
        """Read what is left in the pipes, so that they close. A process that left the group may hold them open."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                while await self._out.read(_CHUNK):
                    pass
                await asyncio.wait({self._stderr_task})
        self._stderr_task.cancel()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


async def start_program(program: Program, host: Host) -> Child:
    """Start the program. Raise Refused if the configuration does not allow programs."""
    if not host.allow_programs:
        fix = "Set services.allow_programs: true in harken.yaml to allow them"
        raise Refused(f"services may not run programs such as {program.name}", fix=fix)
    env = program.environment()
    command = [_find_executable(program, env), *program.command[1:]]
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", _DIE_WITH_PARENT, str(os.getpid()), *command]
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=env,
            cwd=program.directory or None,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=LONGEST_LINE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        message = f"{program.name} could not be started ({type(error).__name__})"
        raise RetryLater(message, fix="Check the command, that it may be executed, and its directory") from None
    return Child(program, process, host.clock)


def secrets_in(value: Any, name: str = "") -> Iterator[str]:
    """Yield the texts of a configuration whose names say that they are secret."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from secrets_in(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from secrets_in(inner, name)
    elif isinstance(value, str) and _SECRET_NAME.search(name):
        yield value


def _find_executable(program: Program, env: Mapping[str, str]) -> str:
    name = program.command[0]
    if os.path.dirname(name):
        name = os.path.join(program.directory, os.path.expanduser(name))
    found = shutil.which(name, path=env.get("PATH"))
    if found is None:
        fix = "Check the command; a relative path starts at the directory of harken.yaml"
        raise NeedsAttention(f"there is no program {program.command[0]} that may be executed", fix=fix)
    return os.path.abspath(found)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Stderr:
    """What a program writes to stderr: logged at debug level at a bounded rate; the last lines are kept."""

    def __init__(self, program: Program, clock: Clock) -> None:
        self.last: deque[str] = deque(maxlen=_KEPT_LINES)
        self._program = program
        self._clock = clock
        self._since, self._lines = clock.monotonic(), 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        partial = b""
        while chunk := await stream.read(_CHUNK):
            *lines, partial = (partial + chunk).split(b"\n")
            for line in lines:
                self._note(line)
            # of a line without an end, keep only as much as will be shown
            partial = partial[: 16 * _LONGEST_KEPT]
        self._note(partial)

    def _note(self, line: bytes) -> None:
        # redact before cutting: half a secret would not be found
        text = self._program.redact(line[: 16 * _LONGEST_KEPT].decode("utf-8", "replace")).strip()[:_LONGEST_KEPT]
        if not text:
            return
        self.last.append(text)
        now = self._clock.monotonic()
        if now - self._since >= _SPAN_SECONDS:
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines <= _LINES_PER_SPAN:
            log.debug("program.output", program=self._program.name, line=text)
        elif self._lines == _LINES_PER_SPAN + 1:
            log.debug("program.output_dropped", program=self._program.name, until_seconds=_SPAN_SECONDS)
