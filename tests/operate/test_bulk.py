"""Bulk actions have a plan with exact ids; it is executed once, and what it does not name stays as it is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from harken.errors import Forbidden, HarkenError, KeyReused, NotFound, Refused
from harken.operate.idempotency import Answer, once
from harken.operate.principal import Principal
from harken.runs import Dead, Failed
from harken.store import Settlement
from harken.store.document_kinds import PLAN, REQUEST
from tests.operate.operator_world import Office, trigger


async def fails(office: Office, *names: str, outcome: Any = None) -> None:
    for name in names:
        await office.fires(name)
    for one in await office.store.claim("w", 50, 60):
        ended = outcome or Failed(error=f"no {one.events[0].key}")
        await office.store.settle([Settlement(id=one.id, token=one.token, outcome=ended)])


async def statuses(office: Office) -> dict[str, str]:
    rows = (await office.ask("runs.list", trigger="oncall"))["items"]
    return {row["event_keys"][0]: row["status"] for row in rows}


async def test_a_plan_has_the_exact_ids_and_does_nothing_yet(office: Office) -> None:
    await fails(office, "A", "B", "C")
    plan = await office.ask("bulk.plan", action="retry", where='error.contains("B") || error.contains("C")')
    assert (plan["count"], plan["state"], len(plan["ids"])) == (2, "planned", 2)
    assert [sample["error"] for sample in plan["samples"]] == ["no B", "no C"]
    assert await statuses(office) == {"A": "failed", "B": "failed", "C": "failed"}


async def test_a_plan_that_is_asked_for_again_with_its_key_is_the_one_that_was_made(office: Office) -> None:
    await fails(office, "A")

    async def plan() -> Answer:
        answer = await office.ask("bulk.plan", action="retry", where='status == "failed"')
        return Answer(200, json.dumps(answer))

    first = json.loads((await once(office.store, "a", "k", "f", office.clock.now, plan)).body)
    # the process died before it had answered, and then there were more
    await office.store.delete(REQUEST, hashlib.sha256(b"a\nk").hexdigest())
    await fails(office, "B")
    again = json.loads((await once(office.store, "a", "k", "f", office.clock.now, plan)).body)
    assert again == first == await office.ask("bulk.show", id=first["id"])


async def test_a_plan_of_runs_that_moved_on_is_shown_when_it_is_asked_for_again_with_its_key(office: Office) -> None:
    id = await office.fires("A")

    async def plan() -> Answer:
        return Answer(200, json.dumps(await office.ask("bulk.plan", action="cancel", ids=[id])))

    first = json.loads((await once(office.store, "a", "k", "f", office.clock.now, plan)).body)
    # the process died before it had answered, and then the run was cancelled
    name = hashlib.sha256(b"a\nk").hexdigest()
    await office.store.put(REQUEST, name, {"asked": "f", "status": 0, "body": ""})
    await office.store.cancel(id, "by hand")

    def much_later() -> datetime:
        return office.clock.now() + timedelta(minutes=5)

    again = json.loads((await once(office.store, "a", "k", "f", much_later, plan)).body)
    assert again == first


async def test_a_key_that_has_made_a_plan_gets_no_other_and_is_free_when_the_plan_is_old(office: Office) -> None:
    await fails(office, "A")
    name = hashlib.sha256(b"a\nk").hexdigest()

    async def plan(**asked: str) -> Any:
        async def act() -> Answer:
            return Answer(200, json.dumps(await office.ask("bulk.plan", **asked)))

        # as if the process had died before it answered
        await office.store.delete(REQUEST, name)
        return json.loads((await once(office.store, "a", "k", str(asked), office.clock.now, act)).body)

    retry = {"action": "retry", "where": 'status == "failed"'}
    for other in ({**retry, "where": "true"}, {**retry, "action": "cancel"}, {**retry, "since": "1h"}):
        await plan(**retry)
        with pytest.raises(KeyReused, match="came with another plan"):
            await plan(**other)
    office.clock.advance(86_401)
    later = await plan(**{**retry, "where": "true"})
    assert (later["where"], later["count"], later["state"]) == ("true", 1, "planned")


async def test_executing_it_touches_only_what_it_names(office: Office) -> None:
    await fails(office, "A", "B")
    plan = await office.ask("bulk.plan", action="retry", where='status == "failed"')
    await fails(office, "C")
    done = await office.ask("bulk.execute", id=plan["id"])
    assert (done["state"], done["done"], done["refused"]) == ("executed", 2, [])
    assert await statuses(office) == {"A": "ready", "B": "ready", "C": "failed"}


async def test_a_plan_is_executed_once_and_expires(office: Office) -> None:
    await fails(office, "A")
    plan = await office.ask("bulk.plan", action="retry", where='status == "failed"')
    await office.ask("bulk.execute", id=plan["id"])
    with pytest.raises(Refused, match="executed already"):
        await office.ask("bulk.execute", id=plan["id"])
    late = await office.ask("bulk.plan", action="cancel", where='status == "ready"')
    office.clock.advance(3601)
    with pytest.raises(Refused, match="expired"):
        await office.ask("bulk.execute", id=late["id"])


async def test_what_changed_since_the_plan_is_refused_and_named(office: Office) -> None:
    await fails(office, "A", "B")
    plan = await office.ask("bulk.plan", action="retry", where='status == "failed"')
    await office.ask("runs.retry", id=plan["ids"][0])
    done = await office.ask("bulk.execute", id=plan["id"])
    assert (done["done"], [one["id"] for one in done["refused"]]) == (1, plan["ids"][:1])


async def test_runs_are_cancelled_and_dead_letters_dropped(office: Office) -> None:
    await fails(office, "A", outcome=Dead(error="gone"))
    await office.fires("B")
    dropped = await office.ask("bulk.plan", action="drop", where='trigger == "oncall"')
    cancelled = await office.ask("bulk.plan", action="cancel", where='trigger == "oncall"')
    assert (dropped["count"], cancelled["count"]) == (1, 1)
    await office.ask("bulk.execute", id=dropped["id"])
    await office.ask("bulk.execute", id=cancelled["id"])
    assert await statuses(office) == {"A": "cancelled", "B": "cancelled"}


async def test_a_replay_waits_a_minute_and_can_be_undone(office: Office) -> None:
    await office.fires("A")
    await office.shows(office.incident("B", urgency="low"))
    plan = await office.ask("bulk.plan", action="replay", where='type == "json.item"', trigger="oncall")
    done = await office.ask("bulk.execute", id=plan["id"])
    assert (done["done"], len(done["started"]), len(done["refused"])) == (1, 1, 1)
    undone = await office.ask("bulk.undo", id=plan["id"])
    assert (undone["state"], undone["cancelled"]) == ("undone", 1)
    assert (await office.ask("runs.show", id=done["started"][0]))["status"] == "cancelled"


async def test_a_replay_has_only_events_of_the_feed_that_its_trigger_listens_to(office: Office) -> None:
    await office.fires("A")
    plans = [
        await office.ask("bulk.plan", action="replay", where="true", trigger=name) for name in ("oncall", "deploys")
    ]
    assert [plan["count"] for plan in plans] == [1, 0]


async def test_a_replay_that_has_begun_is_not_undone(office: Office) -> None:
    await office.fires("A")
    plan = await office.ask("bulk.plan", action="replay", where="true", trigger="oncall")
    done = await office.ask("bulk.execute", id=plan["id"])
    office.clock.advance(61)
    await office.store.claim("w", 10, 60)
    assert (await office.ask("bulk.undo", id=plan["id"]))["cancelled"] == 0
    assert (await office.ask("runs.show", id=done["started"][0]))["status"] == "running"


@pytest.mark.parametrize(
    "asked",
    [
        {"action": "retry", "where": ""},
        {"action": "retry", "where": "  "},
        {"action": "retry", "where": "stats == 'failed'"},
        {"action": "retri", "where": "true"},
        {"action": "replay", "where": "true"},
        {"action": "cancel", "where": "true", "trigger": "oncall"},
        {"action": "drop", "where": "true", "since": "1h"},
        {"action": "replay", "where": "true", "trigger": "uncall"},
    ],
)
async def test_a_filter_that_got_lost_is_an_error(office: Office, asked: dict[str, str]) -> None:
    with pytest.raises(HarkenError):
        await office.ask("bulk.plan", **asked)


async def test_an_unknown_plan_is_refused(office: Office) -> None:
    with pytest.raises(HarkenError, match="there is no plan"):
        await office.ask("bulk.execute", id="0123")


async def test_held_runs_are_released_by_their_ids(office: Office) -> None:
    await office.ask("triggers.pause", name="oncall")
    held = [await office.fires(name) for name in ("A", "B", "C")]
    plan = await office.ask("bulk.plan", action="release", ids=[held[0][:12], held[2]])
    assert (plan["ids"], await statuses(office)) == ([held[0], held[2]], {"A": "held", "B": "held", "C": "held"})
    await office.store.release_run(held[2])
    done = await office.ask("bulk.execute", id=plan["id"])
    assert (done["done"], [one["reason"] for one in done["refused"]]) == (1, [f"run {held[2]} is not held any more"])
    assert await statuses(office) == {"A": "ready", "B": "held", "C": "ready"}
    by_filter = await office.ask("bulk.plan", action="release", where='trigger == "oncall"')
    assert by_filter["ids"] == [held[1]]
    with pytest.raises(Refused, match="nothing to release"):
        await office.ask("bulk.plan", action="release", ids=[held[0]])
    for wrong in (
        {"action": "release"},
        {"action": "drop", "ids": ["x"]},
        {"action": "release", "where": "x", "ids": "y"},
    ):
        with pytest.raises(HarkenError):
            await office.ask("bulk.plan", **wrong)


async def test_an_agent_plans_only_for_what_is_its_own(office: Office) -> None:
    office.operator.loaded = replace(
        office.loaded, triggers=(*office.loaded.triggers, trigger("anas", feed="deploys", owner="ana"))
    )
    await office.store.open(office.operator.loaded.definitions())
    await office.shows(office.incident("D"), feed="deploys")
    await office.fires("A")
    plan = await office.ask("bulk.plan", action="cancel", where='status == "ready"', agent="ana")
    assert [sample["trigger"] for sample in plan["samples"]] == ["anas"]
    assert (await office.ask("bulk.plan", action="cancel", where='status == "ready"'))["count"] == 3
    ana = office.operator.acting_as(Principal(name="token ana", role="operator", owner="ana"))
    assert (await ana.call("bulk.plan", action="cancel", where='status == "ready"'))["count"] == 1
    with pytest.raises(Forbidden):
        await ana.call("bulk.execute", id=plan["id"])


async def test_a_run_of_somebody_else_is_not_there_for_an_owner_who_names_it(office: Office) -> None:
    office.operator.loaded = replace(
        office.loaded, triggers=(*office.loaded.triggers, trigger("anas", feed="deploys", owner="ana"))
    )
    await office.store.open(office.operator.loaded.definitions())
    await office.shows(office.incident("D"), feed="deploys")
    runs = {run.trigger: run.id for run in (await office.store.runs(limit=10)).items}
    ana = office.operator.acting_as(Principal(name="token ana", role="operator", owner="ana"))
    told = []
    for id in (runs["deploys"], runs["deploys"][:13], "0" * 13):
        # it can be done to the first action's, and not to the second's
        for action in ("cancel", "retry"):
            with pytest.raises(NotFound) as refused:
                await ana.call("bulk.plan", action=action, ids=[runs["anas"], id])
            told.append((refused.value.message.replace(id, "…"), refused.value.fix))
    assert set(told) == {("there is no run …", "See: harken runs list")}
    assert (await ana.call("bulk.plan", action="cancel", ids=[runs["anas"]]))["count"] == 1
    assert (await office.ask("bulk.plan", action="cancel", ids=list(runs.values())))["count"] == 2


ANA = Principal(name="token ana", role="operator", owner="ana")
ANA_FOR_ONE = Principal(name="token ana", role="operator", owner="ana", triggers=("anas",))


@pytest.mark.parametrize(
    ("who", "name"),
    [(ANA, "oncal"), (ANA, "oncall"), (ANA, "deploy"), (ANA_FOR_ONE, "anas-to"), (ANA_FOR_ONE, "anas-too")],
)
async def test_a_plan_tells_no_names_of_triggers_that_the_token_may_not_see(
    who: Principal, name: str, office: Office
) -> None:
    mine = tuple(trigger(name, feed="deploys", owner="ana") for name in ("anas", "anas-too"))
    office.operator.loaded = replace(office.loaded, triggers=(*office.loaded.triggers, *mine))
    await office.store.open(office.operator.loaded.definitions())
    await office.shows(office.incident("D"), feed="deploys")
    theirs = office.operator.acting_as(who)
    with pytest.raises(NotFound, match=f"there is no trigger {name}$") as refused:
        await theirs.call("bulk.plan", action="replay", where="true", trigger=name)
    assert refused.value.fix == ""
    runs = {run.trigger: run.id for run in (await office.store.runs(limit=10)).items}
    assert (await theirs.call("bulk.plan", action="cancel", ids=[runs["anas"]]))["count"] == 1


async def test_a_token_for_some_triggers_plans_for_no_runs_of_its_owners_others(office: Office) -> None:
    mine = tuple(trigger(name, feed="deploys", owner="ana") for name in ("anas", "anas-too"))
    office.operator.loaded = replace(office.loaded, triggers=(*office.loaded.triggers, *mine))
    await office.store.open(office.operator.loaded.definitions())
    await office.shows(office.incident("D"), feed="deploys")
    runs = {run.trigger: run.id for run in (await office.store.runs(limit=10)).items}
    with pytest.raises(NotFound, match="there is no run"):
        await office.operator.acting_as(ANA_FOR_ONE).call("bulk.plan", action="cancel", ids=[runs["anas-too"]])
    assert (await office.operator.acting_as(ANA).call("bulk.plan", action="cancel", ids=[runs["anas-too"]]))[
        "count"
    ] == 1


async def test_an_execution_whose_process_died_goes_on_with_its_key_and_with_no_other(office: Office) -> None:
    ids = [await office.fires(f"INC-{n}") for n in range(3)]
    plan = await office.ask("bulk.plan", action="cancel", ids=ids)

    async def executed(key: str) -> Any:
        async def act() -> Answer:
            return Answer(200, json.dumps(await office.ask("bulk.execute", id=plan["id"])))

        return await once(office.store, "operator", key, "f", office.clock.now, act)

    await executed("k")
    document = await office.store.get(PLAN, plan["id"])
    assert document is not None
    # as it was after the first of three
    await office.store.put(PLAN, plan["id"], {**document.value, "state": "executing", "done": []})
    await office.store.delete(REQUEST, hashlib.sha256(b"operator\nk").hexdigest())
    with pytest.raises(Refused, match="being executed, or its process died"):
        await executed("another")
    again = json.loads((await executed("k")).body)
    assert again["state"] == "executed"
    assert again["done"] + len(again["refused"]) == 3
