"""Several replicas on one PostgreSQL: a run, lease, slot or budget that only one may have goes to exactly one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from harken.backends.postgres import PostgresStore, Settings
from harken.backends.run_states_ids_and_reasons import DONE
from harken.errors import StoreUnavailable
from harken.event import Verdict
from harken.feed import Budget
from harken.runs import Claimed, Finished
from harken.store import Committed, GatherInto, Settlement, Stale
from harken.testing import HandClock
from harken.testing.store.world import MAIL, OTHER, Given, definitions
from tests.backends.postgres_database import server, session, url

__all__ = ["server", "session", "url"]

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("postgres-fleet")

REPLICAS = 4
WAIT = 10.0
MOMENT = 0.3
"""Seconds that are enough for a commit that waits for no lock."""


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def replicas(clock: HandClock, url: str) -> AsyncIterator[list[PostgresStore]]:
    stores = [PostgresStore.at(url, clock, settings=Settings(pool=3)) for _ in range(REPLICAS)]
    yield stores
    await asyncio.gather(*(store.close() for store in stores))


@pytest.fixture
async def given(replicas: list[PostgresStore], clock: HandClock) -> Given:
    return await open_given(replicas[0], clock)


async def open_given(store: PostgresStore, clock: HandClock, **budget: int) -> Given:
    mail = msgspec.structs.replace(MAIL, budget=Budget(**budget)) if budget else MAIL
    opened = await store.open(definitions(triggers=(mail, OTHER)))
    lease = await store.lease(0, "a", 3600)
    assert lease is not None
    return Given(store, clock, opened, lease)


async def push_all(
    given: Given, replicas: Sequence[PostgresStore], subjects: Sequence[str], **intent: Any
) -> list[Verdict]:
    """Push all subjects concurrently, each to the next replica. Return the verdict of each."""
    pages = [given.page(given.entry(name, given.intent(name, **intent)), token=None) for name in subjects]
    work = [replicas[n % len(replicas)].commit(page) for n, page in enumerate(pages)]
    answers = await asyncio.gather(*work)
    return [answer.verdicts[0][0] for answer in answers if isinstance(answer, Committed)]


async def claim_all(replicas: Sequence[PostgresStore], limit: int) -> list[Claimed]:
    found = await asyncio.gather(*(store.claim(f"w{n}", limit, 60) for n, store in enumerate(replicas)))
    return [claim for some in found for claim in some]


def settlements(claimed: Sequence[Claimed]) -> list[Settlement]:
    return [Settlement(id=claim.id, token=claim.token, outcome=Finished()) for claim in claimed]


async def test_replicas_never_claim_the_same_run(given: Given, replicas: list[PostgresStore]) -> None:
    run_ids = await given.fires(*(f"s{n}" for n in range(60)))
    first, second = await claim_all(replicas, 10), await claim_all(replicas, 10)
    assert sorted(claim.id for claim in first + second) == sorted(run_ids)


async def test_one_event_that_all_replicas_receive_is_recorded_once(
    given: Given, replicas: list[PostgresStore]
) -> None:
    verdicts = await push_all(given, replicas, ["same"] * 12)
    assert sorted(verdict.outcome for verdict in verdicts) == ["duplicate"] * 11 + ["fired"]
    assert await given.subjects() == ["same"]
    assert len(await claim_all(replicas, 10)) == 1


async def test_a_slot_that_all_replicas_queue_for_never_has_two_runs_at_work(
    given: Given, replicas: list[PostgresStore]
) -> None:
    names = [f"s{n}" for n in range(24)]
    verdicts = await push_all(given, replicas, names, overlap="queue", slot="k")
    done: list[str] = []
    at_once = set()
    for _ in names:
        claimed = await claim_all(replicas, 5)
        at_once.add(len(claimed))
        more = push_all(given, replicas, [f"late-{len(done)}"], overlap="queue", slot="other")
        await asyncio.gather(replicas[len(done) % REPLICAS].settle(settlements(claimed)), more)
        done += [claim.events[0].subject for claim in claimed if claim.events[0].subject in names]
    assert sorted(done) == sorted(names)
    assert at_once <= {1, 2}
    assert {verdict.outcome for verdict in verdicts} == {"fired"}
    assert await replicas[0].check() == []


async def test_of_runs_that_skip_when_they_overlap_one_fires(given: Given, replicas: list[PostgresStore]) -> None:
    verdicts = await push_all(given, replicas, [f"s{n}" for n in range(12)], overlap="skip", slot="k")
    assert sorted(verdict.outcome for verdict in verdicts) == ["fired"] + ["skipped"] * 11


async def test_of_runs_that_cancel_the_previous_one_is_left(given: Given, replicas: list[PostgresStore]) -> None:
    await push_all(given, replicas, [f"s{n}" for n in range(12)], overlap="cancel_previous", slot="k")
    assert len(await claim_all(replicas, 12)) == 1
    assert (await replicas[0].counts())["runs_cancelled"] == 11
    assert await replicas[0].check() == []


@pytest.mark.parametrize("overlap", ["cancel_previous", "skip", "queue"])
async def test_a_run_that_two_replicas_insert_at_once_is_not_displaced_by_itself(
    given: Given, replicas: list[PostgresStore], session: Any, overlap: str
) -> None:
    pages = [
        given.page(given.entry(subject, given.intent("same", overlap=overlap, slot="k")), token=None)
        for subject in ("a", "b")
    ]
    await session.execute("BEGIN; LOCK TABLE slots IN EXCLUSIVE MODE")
    pushes = [asyncio.create_task(replicas[n].commit(page)) for n, page in enumerate(pages)]
    await both_wait_for_slots(session)
    await session.execute("COMMIT")
    answers = [answer for answer in await asyncio.gather(*pushes) if isinstance(answer, Committed)]
    verdicts = [answer.verdicts[0][0] for answer in answers]
    assert sorted(verdict.outcome for verdict in verdicts) == ["duplicate", "fired"]
    assert [claim.id for claim in await claim_all(replicas, 5)] == [verdicts[0].run_id] == [verdicts[1].run_id]
    assert await replicas[0].check() == []


async def both_wait_for_slots(session: Any) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE relation='slots'::regclass AND NOT granted"
    async with asyncio.timeout(WAIT):
        while await session.fetchval(waiting) < 2:
            continue


async def test_replicas_gather_in_one_run_until_it_is_full(given: Given, replicas: list[PostgresStore]) -> None:
    into = GatherInto("k", given.now(60), 20)
    verdicts = await push_all(given, replicas, [f"s{n}" for n in range(20)], gather=into, due_at=into.due_at)
    assert len({verdict.run_id for verdict in verdicts}) == 1
    assert [len(claim.events) for claim in await claim_all(replicas, 5)] == [20]


async def test_replicas_share_one_budget(replicas: list[PostgresStore], clock: HandClock) -> None:
    given = await open_given(replicas[0], clock, runs_per_hour=3)
    await given.fires(*(f"s{n}" for n in range(20)))
    assert len(await claim_all(replicas, 5)) == 3
    clock.advance(3600)
    assert len(await claim_all(replicas, 5)) == 3


async def test_runs_that_a_commit_claims_at_once_share_one_budget_too(
    replicas: list[PostgresStore], clock: HandClock
) -> None:
    given = await open_given(replicas[0], clock, runs_per_hour=3)
    pages = [
        given.page(given.entry(f"s{n}", given.intent(f"s{n}")), token=None, claim=1, holder=f"w{n}") for n in range(12)
    ]
    answers = await asyncio.gather(*(replicas[n % REPLICAS].commit(page) for n, page in enumerate(pages)))
    assert sum(len(answer.claimed) for answer in answers if isinstance(answer, Committed)) == 3


async def test_one_of_many_replicas_gets_a_lease(replicas: list[PostgresStore], given: Given) -> None:
    leases = await asyncio.gather(*(store.lease(7, f"h{n}", 30) for n, store in enumerate(replicas * 3)))
    assert len([lease for lease in leases if lease is not None]) == 1


async def test_one_of_many_replicas_replaces_an_expected_revision(replicas: list[PostgresStore], given: Given) -> None:
    await given.store.put("token", "t", 0)
    puts = await asyncio.gather(*(store.put("token", "t", n, expect=1) for n, store in enumerate(replicas * 3)))
    assert len([put for put in puts if put is not None]) == 1


async def test_replicas_that_start_together_create_one_store(replicas: list[PostgresStore]) -> None:
    opened = await asyncio.gather(*(store.open(definitions()) for store in replicas))
    uids = {(each.triggers["mail"].uid, each.feeds["inbox"].revision) for each in opened}
    assert len(uids) == 1


async def test_a_push_waits_for_a_revision_that_is_about_to_rise(
    given: Given, replicas: list[PostgresStore], session: Any
) -> None:
    await session.execute("BEGIN; SELECT 1 FROM feeds FOR UPDATE; UPDATE feeds SET revision=revision+1")
    push = asyncio.create_task(replicas[1].commit(given.page(given.entry("s"), token=None)))
    assert await asyncio.wait([push], timeout=MOMENT) == (set(), {push})
    await session.execute("COMMIT")
    assert await push == Stale(given.revision + 1)


async def test_a_revision_rises_after_transactions_that_write_under_the_old_one(
    given: Given, replicas: list[PostgresStore], session: Any
) -> None:
    await session.execute("BEGIN; SELECT 1 FROM feeds FOR KEY SHARE")
    pausing = asyncio.create_task(replicas[1].pause("mail", "holiday"))
    assert await asyncio.wait([pausing], timeout=MOMENT) == (set(), {pausing})
    await session.execute("COMMIT")
    assert (await pausing).paused == "holiday"


async def test_a_held_run_that_another_replica_releases_meanwhile_is_not_released_again(
    given: Given, replicas: list[PostgresStore], session: Any
) -> None:
    [run_id] = await given.fires("s", hold="flood")
    await session.execute("BEGIN; SELECT 1 FROM runs FOR UPDATE")
    releasing = asyncio.create_task(replicas[1].release("mail"))
    assert await asyncio.wait([releasing], timeout=MOMENT) == (set(), {releasing})
    # it is released there, claimed, and over
    await session.execute(f"UPDATE runs SET state={DONE}, hold=NULL, finished_at=1; COMMIT")
    assert await releasing == 0
    assert await given.status(run_id) == "done"


async def test_a_lease_is_taken_over_after_transactions_that_write_under_it(
    given: Given, replicas: list[PostgresStore], session: Any, clock: HandClock
) -> None:
    await session.execute("BEGIN; SELECT 1 FROM leases FOR KEY SHARE")
    clock.advance(3601)
    taking = asyncio.create_task(replicas[1].lease(0, "b", 30))
    assert await asyncio.wait([taking], timeout=MOMENT) == (set(), {taking})
    await session.execute("COMMIT")
    taken = await taking
    assert taken is not None
    assert taken.token > given.lease.token


async def test_the_tail_waits_for_a_commit_with_a_lower_id(
    given: Given, replicas: list[PostgresStore], session: Any
) -> None:
    await session.execute("BEGIN; SELECT pg_current_xact_id()")
    lower = await session.fetchval("SELECT nextval('event_ids')")
    await given.commit(given.entry("quick"))
    before = await replicas[1].events_after(0)
    await session.execute(
        f"""INSERT INTO events (id, feed, kid, key, subject, type, recorded_at, verdicts, data)
        SELECT {lower}, feed, kid, key, 'slow', type, recorded_at, verdicts, data FROM events; COMMIT"""
    )
    assert before == []
    assert [event.subject for event in await replicas[1].events_after(0)] == ["slow", "quick"]


async def test_a_replica_hears_of_runs_that_another_made_ready(given: Given, replicas: list[PostgresStore]) -> None:
    heard = asyncio.Event()
    begun = asyncio.Event()
    replicas[0].listen(begun.set)
    await asyncio.wait_for(begun.wait(), WAIT)
    begun.clear()
    replicas[1].listen(lambda: heard.set() if begun.is_set() else None)
    begun.set()
    await asyncio.wait_for(heard.wait(), WAIT)
    heard.clear()
    await given.fires("s")
    await asyncio.wait_for(heard.wait(), WAIT)


async def test_pushes_that_share_a_commit_each_get_their_own_answer(
    given: Given, replicas: list[PostgresStore]
) -> None:
    wanted = [("a", 1), ("b", 0), ("c", 1), ("a", 1), ("d", 0)]
    pages = [
        given.page(given.entry(name, given.intent(name)), token=None, claim=most, holder="w") for name, most in wanted
    ]
    answers = await asyncio.gather(*(replicas[0].commit(page) for page in [*pages[:1], *pages]))
    committed = [answer for answer in answers if isinstance(answer, Committed)]
    claimed = [[claim.events[0].subject for claim in answer.claimed] for answer in committed]
    assert claimed == [["a"], [], [], ["c"], [], []]
    outcomes = [answer.verdicts[0][0].outcome for answer in committed]
    assert outcomes == ["fired", "duplicate", "fired", "fired", "duplicate", "fired"]
    assert await given.subjects() == ["a", "b", "c", "d"]


async def test_an_invalid_push_does_not_fail_those_that_share_its_commit(
    given: Given, replicas: list[PostgresStore]
) -> None:
    entries = [given.entry(name) for name in ("first", "good", "bad", "fine")]
    entries[2] = msgspec.structs.replace(entries[2], event=msgspec.structs.replace(entries[2].event, type="nul\0"))
    work = [replicas[0].commit(given.page(entry, token=None)) for entry in entries]
    answers = await asyncio.gather(*work, return_exceptions=True)
    assert [type(answer) for answer in answers] == [Committed, Committed, ValueError, Committed]
    assert sorted(await given.subjects()) == ["fine", "first", "good"]


async def test_pushes_whose_shared_commit_is_cancelled_get_an_answer_and_may_be_sent_again(
    given: Given, replicas: list[PostgresStore], session: Any
) -> None:
    pages = [given.page(given.entry(name, given.intent(name)), token=None) for name in "abc"]
    await session.execute("BEGIN; SELECT 1 FROM feeds FOR UPDATE")
    first, *others = [asyncio.create_task(replicas[0].commit(page)) for page in pages]
    assert await asyncio.wait(others, timeout=MOMENT) == (set(), set(others))
    first.cancel()
    await asyncio.wait([first])
    [shared] = [task for task in asyncio.all_tasks() if task.get_name() == "store-commit"]
    shared.cancel()
    answers = await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), WAIT)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
    await session.execute("COMMIT")
    again = await asyncio.gather(*(replicas[0].commit(page) for page in pages))
    assert [type(answer) for answer in again] == [Committed] * 3
    assert sorted(await given.subjects()) == ["a", "b", "c"]


async def test_pushes_under_an_old_revision_are_all_stale(given: Given, replicas: list[PostgresStore]) -> None:
    paused = await replicas[1].pause("mail", "holiday")
    work = [replicas[0].commit(given.page(given.entry(name), token=None)) for name in "abcd"]
    assert [type(answer) for answer in await asyncio.gather(*work)] == [Stale] * 4
    assert paused.paused == "holiday"
