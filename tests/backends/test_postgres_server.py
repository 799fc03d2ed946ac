"""The PostgreSQL store and its server: unreachable, restarted, slow, encrypted, too new, given invalid values."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

import msgspec
import pytest

from harken.backends.postgres import PostgresStore, Settings
from harken.backends.postgres.transaction_with_row_cache import Transaction
from harken.errors import HarkenError, Misconfigured, Refused, StoreBusy, StoreUnavailable
from harken.event import Event
from harken.store import Entry, Generation
from harken.task_cancellation import cancel_and_wait
from harken.testing import HandClock
from harken.testing.store.gathered_and_held_runs import gathers
from harken.testing.store.world import Given, definitions
from tests.backends.postgres_database import server, session, url
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer

__all__ = ["server", "session", "url"]

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("postgres-server")

KEY = "a long key of the operator"
QUICK = Settings(pool=2, lock=0.2, answer=3.0, connect=3.0)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def store(url: str, clock: HandClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore.at(url, clock, settings=QUICK)
    yield store
    await store.close()


@pytest.fixture
async def given(store: PostgresStore, clock: HandClock) -> Given:
    opened = await store.open(definitions())
    lease = await store.lease(0, "a", 3600)
    assert lease is not None
    return Given(store, clock, opened, lease)


class TestServer:
    async def test_a_server_that_is_not_there_is_unavailable_and_named_without_the_password(self) -> None:
        store = PostgresStore.at(f"postgresql://me:hush@127.0.0.1:{free_port()}/db", settings=QUICK)
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1") as raised:
            await store.counts()
        assert "hush" not in str(raised.value) + store.trouble
        assert "cannot be reached" in store.trouble

    async def test_a_server_that_comes_back_is_used_again(self, given: Given, server: PostgresServer) -> None:
        server.stop()
        with pytest.raises(StoreUnavailable):
            await given.store.put("token", "t", 1)
        assert given.store.trouble != ""
        server.start()
        assert await given.store.put("token", "t", 2) is not None
        assert given.store.trouble == ""

    async def test_what_was_committed_survives_its_restart(self, given: Given, server: PostgresServer) -> None:
        [run_id] = await given.fires("s")
        server.stop()
        server.start()
        assert await given.status(run_id) == "ready"

    async def test_a_wrong_password_is_for_a_person_to_mend(self, server: PostgresServer) -> None:
        store = PostgresStore.at(server.url("postgres", password="wrong-one"), settings=QUICK)
        with pytest.raises(Misconfigured, match="password") as raised:
            await store.connect()
        assert "wrong-one" not in str(raised.value)

    def test_an_address_of_something_else_is_refused(self) -> None:
        with pytest.raises(Misconfigured, match="postgresql://"):
            PostgresStore.at("mysql://somewhere/db")

    async def test_the_servers_clock_counts_where_no_other_is_given(self, url: str, session: Any) -> None:
        store = PostgresStore.at(url)
        await store.open(definitions())
        lease = await store.lease(0, "a", 30)
        assert lease is not None
        left = lease.until.timestamp() - await session.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        assert 20 < left <= 30
        await store.close()

    async def test_a_row_that_is_locked_for_too_long_makes_the_store_busy(self, given: Given, session: Any) -> None:
        await session.execute("BEGIN; SELECT 1 FROM feeds FOR UPDATE")
        with pytest.raises(StoreBusy):
            await given.commit(given.entry("s"))
        await session.execute("ROLLBACK")
        assert await given.subjects() == []
        assert given.store.trouble == ""

    async def test_a_transaction_that_the_server_rolled_back_is_repeated(self, given: Given) -> None:
        tries: list[int] = []

        async def work(tx: Transaction) -> str:
            tries.append(1)
            raised = "RAISE SQLSTATE '40P01'"
            await tx.connection.execute(f"DO $$ BEGIN IF {len(tries)} < 3 THEN {raised}; END IF; END $$")
            return "done"

        assert await _database(given).write(work) == "done"
        assert len(tries) == 3

    async def test_a_transaction_that_is_always_rolled_back_is_busy_in_the_end(self, given: Given) -> None:
        async def work(tx: Transaction) -> None:
            await tx.connection.execute("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")

        with pytest.raises(StoreBusy):
            await _database(given).write(work)


def _database(given: Given) -> Any:
    return vars(given.store)["_database"]


class TestKey:
    async def test_nothing_that_a_service_sent_can_be_read_in_the_tables(
        self, url: str, clock: HandClock, session: Any
    ) -> None:
        store = PostgresStore.at(url, clock, key=KEY, settings=QUICK)
        given = Given(store, clock, await store.open(definitions()), await _lease(store))
        event = Event(subject="whisper-s", key="whisper-k", state="whisper-st", type="mail", data={"x": "whisper-d"})
        intent = given.intent("whisper-r", slot="whisper-slot", overlap="queue", input=b'"whisper-i"')
        await given.commit(Entry(event=event, memory_id="whisper-m", decisions=(intent,)), cursor="whisper-c")
        await store.pause("mail", "whisper-p")
        await store.close()
        tables = [
            row[0] for row in await session.fetch("SELECT tablename FROM pg_tables WHERE schemaname=current_schema()")
        ]
        dumped = [str(await session.fetch(f"SELECT * FROM {table}")) for table in tables]
        raw = [
            value for table in tables for row in await session.fetch(f"SELECT * FROM {table}") for value in row.values()
        ]
        assert "whisper" not in "".join(dumped)
        assert all(b"whisper" not in value for value in raw if isinstance(value, bytes))

    async def test_another_key_opens_nothing(self, url: str, clock: HandClock) -> None:
        await _create_store(url, clock, KEY)
        with pytest.raises(Misconfigured, match="another key"):
            await PostgresStore.at(url, clock, key="not that one").connect()

    async def test_no_key_opens_nothing_that_is_encrypted(self, url: str, clock: HandClock) -> None:
        await _create_store(url, clock, KEY)
        with pytest.raises(Misconfigured, match="is encrypted"):
            await PostgresStore.at(url, clock).connect()

    async def test_a_key_is_refused_for_a_store_that_others_may_be_writing_in_plain(
        self, url: str, clock: HandClock
    ) -> None:
        await _create_store(url, clock, "")
        with pytest.raises(Misconfigured, match="not encrypted"):
            await PostgresStore.at(url, clock, key=KEY).connect()

    async def test_a_new_key_opens_what_the_old_one_sealed(self, url: str, clock: HandClock) -> None:
        await _create_store(url, clock, KEY)
        await PostgresStore.rekey(url, KEY, "the new one")
        again = PostgresStore.at(url, clock, key="the new one", settings=QUICK)
        found = await again.get("token", "t")
        await again.close()
        assert found is not None
        assert found.value == "kept"

    async def test_a_store_without_encryption_has_no_key_to_change(self, url: str, clock: HandClock) -> None:
        await _create_store(url, clock, "")
        with pytest.raises(Refused, match="not encrypted"):
            await PostgresStore.rekey(url, KEY, "the new one")


async def _create_store(url: str, clock: HandClock, key: str) -> None:
    store = PostgresStore.at(url, clock, key=key, settings=QUICK)
    await store.put("token", "t", "kept")
    await store.close()


async def _lease(store: PostgresStore) -> Any:
    return await store.lease(0, "a", 3600)


class TestSchema:
    async def test_a_newer_one_is_left_alone(self, store: PostgresStore, url: str, session: Any) -> None:
        await store.connect()
        await session.execute("INSERT INTO harken_migrations (number, name) VALUES (99, 'later')")
        with pytest.raises(Misconfigured, match="newer Harken"):
            await PostgresStore.at(url).connect()

    async def test_an_older_one_is_brought_up_to_date_and_its_tokens_go_on(self, url: str, session: Any) -> None:
        first = files("harken.backends.postgres").joinpath("migrations", "0001_start.sql").read_text()
        await session.execute(
            f"""CREATE TABLE harken_migrations (number integer, name text); {first};
            INSERT INTO harken_migrations VALUES (1, '0001_start.sql'); INSERT INTO seal (wrapped) VALUES ('');
            INSERT INTO leases (shard, holder, token, until) VALUES (0, 'a', 7, 1)"""
        )
        store = PostgresStore.at(url, settings=QUICK)
        taken = await store.lease(1, "b", 30)
        assert taken is not None
        assert taken.token > 7
        assert await store.generation() == Generation()
        await store.close()

    async def test_the_one_before_gets_its_indexes_and_keeps_its_rows(
        self, given: Given, url: str, session: Any
    ) -> None:
        await given.settle(await given.running("s"))
        migrations = files("harken.backends.postgres").joinpath("migrations")
        steps = sorted(
            step.name for step in migrations.iterdir() if "0003" <= step.name < ":" and step.name.endswith(".sql")
        )
        added = "".join(migrations.joinpath(step).read_text() for step in steps)
        grown = re.findall(r"CREATE INDEX (\w+)", added)
        await session.execute(";".join(f"DROP INDEX {index}" for index in grown))
        for table, column in re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", added):
            await session.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        for table in re.findall(r"CREATE TABLE (\w+)", added):
            await session.execute(f"DROP TABLE {table}")
        await session.execute("DELETE FROM harken_migrations WHERE number>=3")
        again = PostgresStore.at(url, given.clock, settings=QUICK)
        assert (await again.counts())["events"] == 1
        found = await session.fetch("SELECT indexname FROM pg_indexes WHERE schemaname=current_schema()")
        assert set(grown) <= {row[0] for row in found}
        assert "s" in await again.recall("inbox", ["s"])
        await again.close()

    async def test_opening_for_reading_creates_no_schema(self, url: str) -> None:
        with pytest.raises(Misconfigured, match="there is no store"):
            await PostgresStore.at(url, readonly=True).connect()

    async def test_a_store_that_is_open_for_reading_writes_nothing(self, given: Given, url: str) -> None:
        await given.fires("s")
        reader = PostgresStore.at(url, given.clock, readonly=True, settings=QUICK)
        assert (await reader.counts())["events"] == 1
        with pytest.raises(Misconfigured, match="reading only"):
            await reader.claim("w", 1, 60)
        await reader.close()


class TestRefusals:
    async def test_a_value_that_the_server_refuses_is_no_trouble_of_the_store(self, given: Given) -> None:
        bad = msgspec.structs.replace(given.entry("bad").event, type="nul\0")
        with pytest.raises(ValueError, match="refuses a value") as raised:
            await given.commit(given.entry("good"), Entry(event=bad, memory_id="bad"))
        assert not isinstance(raised.value, HarkenError)
        assert given.store.trouble == ""
        assert await given.subjects() == []
        await given.commit(given.entry("good"))
        assert await given.subjects() == ["good"]

    async def test_a_backup_is_refused_and_names_pg_dump(self, store: PostgresStore) -> None:
        with pytest.raises(Refused, match="pg_dump"):
            await store.backup("somewhere.dump")

    async def test_a_call_beyond_the_limit_of_waiting_calls_is_busy(self, url: str, clock: HandClock) -> None:
        store = PostgresStore.at(url, clock, settings=Settings(limit=0))
        with pytest.raises(StoreBusy):
            await store.counts()

    @pytest.mark.parametrize("turns", [1, 5, 10, 15, 20, 30])
    async def test_a_cancelled_call_leaves_its_connection_in_order(self, given: Given, turns: int) -> None:
        """Wherever it is cancelled: the driver reports no error, and the next call finds nothing of it."""
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
        for _ in range(20):
            pausing = asyncio.create_task(given.store.pause("mail", "a test"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await cancel_and_wait([pausing])
        gc.collect()
        await given.store.resume("mail")
        assert reported == []

    async def test_a_closed_store_says_so(self, store: PostgresStore) -> None:
        await store.connect()
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.counts()

    async def test_inconsistencies_are_reported_in_words(self, given: Given, session: Any) -> None:
        await given.fires("a", "b", overlap="queue", slot="k")
        await session.execute("DELETE FROM events WHERE id=(SELECT min(id) FROM events); DELETE FROM slots")
        assert await given.store.check() == [
            "runs that refer to an event that is gone: 1",
            "runs that are blocked behind a slot that nobody holds: 1",
            "runs that may run without having their slot: 1",
        ]

    async def test_a_gathered_event_that_is_gone_is_reported(self, given: Given, session: Any) -> None:
        await gathers(given, "a")
        await gathers(given, "b")
        await session.execute("DELETE FROM events WHERE id=(SELECT max(id) FROM events)")
        assert await given.store.check() == ["gathered events of open runs that are gone: 1"]
