"""JSON-RPC 2.0 with a program over its stdin and stdout: one line per message, one request at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from itertools import count
from typing import Any, TypeVar

import msgspec
import structlog

from harken.docs_urls import address_of
from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.kit.subprocesses import Child, Program, start_program
from harken.source import Host

__all__ = ["RpcClient", "UnknownMethod", "expect_shape"]

log = structlog.get_logger("harken.services")

PROTOCOL = 1
TRANSIENT, PERMANENT, CONFIG, NO_SUCH_METHOD = -32001, -32002, -32602, -32601
SHUTDOWN_SECONDS = 2.0
_LONGEST_WAIT = 86_400.0
_LONGEST_MESSAGE = 300

T = TypeVar("T")


class UnknownMethod(RetryLater):
    """The program does not know the method; some methods are optional."""


class RpcError(msgspec.Struct, frozen=True):
    """The error of a JSON-RPC response."""

    code: int
    message: str = ""
    data: Any = None


class RpcMessage(msgspec.Struct, frozen=True):
    """A line from the program: a response, or a notification if it has a method."""

    id: int | str | None = None
    result: Any = msgspec.UNSET
    error: RpcError | None = None
    method: str = ""


class InitializeResult(msgspec.Struct, frozen=True):
    """The result of `initialize`."""

    name: str = ""
    protocol: int = PROTOCOL
    identity: str = ""


class RpcClient:
    """Starts the program for a request if it does not run, and ends it if it fails to answer."""

    def __init__(self, program: Program, host: Host, *, timeout: float, config: Mapping[str, Any]) -> None:
        self._program = program
        self._host = host
        self._timeout = timeout
        self._config = config
        self._numbers = count(1)
        self._method = ""
        self._lock = asyncio.Lock()
        self.child: Child | None = None

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """The program's result. Its errors are raised as ours; a timeout or a malformed answer ends the program."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._request(method, params)
            except TimeoutError:
                await self.end()
                message = f"{self._program.name} did not answer {self._method} within {self._timeout:g} s and was ended"
                raise RetryLater(message, reason="timeout") from None
            except NeedsAttention:
                # a person has to change something, and only a new process is certain to notice
                await self.end()
                raise
            except asyncio.CancelledError:
                # a late answer to this request must not be read as the answer to the next
                await self.end()
                raise

    async def shutdown(self) -> None:
        """Ask the program to shut down, and end it if it does not."""
        child = self.child
        if child is None or not child.alive:
            return await self.end()
        with contextlib.suppress(TimeoutError, HarkenError):
            async with asyncio.timeout(SHUTDOWN_SECONDS), self._lock:
                await self._exchange(child, "shutdown", {})
        self.child = None
        return await child.end(patience=SHUTDOWN_SECONDS)

    async def end(self) -> None:
        """End the program at once."""
        child, self.child = self.child, None
        if child is not None:
            await child.end()

    async def _request(self, method: str, params: Mapping[str, Any]) -> Any:
        if self.child is None or not self.child.alive:
            # a program that ended between two requests is simply started again
            await self.end()
            self.child = await start_program(self._program, self._host)
            try:
                await self._initialize(self.child)
            except BaseException:
                # a program that was not initialized must not get requests
                await self.end()
                raise
        return await self._exchange(self.child, method, params)

    async def _initialize(self, child: Child) -> None:
        params = {"protocol": PROTOCOL, "job_id": self._host.feed, "config": self._config}
        answer = await self._exchange(child, "initialize", params)
        result = expect_shape(answer, InitializeResult, self._program.name, "initialize")
        if result.protocol != PROTOCOL:
            message = f"{self._program.name} speaks version {result.protocol} of the protocol, and we speak {PROTOCOL}"
            raise NeedsAttention(message, fix="Install a version of it that fits this Harken")
        identity = self._host.identity
        if result.identity and result.identity != identity:
            log.warning("exec.identity_differs", feed=self._host.feed, wanted=result.identity, configured=identity)

    async def _exchange(self, child: Child, method: str, params: Mapping[str, Any]) -> Any:
        number, self._method = next(self._numbers), method
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        await child.write_line(msgspec.json.encode(request))
        while (line := await child.read_line()) is not None:
            answer = await self._decode(child, line)
            if answer.method and answer.id is None:
                log.debug("exec.notified", program=self._program.name, method=answer.method[:60])
                continue
            if answer.error is not None:
                raise _to_harken_error(answer.error, self._program, method)
            if answer.id == number and answer.result is not msgspec.UNSET:
                return answer.result
            await self.end()
            raise RetryLater(f"{self._program.name} answered {method} with neither a result nor an error of its id")
        crash = await child.crash_error()
        self.child = None
        raise crash

    async def _decode(self, child: Child, line: bytes) -> RpcMessage:
        try:
            return msgspec.json.decode(line, type=RpcMessage)
        except (msgspec.MsgspecError, RecursionError):
            await self.end()
            fix = "Only answers belong on stdout: let it write everything else to stderr"
            raise RetryLater(f"{self._program.name} wrote a line that is not a JSON-RPC response", fix=fix) from None


def expect_shape(value: Any, kind: type[T], name: str, method: str) -> T:
    """The result, converted to the type that the protocol requires."""
    try:
        return msgspec.convert(value if value is not None else {}, kind)
    except msgspec.ValidationError as error:
        # the error's text names types and positions, never values
        message = f"{name} answered {method} in another shape than the protocol's: {error}"
        raise NeedsAttention(message, fix=f"See {address_of('docs/reference/services/exec.md')}") from None


def _to_harken_error(error: RpcError, program: Program, method: str) -> HarkenError:
    """Our error for one of the program: classified by its code, never by its message."""
    text = program.redact(error.message)[:_LONGEST_MESSAGE] or "no message"
    message = f"{program.name} answered {method} with error {error.code}: {text}"
    data = error.data if isinstance(error.data, dict) else {}
    if error.code == NO_SUCH_METHOD:
        return UnknownMethod(message)
    if error.code in (PERMANENT, CONFIG):
        own = "Check the config that the program is given" if error.code == CONFIG else "See what the program asks for"
        fix = data.get("fix")
        return NeedsAttention(message, fix=program.redact(fix)[:_LONGEST_MESSAGE] if isinstance(fix, str) else own)
    after = data.get("retry_after") if error.code == TRANSIENT else None
    valid = isinstance(after, int | float) and not isinstance(after, bool) and 0 <= after <= _LONGEST_WAIT
    return RetryLater(message, after=float(after) if valid and after is not None else None)
