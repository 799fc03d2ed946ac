"""The connection to Redis: a pool that reconnects, Lua scripts by name, and errors that say what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, NoReturn

import msgspec
import structlog

from harken.backends.codec import clock_micros
from harken.backends.redis.codec import Ask, refusal
from harken.clock import Clock
from harken.errors import Misconfigured, StoreBusy, StoreUnavailable

__all__ = ["Connection", "Script", "script"]

log = structlog.get_logger("harken.store")


WITH = "-- with: "


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """`sha` is the name under which a server that has seen the text runs it."""

    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """The whole text of a verb, with what it needs in front."""
    text = _read(name)
    first = text.split("\n", 1)[0]
    assert first.startswith(WITH), f"{name}.lua does not say what it needs"
    whole = "".join([_read(part) for part in first.removeprefix(WITH).split()] + [text])
    return Script(name=name, text=whole, sha=sha1(whole.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")


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
    raise Misconfigured("the driver for Redis is missing", fix="pip install 'harken[redis]'") from None

CONNECTIONS = 16

CONNECT_SECONDS = 5.0

ANSWER_SECONDS = 15.0

CONFIRM_MS = 5_000


class Connection:
    """`replicas`: so many must have a write on disk, beside the primary, before it counts; 0 for none."""

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
        self._turns = asyncio.Semaphore(CONNECTIONS)

    def key(self, name: str) -> bytes:
        return f"{self.prefix}{name}".encode()

    @property
    def _time(self) -> str:
        """What a script takes for now: the server's own time unless a clock was given."""
        return str(clock_micros(self.clock.time())) if self.clock else ""

    async def write(self, verb: str, ask: Ask, instructions: Any) -> Any:
        """Run a verb; return when it is as safe as the server is set up to make it."""
        if self.readonly:
            raise Misconfigured("the store is open for reading only", fix="Start Harken: harken start")
        reply = await self._script(verb, ask, instructions, self.replicas, writes=True)
        self.on_write(verb)
        return reply

    async def look(self, verb: str, ask: Ask, instructions: Any) -> Any:
        """Run a script that only reads."""
        return await self._script(verb, ask, instructions, 0, writes=False)

    async def _script(self, verb: str, ask: Ask, instructions: Any, replicas: int, *, writes: bool) -> Any:
        found = script(verb)
        words = (1, self.prefix, self._time, *ask.arguments(instructions))
        try:
            reply = await self._send([("EVALSHA", found.sha, *words)], replicas, writes=writes)
        except NoScriptError:
            # a server that was restarted, or another one: it has never seen the text
            reply = await self._send([("EVAL", found.text, *words)], replicas, writes=writes)
        error = refusal(reply[0])
        if error is not None:
            raise error
        return reply[0]

    async def read(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Several plain commands in one round trip."""
        if not commands:
            return []
        return await self._send(commands, 0)

    async def _send(self, commands: Sequence[tuple[Any, ...]], replicas: int, *, writes: bool = False) -> list[Any]:
        if self.waiting >= self._limit:
            raise StoreBusy(f"the store has {self.waiting} requests waiting", after=1.0)
        self.waiting += 1
        try:
            async with self._turns, asyncio.timeout(ANSWER_SECONDS):
                replies = await self._exchange(commands, replicas)
        except NoScriptError:
            raise
        except (RedisError, OSError) as error:
            self._fail(error)
        finally:
            self.waiting -= 1
        if self.trouble:
            await self._well(writes)
        return replies

    async def _exchange(self, commands: Sequence[tuple[Any, ...]], replicas: int) -> list[Any]:
        if len(commands) == 1 and not replicas:
            return [await self.redis.execute_command(*commands[0])]  # type: ignore[no-untyped-call]
        line = self.redis.pipeline(transaction=False)
        for command in commands:
            line.execute_command(*command)
        if replicas:
            # a replica tells where its disk is as soon as it is asked: asked right behind the write, that is before
            # the write, and it would only tell again in its next second. Having it, it is past its disk
            line.execute_command("WAIT", replicas, CONFIRM_MS // 2)
            line.execute_command("WAITAOF", 1, replicas, CONFIRM_MS // 2)
        replies = await line.execute()
        if replicas:
            _confirmed(replies.pop(), replicas)
            replies.pop()
        return list(replies)

    async def _well(self, wrote: bool) -> None:
        """An answer came. Where it was writing that failed, only a write that is taken ends the trouble."""
        if self._refuses_writes:
            if not wrote:
                return
            try:
                await self._exchange([("SET", self.key("probe"), "1")], 0)
            except (RedisError, OSError):
                return  # as before; whoever writes next hears why
        self.trouble = ""
        log.info("store.up")

    def _fail(self, error: Exception) -> NoReturn:
        told = _translate(error)
        if isinstance(told, StoreUnavailable) and told.message != self.trouble:
            self._refuses_writes = isinstance(error, (ResponseError, _Unconfirmed))
            self.trouble = told.message
            log.error("store.down", reason=told.message)
        raise told from None

    async def close(self) -> None:
        await self.redis.aclose(close_connection_pool=True)


def _pool(url: str) -> ConnectionPool:
    try:
        return ConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS + 4,
            socket_connect_timeout=CONNECT_SECONDS,
            # answers are waited for below: the driver's own way of it may lose a cancellation (see harken.ending)
            socket_timeout=None,
            socket_keepalive=True,
            # a write whose answer never came may have happened: only the caller knows whether to repeat it
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError:
        fix = "Write redis://user:password@host:6379/0, or rediss:// for TLS"
        raise Misconfigured("the store's URL is not one of Redis", fix=fix) from None


class _Unconfirmed(RedisError):
    """The write is there, but not on as many disks as the promise needs."""


def _confirmed(disks: Sequence[int], replicas: int) -> None:
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
    return _refused(error)


def _refused(error: Exception) -> StoreUnavailable | StoreBusy:
    # the server names its own errors by their first word
    code = str(error).split(" ", 1)[0] if isinstance(error, ResponseError) else ""
    if code == "BUSY":
        return StoreBusy("Redis is busy with a script of someone else", after=1.0)
    if code == "MISCONF":
        return StoreUnavailable("Redis cannot write to its disk", after=5.0, fix="Look into the log of Redis")
    if code == "NOREPLICAS":
        fix = "Check the replicas (min-replicas-to-write)"
        return StoreUnavailable("Redis has too few replicas to take writes", after=5.0, fix=fix)
    return StoreUnavailable(f"Redis refused a command ({type(error).__name__}: {error})", after=5.0)
