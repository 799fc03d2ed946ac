"""The database: a pool that reconnects, transactions that are retried, and a schema that is migrated under a lock."""

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
from harken.backends.copy_encryption_and_exclusive_access import place_of
from harken.backends.encryption import AesSeal, PlainSeal, Seal, rewrap, unwrap, wrap
from harken.backends.postgres.errors import is_worth_repeating, refusal, translate
from harken.backends.postgres.notify import Notifier
from harken.backends.postgres.transaction_with_row_cache import Rollback, RowCache, Transaction
from harken.clock import Clock
from harken.errors import Misconfigured, Refused, StoreBusy, StoreUnavailable
from harken.extras import how_to_install

__all__ = ["PLANNER_SETTINGS", "SCHEMA_LOCK", "Database", "DatabaseUser", "Settings", "prepare"]

log = structlog.get_logger("harken.store")

T = TypeVar("T")

SCHEMA_LOCK = 0x6861726B656E
"""The advisory lock of a transaction that changes the schema or the keys."""

OLDEST_VERSION = 130_000
"""The first server version that is still supported by its makers."""

ROLLBACK_SECONDS = 1.0
ATTEMPTS = 4

PLANNER_SETTINGS = {
    name: "off" for name in ("jit", "enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
}
"""Every statement of a store looks rows up by keys. The planner would rather read a whole table that it believes to be
small: a queue is full at one moment and empty at the next, so that its statistics are always wrong."""

SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How this process uses the server.

    `statement`, `lock`, `answer` and `connect` are the most seconds that a statement, the wait for a locked row, an
    answer of the server and a new connection may take. `limit` is how many calls may wait for a connection.
    """

    pool: int = 10
    statement: float = 10.0
    lock: float = 5.0
    answer: float = 15.0
    connect: float = 5.0
    limit: int = 10_000


class Database:
    """Runs functions that take a Transaction first. The first call connects, if `connect` was not called before.

    `trouble` says why the database cannot be used now, `queued` is how many calls wait for a connection.
    """

    def __init__(self, url: str, clock: Clock | None, key: str, settings: Settings, *, readonly: bool) -> None:
        self.place = _describe(url)
        self.seal: Seal = PlainSeal()
        self.readonly = readonly
        self.trouble = ""
        self.queued = 0
        self._url = url
        self._clock = clock
        self._key = key
        self._settings = settings
        self._cache = RowCache()
        self._notifier = Notifier(self.dedicated_connection, self._execute)
        self._pool: Any = None
        self._connecting = asyncio.Lock()
        self._closed = False

    @property
    def given_now(self) -> int | None:
        """The instant of the clock that we were given; None where the server's own clock counts."""
        return None if self._clock is None else clock_micros(self._clock.time())

    async def connect(self) -> None:
        """Connect and bring the schema up to date. Raise Misconfigured where only a person can help."""
        async with self._connecting:
            if self._pool is not None:
                return
            if self._closed:
                raise StoreUnavailable("the store is closed")
            try:
                self._pool, self.seal = await self._open_pool()
            except Exception as error:
                found = refusal(error, self.place)
                self._note_trouble(found)
                raise found from None

    async def _open_pool(self) -> tuple[Any, Seal]:
        settings = self._settings
        pool = await _driver().create_pool(
            self._url,
            min_size=0,
            max_size=settings.pool,
            timeout=settings.connect,
            command_timeout=settings.answer,
            reset=_skip_reset,
            server_settings=self._server_settings(),
        )
        try:
            async with pool.acquire() as connection:
                return pool, await prepare(connection, self._key, self.place, readonly=self.readonly)
        except BaseException:
            pool.terminate()
            raise

    def _server_settings(self) -> dict[str, str]:
        settings = self._settings
        return {
            "application_name": "harken",
            **PLANNER_SETTINGS,
            # planning such a statement anew would take as long as executing it
            "plan_cache_mode": "force_generic_plan",
            "statement_timeout": str(round(settings.statement * 1000)),
            "lock_timeout": str(round(settings.lock * 1000)),
            "idle_in_transaction_session_timeout": str(round(settings.answer * 1000)),
            "default_transaction_read_only": "on" if self.readonly else "off",
        }

    async def dedicated_connection(self) -> Any:
        """A connection beside the pool, which the caller closes."""
        settings = self._server_settings()
        try:
            return await _driver().connect(self._url, timeout=self._settings.connect, server_settings=settings)
        except Exception as error:
            raise refusal(error, self.place) from None

    async def rekey(self, new: str) -> None:
        """Make the store open with the operator key `new` instead of ours."""
        connection = await self.dedicated_connection()
        try:
            await _rekey(connection, self._key, new, self.place)
        finally:
            await connection.close()

    def listen(self, on_ready: Callable[[], object], on_released: Callable[[], object]) -> None:
        """Call these when another replica has made runs ready, or has released a lease."""
        self._notifier.listen(on_ready, on_released)

    def notify(self, what: str) -> None:
        """Tell the other replicas soon what has happened."""
        self._notifier.notify(what)

    async def write(self, work: Callable[..., Awaitable[T]], *args: Any, timed: bool = True) -> T:
        """Run `work` in a transaction and return when it is on disk.

        Without `timed`, `tx.now` may be 0 until `work` has read the server's clock, which saves a round trip.
        """
        self._refuse_readonly()
        return await self._retry(lambda connection: self._transact(connection, "BEGIN", work, args, timed))

    async def read(self, query: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run `query` on one consistent snapshot."""
        return await self._retry(lambda connection: self._transact(connection, SNAPSHOT, query, args, True))

    async def autocommit(self, work: Callable[..., Awaitable[T]], *args: Any, writes: bool = True) -> T:
        """Run `work` without a transaction around its statements; `tx.now` is 0 where the server's clock counts."""
        if writes:
            self._refuse_readonly()

        async def run(connection: Any) -> T:
            return await work(Transaction(connection, self.seal, self._cache, self.given_now or 0), *args)

        return await self._retry(run)

    async def _execute(self, sql: str, *bindings: Any) -> None:
        await self.autocommit(Transaction.value, sql, *bindings)

    def _refuse_readonly(self) -> None:
        if self.readonly:
            raise Misconfigured("the store is open for reading only", fix="Start Harken: harken start")

    async def _transact(
        self, connection: Any, begin: str, work: Callable[..., Awaitable[T]], args: tuple[Any, ...], timed: bool
    ) -> T:
        try:
            await self._begin(connection, begin)
            now = self.given_now or 0
            if timed and not now:
                now = await connection.fetchval("SELECT harken_now()")
            tx = Transaction(connection, self.seal, self._cache, now)
            answer = await work(tx, *args)
            await connection.execute("COMMIT")
        except asyncio.CancelledError:
            await _roll_back(connection)
            raise
        except BaseException as error:
            # a connection that is gone was rolled back by the server
            if not _is_gone(connection) and connection.is_in_transaction():
                await connection.execute("ROLLBACK")
            if isinstance(error, Rollback):
                return error.answer  # type: ignore[no-any-return]
            raise
        for callback in tx.on_commit:
            callback()
        if tx.made_ready:
            self._notifier.notify()
        return answer

    async def _begin(self, connection: Any, begin: str) -> None:
        try:
            await connection.execute(begin)
        except Exception:
            if not _is_gone(connection):
                raise
            # it broke while it was idle in the pool, and so did the others: nothing has begun, so take a new one
            await self._pool.expire_connections()
            raise _BrokenConnection from None

    async def _retry(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do `work` again where the server rolled it back in favour of another transaction; note the trouble."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with self._connection() as connection:
                    answer = await work(connection)
            except Exception as error:
                if attempt < ATTEMPTS and (isinstance(error, _BrokenConnection) or is_worth_repeating(error)):
                    continue
                found = translate(error, self.place)
                self._note_trouble(found)
                raise found from None
            self._note_trouble(None)
            return answer
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        if self.queued >= self._settings.limit:
            raise StoreBusy(f"the store has {self.queued} calls waiting", after=1.0)
        if self._pool is None:
            await self.connect()
        self.queued += 1
        try:
            connection = await self._pool.acquire(timeout=self._settings.answer)
        finally:
            self.queued -= 1
        try:
            yield connection
        finally:
            await self._pool.release(connection, timeout=self._settings.connect)

    def _note_trouble(self, error: BaseException | None) -> None:
        found = str(error) if isinstance(error, StoreUnavailable | Misconfigured) else ""
        if found == self.trouble or (error is not None and not found):
            return
        self.trouble = found
        if found:
            log.error("store.down", reason=found)
        else:
            log.info("store.up")

    async def close(self) -> None:
        """Wait for the calls under way, at most as long as an answer may take."""
        await self._notifier.close()
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            await asyncio.wait_for(pool.close(), self._settings.answer)
        except TimeoutError:
            pool.terminate()

    def abandon(self) -> None:
        """Drop all connections without waiting, as a process that dies does."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()


class DatabaseUser:
    """Each part of the store inherits this: it runs the SQL functions of its file on the one database."""

    def __init__(self, database: Database) -> None:
        self._database = database


class _BrokenConnection(ConnectionError):
    """A connection of the pool broke before anything was sent on it."""


def _describe(url: str) -> str:
    """The server and database of a URL. Raise Misconfigured for a URL of another kind."""
    if urlsplit(url).scheme not in ("postgresql", "postgres"):
        raise Misconfigured("the store's URL must begin with postgresql://")
    return place_of("PostgreSQL", url)


def _driver() -> Any:
    try:
        import asyncpg  # type: ignore[import-untyped]
    except ImportError:
        raise Misconfigured("the driver for PostgreSQL is missing", fix=how_to_install("postgres")) from None
    return asyncpg


def _is_gone(connection: Any) -> bool:
    try:
        return bool(connection.is_closed())
    except _driver().InterfaceError:
        # the pool has taken the broken connection back, and every call of its proxy raises
        return True


async def _roll_back(connection: Any) -> None:
    """For a cancelled call. A connection that does not roll back within a second is dropped: then the server does."""
    try:
        async with asyncio.timeout(ROLLBACK_SECONDS):
            await connection.execute("ROLLBACK")
    except BaseException as error:
        connection.terminate()
        if not isinstance(error, Exception):
            raise


async def _skip_reset(connection: Any) -> None:
    """We leave a connection as we found it; the driver's own reset would cost a round trip for each use."""


async def prepare(connection: Any, key: str, place: str, *, readonly: bool) -> Seal:
    """Bring the schema up to date and return the seal. With a wrong key nothing is changed."""
    if readonly:
        version = await _version(connection)
        if not version:
            raise Misconfigured(f"there is no store in {place}", fix="Start once: harken start")
        if version < len(_migrations()):
            raise Misconfigured("the store was written by an older Harken", fix="Start once: harken start")
        _refuse_newer(version)
        return _open_seal(await connection.fetchval("SELECT wrapped FROM seal"), key, place)
    async with connection.transaction():
        await _lock_schema(connection)
        wrapped = await _wrapped_keys(connection)
        seal = None if wrapped is None else _open_seal(wrapped, key, place)
        await _migrate(connection, place)
        return seal or await _create_seal(connection, key)


async def _lock_schema(connection: Any) -> None:
    """Wait for other replicas that start at this moment, however long their migrations take."""
    await connection.execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
    await connection.fetchval("SELECT pg_advisory_xact_lock($1)", SCHEMA_LOCK)


def _migrations() -> list[str]:
    found = files(__package__).joinpath("migrations").iterdir()
    return sorted(file.name for file in found if file.name.endswith(".sql"))


async def _version(connection: Any) -> int:
    """The number of the last migration; 0 for a database without a store."""
    if await connection.fetchval("SELECT to_regclass('harken_migrations') IS NULL"):
        return 0
    return int(await connection.fetchval("SELECT coalesce(max(number), 0) FROM harken_migrations"))


def _refuse_newer(version: int) -> None:
    ours = len(_migrations())
    if version > ours:
        fix = "Use that version, or restore a backup made by this one"
        raise Misconfigured(f"the store was written by a newer Harken (schema {version}, ours {ours})", fix=fix)


async def _migrate(connection: Any, place: str) -> None:
    """Apply the missing migrations, all in the caller's transaction."""
    if await connection.fetchval("SELECT current_setting('server_version_num')::int") < OLDEST_VERSION:
        raise Misconfigured(f"{place} is too old", fix="Use PostgreSQL 13 or newer")
    names, version = _migrations(), await _version(connection)
    _refuse_newer(version)
    if not version:
        await connection.execute(
            "CREATE TABLE harken_migrations (number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz"
            " NOT NULL DEFAULT clock_timestamp())"
        )
    for number, name in enumerate(names[version:], start=version + 1):
        if version:
            # an index over millions of rows takes a while
            log.info("store.migrating", schema=number, newest=len(names))
        await connection.execute(files(__package__).joinpath("migrations", name).read_text())
        await connection.execute("INSERT INTO harken_migrations (number, name) VALUES ($1, $2)", number, name)


async def _wrapped_keys(connection: Any) -> str | None:
    """The store's keys as they are stored, empty for a store without encryption; None before its first start."""
    if not await _version(connection):
        return None
    found: str | None = await connection.fetchval("SELECT wrapped FROM seal")
    return found


def _open_seal(wrapped: str, key: str, place: str) -> Seal:
    if wrapped and not key:
        raise Misconfigured(f"the store {place} is encrypted", fix="Set HARKEN_ENCRYPTION_KEY to its key")
    if key and not wrapped:
        # other replicas may write plain rows at this moment, and old row versions cannot be wiped
        fix = "Copy it into a new database with the key set (harken store copy), or unset HARKEN_ENCRYPTION_KEY"
        raise Misconfigured(f"the store {place} is not encrypted", fix=fix)
    return AesSeal(*unwrap(key, wrapped)) if wrapped else PlainSeal()


async def _create_seal(connection: Any, key: str) -> Seal:
    """Decide for good whether this store is encrypted."""
    keys = secrets.token_bytes(32), secrets.token_bytes(32)
    wrapped = wrap(key, *keys) if key else ""
    await connection.execute("INSERT INTO seal (wrapped) VALUES ($1)", wrapped)
    return AesSeal(*keys) if key else PlainSeal()


async def _rekey(connection: Any, old: str, new: str, place: str) -> None:
    """Wrap the store's two keys with the operator key `new`. Running replicas keep the unwrapped keys they have."""
    async with connection.transaction():
        await _lock_schema(connection)
        wrapped = await _wrapped_keys(connection)
        if not wrapped:
            fix = "Set HARKEN_ENCRYPTION_KEY before the first start of a new database"
            raise Refused(f"the store {place} is not encrypted", fix=fix)
        await connection.execute("UPDATE seal SET wrapped=$1", rewrap(wrapped, old, new))
