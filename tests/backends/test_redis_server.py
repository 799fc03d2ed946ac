"""The Redis store and its server: durability, crashes, full memory, other writers, encryption keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from redis.asyncio import Redis

from harken.backends.redis import RedisStore
from harken.backends.redis.connection import Connection
from harken.backends.redis.durability import Durability, judge
from harken.backends.redis.format_and_encryption_keys import first_keys
from harken.clock import SystemClock
from harken.errors import Misconfigured, Refused, StoreBusy, StoreUnavailable
from harken.runs import Finished, Park
from harken.store import Entry, Settlement, Stale
from harken.testing import HandClock
from harken.testing.store import Given
from harken.testing.store.gathered_and_held_runs import gathers
from harken.testing.store.world import definitions
from tests.servers.redis import RedisServer

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("redis-server")

KEY = "a long key of the operator"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(appendonly="yes") as running:
        yield running


@pytest.fixture
async def admin(server: RedisServer) -> AsyncIterator[Redis]:
    """A client that may do everything, on an empty server."""
    async with Redis.from_url(server.url()) as client:
        await client.flushall()
        yield client


async def connect_to(url: str, key: str = "") -> Durability:
    """Connect to the store and close it."""
    store = RedisStore.at(url, key=key)
    try:
        return await store.check_durability()
    finally:
        await store.close()


async def open_definitions(url: str) -> None:
    store = RedisStore.at(url)
    try:
        await store.open(definitions())
    finally:
        await store.close()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def store(server: RedisServer, admin: Redis, clock: HandClock) -> AsyncIterator[RedisStore]:
    store = RedisStore.at(server.url(), clock)
    yield store
    await store.close()


async def begin(store: RedisStore, clock: HandClock) -> Given:
    opened = await store.open(definitions())
    lease = await store.lease(0, "a", 30)
    assert lease is not None
    return Given(store, clock, opened, lease)


def with_text(entry: Entry, text: str) -> Entry:
    return msgspec.structs.replace(entry, event=msgspec.structs.replace(entry.event, data={"text": text}))


@pytest.fixture
async def given(store: RedisStore, clock: HandClock) -> Given:
    return await begin(store, clock)


class TestDurability:
    async def test_it_is_full_where_every_write_reaches_the_disk(self, server: RedisServer) -> None:
        durability = await connect_to(server.url())
        assert durability.full
        assert "appendfsync always" in durability.words

    async def test_it_is_reduced_where_the_last_second_may_be_lost(self, server: RedisServer, admin: Redis) -> None:
        await admin.config_set("appendfsync", "everysec")
        durability = await connect_to(server.url())
        await admin.config_set("appendfsync", "always")
        assert not durability.full
        assert "everysec" in durability.words

    async def test_a_server_that_evicts_keys_is_refused(self, server: RedisServer, admin: Redis) -> None:
        await admin.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(Misconfigured, match=r"allkeys-lru.*noeviction"):
            await connect_to(server.url())
        await admin.config_set("maxmemory-policy", "noeviction")

    def test_replicas_that_confirm_keep_it_and_others_do_not(self) -> None:
        info = {"aof_enabled": 1, "connected_slaves": 2}
        old, new = judge(info, "always", (7, 0)), judge(info, "always", (7, 2))
        assert (old.full, new.full, new.replicas) == (False, True, 2)
        assert "WAITAOF" in old.words

    async def test_a_replica_is_refused_and_is_seen_by_its_primary(self, server: RedisServer, admin: Redis) -> None:
        with RedisServer(replicaof=f"127.0.0.1 {server.port}") as replica:
            replica.wait_for_its_primary()
            with pytest.raises(Misconfigured, match="is a replica"):
                await connect_to(replica.url())
            durability = await connect_to(server.url())
        assert "replicas" in durability.words

    async def test_a_backup_is_left_to_redis(self, store: RedisStore, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="BGSAVE"):
            await store.backup(str(tmp_path / "copy"))

    async def test_memory_per_day_is_told_from_what_events_took(self, given: Given, store: RedisStore) -> None:
        assert "not known" in str(await store.forecast())
        await given.commit(*(given.entry(f"s{n}", given.intent(f"s{n}")) for n in range(200)))
        forecast = await store.forecast(events_per_day=1_000_000)
        assert 300 < forecast.bytes_per_event < 20_000
        assert forecast.bytes_per_day == forecast.bytes_per_event * 1_000_000
        assert "MB for each day" in str(forecast)


class TestTrouble:
    async def test_a_killed_server_loses_nothing_acknowledged_and_the_store_goes_on_by_itself(
        self, given: Given, server: RedisServer
    ) -> None:
        run_ids = await given.fires(*"abc")
        server.kill()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await given.commit(given.entry("d"))
        assert "cannot be reached" in given.store.trouble
        server.start()
        assert [claim.id for claim in await given.claims()] == run_ids
        assert given.store.trouble == ""
        assert await given.store.check() == []

    async def test_a_server_that_forgot_the_scripts_is_told_them_again(self, given: Given, admin: Redis) -> None:
        await admin.script_flush()
        assert len(await given.fires("s")) == 1

    async def test_a_full_memory_writes_nothing_by_halves(self, given: Given, admin: Redis) -> None:
        await admin.config_set("maxmemory", "1mb")
        with pytest.raises(StoreUnavailable, match="no memory left"):
            await given.fires("s")
        assert await given.events() == []
        assert await given.claims() == []
        assert "memory" in given.store.trouble
        await admin.config_set("maxmemory", "0")
        assert await given.events() == []
        assert await given.store.check() == []
        assert len(await given.fires("s")) == 1
        assert given.store.trouble == ""

    async def test_a_wrong_password_says_so_without_showing_it(self, server: RedisServer) -> None:
        with pytest.raises(StoreUnavailable, match="does not let us in") as raised:
            await connect_to(f"redis://:sesame@127.0.0.1:{server.port}")
        assert "sesame" not in str(raised.value)

    async def test_a_node_of_a_cluster_that_does_not_hold_the_store_says_who_does(self) -> None:
        with RedisServer.of_a_cluster() as one, RedisServer.of_a_cluster() as other:
            one.hold_all_for(other)
            assert (await connect_to(one.url())).words
            with pytest.raises(StoreUnavailable, match=f"another node.*127.0.0.1:{one.port}"):
                await open_definitions(other.url())

    async def test_too_many_requests_at_once_are_sent_away(self, server: RedisServer, admin: Redis) -> None:
        store = RedisStore.at(server.url(), limit=3)
        await store.connect()
        answers = await asyncio.gather(*(store.get("token", "t") for _ in range(20)), return_exceptions=True)
        await store.close()
        assert [type(answer) for answer in answers if answer is not None] == [StoreBusy] * 17

    async def test_damage_is_found(self, given: Given, admin: Redis) -> None:
        await given.fires("s")
        await admin.delete("{harken:0}:q:0")
        assert await given.store.check() == ["runs that are missing from the index of their state: 1"]

    async def test_a_run_that_nothing_would_wake_is_found(self, given: Given, admin: Redis) -> None:
        claim = await given.running()
        await given.store.park(claim.id, claim.token, Park(until=given.now(300)))
        assert await given.store.check() == []
        await admin.delete("{harken:0}:wake")
        assert await given.store.check() == ["runs that are missing from the index of their state: 1"]

    async def test_a_run_without_its_slot_is_found(self, given: Given, admin: Redis) -> None:
        await given.fires("a", overlap="queue", slot="k")
        await admin.delete("{harken:0}:slots")
        assert await given.store.check() == ["runs that may run without having their slot: 1"]

    async def test_a_gathered_event_that_is_gone_is_found(self, given: Given, admin: Redis) -> None:
        await gathers(given, "a")
        await gathers(given, "b")
        await admin.hdel("{harken:0}:e:0", "v2")
        assert await given.store.check() == ["gathered events of open runs that are gone: 1"]


class TestOtherWriters:
    @pytest.fixture
    async def others(self, server: RedisServer, given: Given) -> AsyncIterator[list[RedisStore]]:
        found = [RedisStore.at(server.url(), given.clock) for _ in range(3)]
        yield found
        for store in found:
            await store.close()

    async def test_every_run_is_claimed_once(self, given: Given, others: list[RedisStore]) -> None:
        run_ids = await given.fires(*(f"s{n}" for n in range(60)))
        claims = await asyncio.gather(*(store.claim(f"w{n % 3}", 7, 60) for n, store in enumerate(others * 4)))
        assert sorted(claim.id for some in claims for claim in some) == sorted(run_ids)

    async def test_a_slot_is_never_held_twice(self, given: Given, others: list[RedisStore]) -> None:
        await given.fires(*(f"s{n}" for n in range(20)), overlap="queue", slot="k")
        done = set()
        for _ in range(20):
            claims = await asyncio.gather(*(store.claim(f"w{n}", 5, 60) for n, store in enumerate(others)))
            [claim] = [claim for some in claims for claim in some]
            await others[0].settle([Settlement(id=claim.id, token=claim.token, outcome=Finished())])
            done.add(claim.id)
        assert len(done) == 20

    async def test_the_same_occurrence_from_two_replicas_is_recorded_once(
        self, given: Given, others: list[RedisStore]
    ) -> None:
        page = given.page(given.entry("s", given.intent("s")), token=None)
        await asyncio.gather(*(store.commit(page) for store in others * 5))
        assert await given.subjects() == ["s"]
        assert (await given.events())[0].repeats == 14

    async def test_one_of_many_gets_the_lease(self, given: Given, others: list[RedisStore]) -> None:
        leases = await asyncio.gather(*(store.lease(1, f"r{n}", 30) for n, store in enumerate(others)))
        assert len([lease for lease in leases if lease]) == 1

    async def test_who_opens_at_the_same_time_agrees_on_the_triggers(
        self, server: RedisServer, admin: Redis, others: list[RedisStore]
    ) -> None:
        await admin.flushall()
        opened = await asyncio.gather(*(store.open(definitions()) for store in others))
        assert len({each.triggers["mail"].uid for each in opened}) == 1
        assert len(await admin.keys("{harken:0}:tr:*")) == len(opened[0].triggers)

    async def test_a_worker_of_another_name_waits_for_a_claim_to_run_out(
        self, given: Given, others: list[RedisStore]
    ) -> None:
        claim = await given.running("s")
        assert await others[0].claim("w2", 10, 60) == []
        given.clock.advance(61)
        assert await others[0].requeue_expired() == 1
        assert [again.id for again in await others[0].claim("w2", 10, 60)] == [claim.id]


class TestLongPages:
    async def test_an_event_that_many_triggers_want_is_no_matter(self, given: Given) -> None:
        many = [given.intent(f"k{n}") for n in range(5000)]
        committed = await given.commit(given.entry("s", *many))
        assert len({verdict.run_id for verdict in committed.verdicts[0]}) == 5000
        assert (await given.store.counts())["runs_ready"] == 5000
        assert await given.store.check() == []

    async def test_a_long_page_is_written_whole(self, given: Given) -> None:
        entries = [given.entry(f"s{n}", given.intent(f"s{n}", hold="flood")) for n in range(450)]
        committed = await given.commit(*entries, cursor=[1], done=True, release={given.trigger().uid: 449})
        assert len(set(committed.event_ids)) == 450
        state = await given.feed()
        assert (state.cursor, state.reads, state.seen) == ([1], 1, 450)
        assert (await given.store.counts())["runs_held"] == 450

    async def test_a_heavy_page_goes_in_parts_too(self, given: Given) -> None:
        entries = [given.entry(f"s{n}") for n in range(3)]
        heavy = [with_text(entry, "x" * 600_000) for entry in entries]
        await given.commit(*heavy, cursor=[1])
        assert await given.subjects() == ["s0", "s1", "s2"]

    async def test_heavy_runs_are_claimed_a_few_at_a_time(self, given: Given) -> None:
        entries = [given.entry(name, given.intent(name)) for name in "abc"]
        await given.commit(*(with_text(entry, "x" * 600_000) for entry in entries))
        assert [len(await given.claims()), len(await given.claims())] == [2, 1]

    async def test_the_cursor_stays_when_a_later_part_is_stale(self, given: Given) -> None:
        await given.commit(given.entry("moved", state="open"))
        entries = [given.entry(f"s{n}") for n in range(250)]
        page = given.page(*entries, given.entry("moved", state="closed"), cursor=[1])
        assert isinstance(await given.store.commit(page), Stale)
        assert (await given.feed()).cursor is None

    async def test_what_an_interrupted_page_has_written_is_not_written_again(self, given: Given) -> None:
        await given.commit(given.entry("moved", state="open"))
        entries = [given.entry(f"s{n}", given.intent(f"s{n}"), memory_id="") for n in range(250)]
        await given.store.commit(given.page(*entries, given.entry("moved", state="closed"), cursor=[1]))
        assert len(await given.events(limit=1000)) == 201
        again = await given.commit(*entries, cursor=[1])
        assert len(await given.events(limit=1000)) == 251
        assert [verdicts[0].outcome for verdicts in again.verdicts].count("duplicate") == 200
        later = await given.commit(*entries[:1])
        assert later.event_ids[0] not in again.event_ids


class TestOpening:
    def test_a_url_that_is_none_is_refused(self) -> None:
        with pytest.raises(Misconfigured, match="not one of Redis"):
            RedisStore.at("http://somewhere")

    async def test_who_reads_only_writes_nothing(self, server: RedisServer, given: Given) -> None:
        store = RedisStore.at(server.url(), readonly=True)
        names = [feed.name for feed in await store.feeds()]
        with pytest.raises(Misconfigured, match="reading only"):
            await store.put("token", "t", 1)
        await store.close()
        assert names == ["harken", "inbox"]

    async def test_a_server_that_is_away_at_first_is_found_when_it_comes(self, server: RedisServer) -> None:
        server.stop()
        store = RedisStore.at(server.url())
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await store.get("token", "t")
        server.start()
        assert await store.get("token", "t") is None
        assert store.trouble == ""
        await store.close()


class TestTime:
    async def test_it_is_the_servers_own_unless_a_clock_is_given(
        self, server: RedisServer, admin: Redis, clock: HandClock
    ) -> None:
        store = RedisStore.at(server.url())
        given = await begin(store, clock)
        seconds, _ = await admin.time()
        assert 25 < given.lease.until.timestamp() - seconds <= 31
        due = SystemClock().now()
        [run_id] = await given.fires("s", due_at=due)
        claim = await given.claims_one()
        assert (claim.id, await given.settle(claim)) == (run_id, "settled")
        await store.close()


class TestKeys:
    async def test_nothing_that_was_said_is_readable_in_the_servers_files(
        self, server: RedisServer, admin: Redis, clock: HandClock
    ) -> None:
        store = RedisStore.at(server.url(), clock, key=KEY)
        given = await begin(store, clock)
        said = given.intent("hidden-key", slot="hidden-slot", overlap="queue", reason="hidden", input=b'"hidden"')
        entry = given.entry("hidden-subject", said, state="hidden-state")
        await given.commit(entry, cursor="hidden-cursor")
        await store.dead_letter("inbox", entry.event, "hidden")
        await store.put("token", "t", "hidden")
        await store.pause("mail", "hidden")
        await store.close()
        written = b"".join(file.read_bytes() for file in server.files())
        assert b"inbox" in written
        assert b"hidden" not in written

    async def test_the_wrong_key_and_none_are_refused(self, server: RedisServer, admin: Redis) -> None:
        await connect_to(server.url(), KEY)
        with pytest.raises(Misconfigured, match="another key"):
            await connect_to(server.url(), "wrong")
        with pytest.raises(Misconfigured, match="is encrypted"):
            await connect_to(server.url())

    async def test_a_key_that_comes_later_is_refused(self, server: RedisServer, given: Given) -> None:
        with pytest.raises(Misconfigured, match="without encryption"):
            await connect_to(server.url(), KEY)

    async def test_replicas_that_begin_together_have_the_same_seal(self, server: RedisServer, admin: Redis) -> None:
        connection = Connection(server.url(), "{harken:0}:", None)
        one, two = await first_keys(connection, KEY), await first_keys(connection, KEY)
        await connection.close()
        assert one == two

    async def test_another_key_opens_what_the_first_one_wrote(self, server: RedisServer, admin: Redis) -> None:
        store = RedisStore.at(server.url(), key=KEY)
        await store.put("token", "t", 1)
        await store.close()
        await RedisStore.rekey(server.url(), KEY, "another key")
        store = RedisStore.at(server.url(), key="another key")
        found = await store.get("token", "t")
        await store.close()
        assert found is not None


class TestSchema:
    async def test_it_is_noted_and_a_newer_one_is_left_alone(self, server: RedisServer, admin: Redis) -> None:
        await connect_to(server.url())
        assert await admin.get("{harken:0}:schema") == b"1"
        await admin.set("{harken:0}:schema", 2)
        before = await admin.keys("*")
        with pytest.raises(Misconfigured, match="newer Harken"):
            await connect_to(server.url())
        assert await admin.keys("*") == before

    async def test_who_only_reads_notes_nothing(self, server: RedisServer, admin: Redis) -> None:
        store = RedisStore.at(server.url(), readonly=True)
        try:
            await store.connect()
        finally:
            await store.close()
        assert await admin.keys("*") == []
