"""The way into PostgreSQL: migrations under a lock, and a pool that reconnects."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import structlog

from harken.backends.codec import clock_micros
from harken.backends.encryption import AesSeal, PlainSeal, Seal, rewrap, unwrap, wrap
from harken.backends.postgres.errors import is_worth_repeating, refusal, translate
from harken.backends.postgres.transaction import RowCache, Transaction, Withdrawn
from harken.backends.transfer import place_of
from harken.clock import Clock
from harken.errors import Misconfigured, Refused, StoreBusy, StoreUnavailable

__all__ = ["LOOK_UPS", "Database", "Settings", "prepare", "rekey"]

log = structlog.get_logger("harken.store")


LOCK = 0x6861726B656E

"""Whoever changes the schema or the keys holds this advisory lock."""

OLDEST = 130_000

"""The first server version that is still looked after."""


async def prepare(connection: Any, key: str, where: str, *, readonly: bool) -> Seal:
    """Bring the schema up to date and find the seal. Whoever has the wrong key changes nothing."""
    if readonly:
        version = await _version(connection)
        if not version:
            raise Misconfigured(f"there is no store in {where}", fix="Start once: harken start")
        if version < len(_steps()):
            raise Misconfigured("the store was written by an older Harken", fix="Start once: harken start")
        return _seal(await connection.fetchval("SELECT wrapped FROM seal"), key, where)
    async with connection.transaction():
        await _alone(connection)
        known = await _wrapped(connection)
        seal = None if known is None else _seal(known, key, where)
        await _migrate(connection, where)
        return seal or await _first_seal(connection, key)


async def _alone(connection: Any) -> None:
    """Wait for other replicas that start at this moment; what they change may take its time."""
    await connection.execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
    await connection.fetchval("SELECT pg_advisory_xact_lock($1)", LOCK)


def _steps() -> list[str]:
    found = files(__package__).joinpath("migrations").iterdir()
    return sorted(step.name for step in found if step.name.endswith(".sql"))


async def _version(connection: Any) -> int:
    if await connection.fetchval("SELECT to_regclass('harken_migrations') IS NULL"):
        return 0
    return int(await connection.fetchval("SELECT coalesce(max(number), 0) FROM harken_migrations"))


async def _migrate(connection: Any, where: str) -> None:
    """Apply the numbered steps that are missing, all in the caller's transaction."""
    if await connection.fetchval("SELECT current_setting('server_version_num')::int") < OLDEST:
        raise Misconfigured(f"{where} is too old", fix="Use PostgreSQL 13 or newer")
    steps, version = _steps(), await _version(connection)
    if version > len(steps):
        fix = "Use that version, or restore a backup made by this one"
        raise Misconfigured(f"the store was written by a newer Harken (schema {version}, ours {len(steps)})", fix=fix)
    if not version:
        await connection.execute(
            "CREATE TABLE harken_migrations (number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz"
            " NOT NULL DEFAULT clock_timestamp())"
        )
    for number, step in enumerate(steps[version:], start=version + 1):
        await connection.execute(files(__package__).joinpath("migrations", step).read_text())
        await connection.execute("INSERT INTO harken_migrations (number, name) VALUES ($1, $2)", number, step)


async def _wrapped(connection: Any) -> str | None:
    """The store's keys as they are kept, empty for a store without encryption; None before its first start."""
    if not await _version(connection):
        return None
    found: str | None = await connection.fetchval("SELECT wrapped FROM seal")
    return found


def _seal(wrapped: str, key: str, where: str) -> Seal:
    if wrapped and not key:
        raise Misconfigured(f"the store {where} is encrypted", fix="Set HARKEN_ENCRYPTION_KEY to its key")
    if key and not wrapped:
        # other replicas may write it plainly at this moment, and old row versions cannot be wiped
        fix = "Copy it into a new database with the key set (harken store copy), or unset HARKEN_ENCRYPTION_KEY"
        raise Misconfigured(f"the store {where} is not encrypted", fix=fix)
    return AesSeal(*unwrap(key, wrapped)) if wrapped else PlainSeal()


async def _first_seal(connection: Any, key: str) -> Seal:
    """Decide for good whether this store is encrypted."""
    keys = secrets.token_bytes(32), secrets.token_bytes(32)
    wrapped = wrap(key, *keys) if key else ""
    await connection.execute("INSERT INTO seal (wrapped) VALUES ($1)", wrapped)
    return AesSeal(*keys) if key else PlainSeal()


