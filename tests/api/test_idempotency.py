"""Requests with an Idempotency-Key: one effect and one answer, however often and however late they come again."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest

from harken.errors import AnswerLost, KeyReused, Refused, StillRunning
from harken.operate.idempotency import KEPT_SECONDS, STALLED_SECONDS, Answer, forget_old, new_id, once
from harken.runs import Dead
from harken.store import Settlement, Store
from harken.store.document_kinds import REQUEST, RETRIED
from tests.api.server import JSON, Reply, Served

RUN = "/api/workflows/oncall/run"
ROW = {
    "name": "mine",
    "provider": "schedule",
    "config": {"every": "1h"},
    "workflow": {"steps": [{"id": "say", "action": "transform", "set": {"text": "hi"}}]},
}


async def post(served: Served, path: str, body: Any, key: str) -> Reply:
    return await served.send("POST", path, json.dumps(body).encode(), {**JSON, "Idempotency-Key": key})


@pytest.mark.parametrize(("path", "body"), [(RUN, {"input": {"n": 1}}), ("/api/triggers", ROW)])
async def test_fifty_equal_requests_at_once_have_one_effect(served: Served, path: str, body: Any) -> None:
    replies = await asyncio.gather(*(post(served, path, body, "k-1") for _ in range(50)))
    last = await post(served, path, body, "k-1")
    good = [reply for reply in replies if reply.status < 300]
    assert {reply.status for reply in replies} <= {200, 201, 409}
    assert len({reply.json()["id"] for reply in [*good, last]}) == 1
    assert sum("idempotency-replayed" not in reply.headers for reply in good) == 1
    assert last.headers["idempotency-replayed"] == "true"
    runs = (await served.call("runs.list", limit=100))["items"]
    rows = await served.office.store.documents("trigger")
    assert len(runs) + len(rows) == 1


async def test_the_answer_that_is_given_again_has_the_headers_of_the_first(served: Served) -> None:
    first, again = [await post(served, "/api/triggers", ROW, "k-2") for _ in range(2)]
    assert (first.status, again.status, again.body) == (201, 201, first.body)
    assert (again.headers["etag"], again.headers["location"]) == (first.headers["etag"], first.headers["location"])


async def test_a_key_that_was_used_for_something_else_is_refused(served: Served) -> None:
    await post(served, RUN, {"input": {"n": 1}}, "k-3")
    for path, body in ((RUN, {"input": {"n": 2}}), ("/api/triggers/oncall/pause", {})):
        reply = await post(served, path, body, "k-3")
        assert (reply.status, reply.json()["code"]) == (422, "key_reused")


async def test_an_error_is_not_kept(served: Served) -> None:
    first = await post(served, "/api/workflows/nothing/run", {}, "k-4")
    assert (first.status, await served.office.store.documents(REQUEST)) == (404, [])


@pytest.mark.parametrize("key", ["a b", "x" * 256, ""])
async def test_what_is_no_key_is_refused(served: Served, key: str) -> None:
    assert (await post(served, RUN, {}, key)).status == 400


async def test_a_request_whose_process_died_after_its_effect_is_taken_over_and_has_no_second_one(
    served: Served,
) -> None:
    store, clock = served.office.store, served.office.clock
    first = await post(served, RUN, {"input": {"n": 1}}, "k-5")
    name = hashlib.sha256(b"operator\nk-5").hexdigest()
    document = await store.get(REQUEST, name)
    assert document is not None
    # as it was between the effect and the answer
    await store.put(REQUEST, name, {**document.value, "status": 0, "body": ""})
    too_early = await post(served, RUN, {"input": {"n": 1}}, "k-5")
    clock.advance(STALLED_SECONDS)
    again = await post(served, RUN, {"input": {"n": 1}}, "k-5")
    assert (too_early.status, too_early.json()["code"]) == (409, "still_running")
    assert (again.status, again.json()["id"]) == (200, first.json()["id"])
    assert len((await served.call("runs.list", limit=10))["items"]) == 1


async def test_a_row_whose_maker_died_before_it_answered_is_found_again(served: Served) -> None:
    store = served.office.store
    first = await post(served, "/api/triggers", ROW, "k-6")
    await store.delete(REQUEST, hashlib.sha256(b"operator\nk-6").hexdigest())
    again = await post(served, "/api/triggers", ROW, "k-6")
    assert (again.status, again.json()["id"]) == (201, first.json()["id"])


async def test_while_the_first_is_under_way_the_others_wait_and_another_key_does_not(served: Served) -> None:
    store, clock = served.office.store, served.office.clock
    begun, go = asyncio.Event(), asyncio.Event()

    async def act() -> Answer:
        begun.set()
        await go.wait()
        return Answer(200, str(new_id()))

    first = asyncio.create_task(once(store, "a", "k", "f", clock.now, act))
    await begun.wait()
    clock.advance(STALLED_SECONDS)
    with pytest.raises(StillRunning):
        await once(store, "a", "k", "f", clock.now, act)
    with pytest.raises(KeyReused):
        await once(store, "a", "k", "other", clock.now, act)
    go.set()
    answer = await first
    assert (await once(store, "a", "k", "f", clock.now, act))[:2] == answer[:2]
    assert (await once(store, "b", "k", "f", clock.now, act)).body != answer.body


async def test_answers_are_forgotten_after_a_day(served: Served) -> None:
    await post(served, RUN, {}, "k-7")
    store, clock = served.office.store, served.office.clock
    assert await forget_old(store, clock.now()) == 0
    clock.advance(KEPT_SECONDS + 1)
    assert await forget_old(store, clock.now()) == 1
    assert await store.documents(REQUEST) == []


def test_without_a_key_every_id_is_new() -> None:
    assert new_id("a") != new_id("a")


async def test_the_secret_of_a_token_is_shown_once_and_a_repetition_has_no_effect(served: Served) -> None:
    first, again = [await post(served, "/api/tokens", {"name": "laptop"}, "k-8") for _ in range(2)]
    rotated = [await post(served, "/api/tokens/laptop/rotate", {}, "k-9") for _ in range(2)]
    assert (first.status, again.status, again.json()["code"]) == (201, 409, "answer_lost")
    assert (rotated[0].status, rotated[1].status, rotated[1].json()["code"]) == (200, 409, "answer_lost")
    kept = json.dumps([document.value for document in await served.office.store.documents(REQUEST)])
    assert first.json()["token"] not in kept
    assert (await served.office.operator.authenticate(rotated[0].json()["token"])).name == "token laptop"


async def test_what_a_process_that_died_may_have_done_is_not_done_again(served: Served) -> None:
    store, clock = served.office.store, served.office.clock
    tries: list[int] = []

    async def refused() -> Answer:
        tries.append(1)
        raise Refused("run 1 is done already")

    name = hashlib.sha256(b"a\nk").hexdigest()
    await store.put(REQUEST, name, {"asked": "f", "status": 0, "body": ""})
    clock.advance(STALLED_SECONDS)
    for _ in range(2):
        with pytest.raises(AnswerLost, match="may have been done: run 1 is done already"):
            await once(store, "a", "k", "f", clock.now, refused)
    assert len(tries) == 1


async def test_a_retry_whose_process_died_before_its_answer_is_not_done_again(served: Served) -> None:
    store, clock = served.office.store, served.office.clock
    run_id = await served.office.fires("A")
    await die(store)
    first = await post(served, f"/api/runs/{run_id}/retry", {}, "k-10")
    name = hashlib.sha256(b"operator\nk-10").hexdigest()
    document = await store.get(REQUEST, name)
    assert document is not None
    # as it was between the effect and the answer; meanwhile the run died once more
    await store.put(REQUEST, name, {**document.value, "status": 0, "body": ""})
    await die(store)
    clock.advance(STALLED_SECONDS)
    again = await post(served, f"/api/runs/{run_id}/retry", {}, "k-10")
    assert (first.status, again.status, again.json()["status"]) == (200, 200, "dead")
    assert await store.claim("w", 1, 60) == []
    clock.advance(KEPT_SECONDS + 1)
    await forget_old(store, clock.now())
    assert [await store.documents(kind) for kind in (REQUEST, RETRIED)] == [[], []]


async def die(store: Store) -> None:
    [claim] = await store.claim("w", 1, 60)
    await store.settle([Settlement(id=claim.id, token=claim.token, outcome=Dead(error="x"))])
