"""JSON-RPC 2.0 with a program over its stdin and stdout, a line for each message, one question at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from itertools import count
from typing import Any, TypeVar

import msgspec
import structlog

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.kit.subprocesses import Child, Program, start_program
from harken.source import Host

__all__ = ["PROTOCOL", "Conversation", "UnknownMethod", "shaped"]

log = structlog.get_logger("harken.services")

PROTOCOL = 1
TRANSIENT, PERMANENT, CONFIG, NO_SUCH_METHOD = -32001, -32002, -32602, -32601
FAREWELL_SECONDS = 2.0
_LONGEST_WAIT = 86_400.0
_LONGEST_MESSAGE = 300

T = TypeVar("T")


class UnknownMethod(RetryLater):
    """The program does not know what it was asked; some questions it need not know."""


class Failed(msgspec.Struct, frozen=True):
    """The error of a JSON-RPC answer."""

    code: int
    message: str = ""
    data: Any = None


class Answer(msgspec.Struct, frozen=True):
    """A line from the program: an answer, or a notification where it has a method."""

    id: int | str | None = None
    result: Any = msgspec.UNSET
    error: Failed | None = None
    method: str = ""


class Greeting(msgspec.Struct, frozen=True):
    """What a program says to `initialize`."""

    name: str = ""
    protocol: int = PROTOCOL
    identity: str = ""


class Conversation:
    """Starts the program when something is asked and it does not run. One that fails to answer is ended."""

    def __init__(self, program: Program, host: Host, *, timeout: float, config: Mapping[str, Any]) -> None:
        self._program = program
        self._host = host
        self._timeout = timeout
        self._config = config
        self._numbers = count(1)
        self._asking = ""
        self._alone = asyncio.Lock()
        self.child: Child | None = None

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """The program's result. An error of its own is raised by what it means; one it cannot tell ends it."""
        async with self._alone:
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._asked(method, params)
            except TimeoutError:
                await self.end()
                message = f"{self._program.name} did not answer {self._asking} within {self._timeout:g} s and was ended"
                raise RetryLater(message, reason="timeout") from None
            except NeedsAttention:
                # a person will change something, which a program that runs on may not notice
                await self.end()
                raise
            except asyncio.CancelledError:
                # the answer to a question that nobody asks any more would be taken for that to the next one
                await self.end()
                raise

    async def leave(self) -> None:
        """Say goodbye; one that does not listen is ended. Nothing of it is left."""
        child = self.child
        if child is None or not child.alive:
            return await self.end()
        with contextlib.suppress(TimeoutError, HarkenError):
            async with asyncio.timeout(FAREWELL_SECONDS), self._alone:
                await self._exchange(child, "shutdown", {})
        self.child = None
        return await child.end(patience=FAREWELL_SECONDS)

    async def end(self) -> None:
        """End it at once."""
        child, self.child = self.child, None
        if child is not None:
            await child.end()

    async def _asked(self, method: str, params: Mapping[str, Any]) -> Any:
        if self.child is None or not self.child.alive:
            # one that ended between two questions took nothing with it
            await self.end()
            self.child = await start_program(self._program, self._host)
            try:
                await self._greet(self.child)
            except BaseException:
                # one that was not greeted is not asked either
                await self.end()
                raise
        return await self._exchange(self.child, method, params)

    async def _greet(self, child: Child) -> None:
        params = {"protocol": PROTOCOL, "job_id": self._host.feed, "config": self._config}
        said = shaped(await self._exchange(child, "initialize", params), Greeting, self._program.name, "initialize")
        if said.protocol != PROTOCOL:
            message = f"{self._program.name} speaks version {said.protocol} of the protocol, and we speak {PROTOCOL}"
            raise NeedsAttention(message, fix="Install a version of it that fits this Harken")
        if said.identity and said.identity != self._host.identity:
            log.warning("exec.identity", feed=self._host.feed, wanted=said.identity, configured=self._host.identity)

    async def _exchange(self, child: Child, method: str, params: Mapping[str, Any]) -> Any:
        number, self._asking = next(self._numbers), method
        question = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        await child.write_line(msgspec.json.encode(question))
        while (line := await child.read_line()) is not None:
            answer = await self._understood(child, line)
            if answer.method and answer.id is None:
                log.debug("exec.notified", program=self._program.name, method=answer.method[:60])
                continue
            if answer.error is not None:
                raise _meaning(answer.error, self._program, method)
            if answer.id == number and answer.result is not msgspec.UNSET:
                return answer.result
            await self.end()
            raise RetryLater(f"{self._program.name} answered {method} with neither a result nor an error of its id")
        crash = await child.crash_error()
        self.child = None
        raise crash

    async def _understood(self, child: Child, line: bytes) -> Answer:
        try:
            return msgspec.json.decode(line, type=Answer)
        except (msgspec.MsgspecError, RecursionError):
            await self.end()
            fix = "Only answers belong on stdout: let it write everything else to stderr"
            raise RetryLater(f"{self._program.name} wrote a line that is no JSON-RPC answer", fix=fix) from None


def shaped(value: Any, kind: type[T], name: str, method: str) -> T:
    """The result in the shape that the protocol asks for."""
    try:
        return msgspec.convert(value if value is not None else {}, kind)
    except msgspec.ValidationError as error:
        # its text names types and places, never values
        message = f"{name} answered {method} in another shape than the protocol's: {error}"
        raise NeedsAttention(message, fix="See docs/reference/services/exec.md") from None


def _meaning(error: Failed, program: Program, method: str) -> HarkenError:
    """What is to follow from an error of the program: sorted by its code, never by its words."""
    words = program.redact(error.message)[:_LONGEST_MESSAGE] or "without a word"
    message = f"{program.name} answered {method} with error {error.code}: {words}"
    data = error.data if isinstance(error.data, dict) else {}
    if error.code == NO_SUCH_METHOD:
        return UnknownMethod(message)
    if error.code in (PERMANENT, CONFIG):
        own = "Check the config that the program is given" if error.code == CONFIG else "See what the program asks for"
        fix = data.get("fix")
        return NeedsAttention(message, fix=program.redact(fix)[:_LONGEST_MESSAGE] if isinstance(fix, str) else own)
    after = data.get("retry_after") if error.code == TRANSIENT else None
    asked = isinstance(after, int | float) and not isinstance(after, bool) and 0 <= after <= _LONGEST_WAIT
    return RetryLater(message, after=float(after) if asked and after is not None else None)