async def rekey(connection: Any, old: str, new: str, where: str) -> None:
    """Wrap the store's two keys with another operator's key; replicas that run keep the keys that they have."""
    async with connection.transaction():
        await _alone(connection)
        wrapped = await _wrapped(connection)
        if not wrapped:
            fix = "Set HARKEN_ENCRYPTION_KEY before the first start of a new database"
            raise Refused(f"the store {where} is not encrypted", fix=fix)
        await connection.execute("UPDATE seal SET wrapped=$1", rewrap(wrapped, old, new))


T = TypeVar("T")

UNDO_SECONDS = 1.0

TRIES = 4

LOOK_UPS = {
    name: "off" for name in ("jit", "enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
}

"""Every verb looks rows up by keys. The planner would rather read a whole table that it believes to be small: a queue
is full at one moment and empty at the next, so that its statistics are always wrong."""

SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How this process uses the server. Seconds are bounds: of a statement, of waiting for a row, of an answer."""

    pool: int = 10
    statement: float = 10.0
    lock: float = 5.0
    answer: float = 15.0
    connect: float = 5.0
    limit: int = 10_000


class Database:
    def __init__(self, url: str, clock: Clock | None, key: str, settings: Settings, *, readonly: bool) -> None:
        self.where = place(url)
        self.shelf = RowCache()
        self.seal: Seal = PlainSeal()
        self.readonly = readonly
        self.trouble = ""
        self.waiting = 0
        self._url = url
        self._clock = clock
        self._key = key
        self._settings = settings
        self._pool: Any = None
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def given_now(self) -> int | None:
        """The instant that our clock was given for; None where the server's own clock counts."""
        return None if self._clock is None else clock_micros(self._clock.time())

    async def connect(self) -> None:
        """Reach the server and bring the schema up to date. Raise Misconfigured where only a person can help."""
        async with self._opening:
            if self._pool is not None:
                return
            if self._closed:
                raise StoreUnavailable("the store is closed")
            try:
                self._pool, self.seal = await self._opened()
            except Exception as error:
                told = refusal(error, self.where)
                self._judge(told)
                raise told from None

    async def _opened(self) -> tuple[Any, Seal]:
        pool = await self._make_pool()
        try:
            async with pool.acquire() as connection:
                return pool, await prepare(connection, self._key, self.where, readonly=self.readonly)
        except BaseException:
            pool.terminate()
            raise

    async def connection_of_its_own(self) -> Any:
        """One beside the pool, which its user closes."""
        try:
            return await driver().connect(self._url, timeout=self._settings.connect, server_settings=self._limits())
        except Exception as error:
            raise refusal(error, self.where) from None

    async def rekey(self, new: str) -> None:
        """Make the store open with another key than ours."""
        connection = await self.connection_of_its_own()
        try:
            await rekey(connection, self._key, new, self.where)
        finally:
            await connection.close()

    def _limits(self) -> dict[str, str]:
        settings = self._settings
        return {
            "application_name": "harken",
            **LOOK_UPS,
            # planning such a statement anew would take as long as executing it
            "plan_cache_mode": "force_generic_plan",
            "statement_timeout": str(round(settings.statement * 1000)),
            "lock_timeout": str(round(settings.lock * 1000)),
            "idle_in_transaction_session_timeout": str(round(settings.answer * 1000)),
            "default_transaction_read_only": "on" if self.readonly else "off",
        }

    async def _make_pool(self) -> Any:
        settings = self._settings
        return await driver().create_pool(
            self._url,
            min_size=0,
            max_size=settings.pool,
            timeout=settings.connect,
            command_timeout=settings.answer,
            reset=_nothing_to_reset,
            server_settings=self._limits(),
        )

    async def write(self, verb: Callable[..., Awaitable[T]], *args: Any, timed: bool = True) -> T:
        """Run the verb in a transaction of its own; return when it is on disk. Without `timed` it asks for the time."""
        self._refuse_writing()
        return await self._persist(lambda connection: self._transact(connection, "BEGIN", verb, args, timed))

    async def read(self, query: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Answer a question from one consistent view."""
        return await self._persist(lambda connection: self._transact(connection, SNAPSHOT, query, args, True))

    async def at_once(self, verb: Callable[..., Awaitable[T]], *args: Any, writes: bool = True) -> T:
        """Run a verb that is a single statement, and so a transaction by itself. It asks for the time itself."""
        if writes:
            self._refuse_writing()

        async def work(connection: Any) -> T:
            return await verb(Transaction(connection, self.seal, self.shelf, self.given_now or 0), *args)

        return await self._persist(work)

    async def _transact(
        self, connection: Any, begin: str, verb: Callable[..., Awaitable[T]], args: tuple[Any, ...], timed: bool
    ) -> T:
        try:
            await self._begin(connection, begin)
            now = self.given_now or 0
            if timed and not now:
                now = await connection.fetchval("SELECT harken_now()")
            tx = Transaction(connection, self.seal, self.shelf, now)
            answer = await verb(tx, *args)
            await connection.execute("COMMIT")
        except asyncio.CancelledError:
            await _undo(connection)
            raise
        except BaseException as error:
            # whatever it was, nothing of it stays; a connection that is gone has undone it already
            if not is_gone(connection) and connection.is_in_transaction():
                await connection.execute("ROLLBACK")
            if isinstance(error, Withdrawn):
                return error.answer  # type: ignore[no-any-return]
            raise
        for one in tx.afterwards:
            one()
        return answer

    async def _begin(self, connection: Any, begin: str) -> None:
        try:
            await connection.execute(begin)
        except Exception:
            if not is_gone(connection):
                raise
            # it died while it lay in the pool, and so did the others: nothing has begun, so another may be taken
            await self._pool.expire_connections()
            raise _Dead from None

    def _refuse_writing(self) -> None:
        if self.readonly:
            raise Misconfigured("the store is open for reading only", fix="Start Harken: harken start")

    async def _persist(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do it again where the server undid it for the sake of another; tell whether the store is well."""
        for attempt in range(1, TRIES + 1):
            try:
                async with self._connection() as connection:
                    answer = await work(connection)
            except Exception as error:
                if attempt < TRIES and (isinstance(error, _Dead) or is_worth_repeating(error)):
                    continue
                told = translate(error, self.where)
                self._judge(told)
                raise told from None
            self._judge(None)
            return answer
        raise AssertionError("the last try returns or raises")

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        if self.waiting >= self._settings.limit:
            raise StoreBusy(f"the store has {self.waiting} verbs waiting", after=1.0)
        if self._pool is None:
            await self.connect()
        self.waiting += 1
        try:
            connection = await self._pool.acquire(timeout=self._settings.answer)
        finally:
            self.waiting -= 1
        try:
            yield connection
        finally:
            await self._pool.release(connection, timeout=self._settings.connect)

    def _judge(self, error: BaseException | None) -> None:
        found = str(error) if isinstance(error, StoreUnavailable | Misconfigured) else ""
        if found == self.trouble or (error is not None and not found):
            return
        self.trouble = found
        if found:
            log.error("store.down", reason=found)
        else:
            log.info("store.up")

    async def close(self) -> None:
        """Let what is under way come to its end, within the time that an answer may take."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            await asyncio.wait_for(pool.close(), self._settings.answer)
        except TimeoutError:
            pool.terminate()

    def abandon(self) -> None:
        """Drop all connections without ceremony, as a dying process does."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()


async def _undo(connection: Any) -> None:
    """Nobody waits for the answer any more. A connection that does not undo it at once is dropped: the server does."""
    try:
        async with asyncio.timeout(UNDO_SECONDS):
            await connection.execute("ROLLBACK")
    except BaseException as error:
        connection.terminate()
        if not isinstance(error, Exception):
            raise


class _Dead(ConnectionError):
    """A connection of the pool was gone before anything was asked of it."""


def place(url: str) -> str:
    """The server and database of a URL. Raise Misconfigured for one of another kind."""
    if urlsplit(url).scheme not in ("postgresql", "postgres"):
        raise Misconfigured("the store's URL must begin with postgresql://")
    return place_of("PostgreSQL", url)


def driver() -> Any:
    try:
        import asyncpg  # type: ignore[import-untyped]
    except ImportError:
        raise Misconfigured("the driver for PostgreSQL is missing", fix="pip install 'harken[postgres]'") from None
    return asyncpg


def is_gone(connection: Any) -> bool:
    try:
        return bool(connection.is_closed())
    except driver().InterfaceError:
        # the pool takes a connection back that has ended, and then it answers no question any more
        return True


async def _nothing_to_reset(connection: Any) -> None:
    """Verbs leave a connection as they found it; the driver's own reset would cost a round trip for each."""
