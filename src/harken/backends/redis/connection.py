"""The connection to Redis: a pool that reconnects, Lua scripts by name, and errors that say what to do about them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, NoReturn

import msgspec
import structlog

from harken.backends.codec import clock_micros
from harken.backends.redis.codec import Arguments, refusal
from harken.clock import Clock
from harken.errors import Misconfigured, StoreBusy, StoreUnavailable
from harken.extras import how_to_install

try:
    from redis.asyncio import Redis
    from redis.asyncio.connection import ConnectionPool
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AuthenticationError,
        AuthorizationError,
        BusyLoadingError,
        ConnectionError,
        MovedError,
        NoPermissionError,
        NoScriptError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisError,
        ResponseError,
        TimeoutError,
    )
except ImportError:
    raise Misconfigured("the driver for Redis is missing", fix=how_to_install("redis")) from None

__all__ = ["Connection", "script"]

log = structlog.get_logger("harken.store")

CONNECTIONS = 16
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
CONFIRM_MS = 5_000
"""How long a write waits for the replicas."""


class Connection:
    """Sends scripts and commands. `replicas` is how many replicas must have a write on disk before it counts.

    `trouble` says why the store cannot be used now, empty if it can. `waiting` counts requests without an answer yet;
    beyond `limit` of them requests are refused. `on_write` is called with the verb of each script that wrote.
    """

    def __init__(
        self, url: str, prefix: str, clock: Clock | None, *, limit: int = 10_000, readonly: bool = False
    ) -> None:
        self.redis: Redis = Redis(connection_pool=_pool(url))
        self.readonly = readonly
        self.prefix = prefix
        self.clock = clock
        self.replicas = 0
        self.trouble = ""
        self.waiting = 0
        self.on_write: Callable[[str], None] = lambda verb: None
        self._refuses_writes = False
        self._limit = limit
        self._requests = asyncio.Semaphore(CONNECTIONS)

    def key(self, name: str) -> bytes:
        return f"{self.prefix}{name}".encode()

    @property
    def clock_us(self) -> int | None:
        """The time of the clock in microseconds; None if the server's time counts."""
        return clock_micros(self.clock.time()) if self.clock else None

    async def write(self, verb: str, args: Arguments, instructions: Sequence[Any]) -> Any:
        """Run the script of a verb; return when its writes are on as many disks as the server can confirm."""
        if self.readonly:
            raise Misconfigured("the store is open for reading only", fix="Start Harken: harken start")
        reply = await self._run_script(verb, args, instructions, self.replicas, writes=True)
        self.on_write(verb)
        return reply

    async def query(self, verb: str, args: Arguments, instructions: Sequence[Any]) -> Any:
        """Run a script that only reads."""
        return await self._run_script(verb, args, instructions, 0, writes=False)

    async def _run_script(
        self, verb: str, args: Arguments, instructions: Sequence[Any], replicas: int, *, writes: bool
    ) -> Any:
        found = script(verb)
        now = self.clock_us
        words = (1, self.prefix, "" if now is None else str(now), *args.encode(instructions))
        try:
            reply = await self._send([("EVALSHA", found.sha, *words)], replicas, writes=writes)
        except NoScriptError:
            # the server has not seen the script since its start
            reply = await self._send([("EVAL", found.text, *words)], replicas, writes=writes)
        error = refusal(reply[0])
        if error is not None:
            raise error
        return reply[0]

    async def execute(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Run plain commands in one round trip, not as a transaction. Writes are not confirmed by replicas."""
        if not commands:
            return []
        return await self._send(commands, 0)

    async def _send(self, commands: Sequence[tuple[Any, ...]], replicas: int, *, writes: bool = False) -> list[Any]:
        if self.waiting >= self._limit:
            raise StoreBusy(f"the store has {self.waiting} requests waiting", after=1.0)
        self.waiting += 1
        try:
            async with self._requests, asyncio.timeout(ANSWER_SECONDS):
                replies = await self._exchange(commands, replicas)
        except NoScriptError:
            raise
        except (RedisError, OSError) as error:
            self._fail(error)
        finally:
            self.waiting -= 1
        if self.trouble:
            await self._recover(writes)
        return replies

    async def _exchange(self, commands: Sequence[tuple[Any, ...]], replicas: int) -> list[Any]:
        if len(commands) == 1 and not replicas:
            return [await self.redis.execute_command(*commands[0])]  # type: ignore[no-untyped-call]
        pipeline = self.redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        if replicas:
            # WAITAOF makes the replicas report their disk position at once. Sent right behind the write they would
            # report before they have it, and again only a second later: so wait until they have it
            pipeline.execute_command("WAIT", replicas, CONFIRM_MS // 2)
            pipeline.execute_command("WAITAOF", 1, replicas, CONFIRM_MS // 2)
        replies = await pipeline.execute()
        if replicas:
            _require_confirmed(replies.pop(), replicas)
            replies.pop()
        return list(replies)

    async def _recover(self, wrote: bool) -> None:
        """Clear `trouble` after an answer. If only writes failed, a write has to succeed first."""
        if self._refuses_writes:
            if not wrote:
                return
            try:
                await self._exchange([("SET", self.key("probe"), "1")], 0)
            except (RedisError, OSError):
                return  # still in trouble; the next write raises the reason
        self.trouble = ""
        log.info("store.up")

    def _fail(self, error: Exception) -> NoReturn:
        translated = _translate(error)
        if isinstance(translated, StoreUnavailable) and translated.message != self.trouble:
            self._refuses_writes = isinstance(error, (ResponseError, _Unconfirmed))
            self.trouble = translated.message
            log.error("store.down", reason=translated.message)
        raise translated from None

    async def close(self) -> None:
        await self.redis.aclose(close_connection_pool=True)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A server that has seen the text runs it by its `sha`."""

    text: str
    sha: str


class _LuaFile(msgspec.Struct, frozen=True, kw_only=True):
    """`verbs` has, for each function that can be called, the libraries it needs and its text."""

    needs: tuple[str, ...]
    library: str
    verbs: dict[str, tuple[tuple[str, ...], str]]


@cache
def script(verb: str) -> Script:
    """The script of a verb `file.function`: the libraries that it needs, the function, and a call of it.

    In a Lua file `-- verb: NAME` begins a function that can be called. The text above the first one is a library.
    `-- with: FILE...` names the files whose libraries the library or the verb needs.
    """
    name, function = verb.split(".")
    needs, body = _lua_file(name).verbs[function]
    parts: dict[str, str] = {}
    for need in (name, *needs):
        _add_libraries(need, parts)
    text = "".join([*parts.values(), body, f"return {function}(unpack(args))\n"])
    return Script(text=text, sha=sha1(text.encode(), usedforsecurity=False).hexdigest())


def _add_libraries(name: str, parts: dict[str, str]) -> None:
    """Add the library of a file, behind those that it needs."""
    if name not in parts:
        found = _lua_file(name)
        for need in found.needs:
            _add_libraries(need, parts)
        parts[name] = found.library


@cache
def _lua_file(name: str) -> _LuaFile:
    text = files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")
    library, *sections = re.split(r"^-- verb: ", text, flags=re.MULTILINE)
    verbs = {}
    for section in sections:
        verb, body = section.split("\n", 1)
        verbs[verb] = (_needs(body), body)
    return _LuaFile(needs=_needs(library), library=library, verbs=verbs)


def _needs(text: str) -> tuple[str, ...]:
    first = text.split("\n", 1)[0]
    return tuple(first.removeprefix("-- with: ").split()) if first.startswith("-- with: ") else ()


def _pool(url: str) -> ConnectionPool:
    try:
        return ConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS + 4,
            socket_connect_timeout=CONNECT_SECONDS,
            # `_send` has the timeout: the driver's own may lose a cancellation (see harken.task_cancellation)
            socket_timeout=None,
            socket_keepalive=True,
            # never repeat a request: a write without an answer may have happened
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError:
        fix = "Write redis://user:password@host:6379/0, or rediss:// for TLS"
        raise Misconfigured("the store's URL is not one of Redis", fix=fix) from None


class _Unconfirmed(RedisError):
    """The write happened, but fewer disks than wanted have confirmed it."""


def _require_confirmed(disks: Sequence[int], replicas: int) -> None:
    if disks[0] < 1 or disks[1] < replicas:
        raise _Unconfirmed(f"{disks[1]} of {replicas} replicas")


def _translate(error: Exception) -> StoreUnavailable | StoreBusy:
    kind = type(error).__name__
    if isinstance(error, _Unconfirmed):
        fix = "Check the replicas: each needs appendonly yes. What was not confirmed is written again"
        return StoreUnavailable("the replicas of Redis did not confirm a write in time", after=5.0, fix=fix)
    if isinstance(error, OutOfMemoryError):
        fix = "Raise maxmemory or keep events for fewer days; nothing was lost"
        return StoreUnavailable("Redis has no memory left (maxmemory)", after=5.0, fix=fix)
    if isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)):
        fix = "Check user and password in the store's URL, and what the user may do"
        return StoreUnavailable(f"Redis does not let us in ({kind})", after=30.0, fix=fix)
    if isinstance(error, ReadOnlyError):
        fix = "Name the primary in the store's URL"
        return StoreUnavailable("this Redis is a replica and takes no writes", after=5.0, fix=fix)
    if isinstance(error, BusyLoadingError):
        return StoreUnavailable("Redis is loading its data", after=2.0)
    if isinstance(error, (ConnectionError, TimeoutError, OSError)):
        return StoreUnavailable(f"Redis cannot be reached ({kind})", after=5.0, fix="Check the server and the network")
    if isinstance(error, MovedError):
        fix = f"Name that node in the store's URL: {error.host}:{error.port}"
        return StoreUnavailable("another node of this Redis Cluster holds the store", after=30.0, fix=fix)
    return _translate_refusal(error)


def _translate_refusal(error: Exception) -> StoreUnavailable | StoreBusy:
    # the first word of a message is the code of the error
    code = str(error).split(" ", 1)[0] if isinstance(error, ResponseError) else ""
    if code == "BUSY":
        return StoreBusy("Redis is busy with a script of someone else", after=1.0)
    if code == "MISCONF":
        return StoreUnavailable("Redis cannot write to its disk", after=5.0, fix="Look into the log of Redis")
    if code == "NOREPLICAS":
        fix = "Check the replicas (min-replicas-to-write)"
        return StoreUnavailable("Redis has too few replicas to take writes", after=5.0, fix=fix)
    return StoreUnavailable(f"Redis refused a command ({type(error).__name__}: {error})", after=5.0)
