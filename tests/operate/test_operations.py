"""What a person may do, on a real store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.config.settings import Models, Retention, Settings
from harken.errors import Misconfigured, NotFound, Refused
from harken.operate.operator import OPERATIONS, Operator
from harken.runs import Dead, Park, StepRecord
from harken.source import Announced
from harken.store import Settlement
from tests.operate.operator_world import POLLED, Office

RUN = {
    "id",
    "trigger",
    "workflow",
    "status",
    "event_keys",
    "attempt",
    "created_at",
    "started_at",
    "finished_at",
    "error",
}
EVENT = {"id", "feed", "key", "subject", "type", "occurred_at", "recorded_at", "data", "verdicts"}


async def dead_run(office: Office, name: str = "INC-1", journal: tuple[StepRecord, ...] = ()) -> str:
    await office.shows(office.incident(name))
    return await dies(office, journal)


async def dies(office: Office, journal: tuple[StepRecord, ...]) -> str:
    """The next run is executed, and dies."""
    claimed = (await office.store.claim("w", 1, 60))[0]
    await office.store.journal(claimed.id, claimed.token, journal)
    await office.store.settle([Settlement(id=claimed.id, token=claimed.token, outcome=Dead(error="no"))])
    return claimed.id


async def test_runs_and_events_have_their_stable_names(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    runs = (await office.ask("runs.list", trigger="oncall"))["items"]
    events = (await office.ask("events.list"))["items"]
    assert set(runs[0]) >= RUN
    assert set(events[0]) >= EVENT
    assert runs[0]["event_keys"] == ["INC-1"]
    assert {v["trigger"]: v["outcome"] for v in events[0]["verdicts"]} == {"oncall": "fired", "digest": "gathered"}


async def test_a_feed_with_a_doorbell_shows_how_many_changes_it_missed(office: Office) -> None:
    shown = await office.ask("feeds.show", name=POLLED.name)
    assert (shown["announced"], shown["unannounced"]) == (None, None)
    office.engine.bells[POLLED.name] = Announced(announced=97, missed=3, since=office.clock.now())
    shown = await office.ask("feeds.show", name=POLLED.name)
    assert (shown["announced"], shown["unannounced"]) == (97, 3)


async def test_large_values_of_a_run_are_left_away_if_asked_for_and_listed_with_their_sizes(office: Office) -> None:
    steps = [
        StepRecord(path=name, action="transform", status="ok", output=name * size)
        for name, size in (("a", 9), ("b", 99))
    ]
    run = await dead_run(office, journal=tuple(steps))
    whole, short = await office.ask("runs.show", id=run), await office.ask("runs.show", id=run, cut=50)
    assert "cut" not in whole
    assert short["cut"] == [{"place": "steps.1.output", "bytes": 101}]
    assert [step["output"] for step in whole["steps"]] == ["a" * 9, "b" * 99]
    assert [step["output"] for step in short["steps"]] == ["a" * 9, None]


async def test_every_answer_is_made_of_the_types_of_json(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    reads: list[tuple[str, dict[str, Any]]] = [
        ("status", {}),
        ("doctor", {}),
        ("triggers.list", {}),
        ("triggers.show", {"name": "oncall"}),
        ("triggers.test", {"name": "oncall"}),
        ("triggers.explain", {"name": "oncall", "key": "INC-1"}),
        ("feeds.list", {}),
        ("feeds.show", {"name": POLLED.name}),
        ("events.show", {"id": 1}),
        ("workflows.list", {}),
        ("models.list", {}),
    ]
    for operation, params in reads:
        answer = await office.ask(operation, **params)
        assert msgspec.json.decode(msgspec.json.encode(answer)) == answer


async def test_triggers_are_listed_by_name_with_type_and_status(office: Office) -> None:
    rows = (await office.ask("triggers.list"))["items"]
    assert [(row["name"], row["type"]) for row in rows] == [
        ("deploys", "webhook"),
        ("digest", "poll"),
        ("oncall", "poll"),
    ]
    polled = (await office.ask("triggers.list", type="poll"))["items"]
    assert [row["name"] for row in polled] == ["digest", "oncall"]


async def test_a_trigger_that_no_controller_has_opened_is_listed_as_new(office: Office) -> None:
    added = msgspec.structs.replace(office.loaded.triggers[0], name="added")
    office.operator.loaded = replace(office.loaded, triggers=(*office.loaded.triggers, added))
    rows = {row["name"]: row for row in (await office.ask("triggers.list"))["items"]}
    assert (rows["added"]["status"], rows["added"]["reason"]) == ("new", "no controller has opened it yet")


async def test_a_test_tells_what_would_fire_and_why_the_rest_would_not(office: Office) -> None:
    answer = await office.ask("triggers.test", name="oncall")
    assert answer["sentence"] == "1 of 2 items would start a run"
    assert answer["shown"][1]["reason"] == "urgency is low"


async def test_pause_holds_and_resume_releases(office: Office) -> None:
    paused = await office.ask("triggers.pause", name="oncall", reason="holiday")
    assert (paused["status"], paused["reason"]) == ("paused", "paused by a person: holiday")
    await office.shows(office.incident("INC-1"))
    assert (await office.ask("runs.list", trigger="oncall"))["items"][0]["status"] == "held"
    assert (await office.ask("triggers.resume", name="oncall"))["status"] != "paused"
    assert (await office.ask("runs.list", trigger="oncall"))["items"][0]["status"] == "ready"
    assert office.engine.nudges == 2


async def test_reset_clears_errors_and_keeps_the_cursor(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    await office.fails("no", state="paused", blocked_until=None)
    assert (await office.ask("triggers.reset", name="oncall"))["status"] == "healthy"
    assert await office.store.memory_of(POLLED.name, "INC-1") is not None


async def test_reset_of_the_cursor_needs_a_yes_and_names_who_else_listens(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    with pytest.raises(Refused) as raised:
        await office.ask("triggers.reset", name="oncall", cursor=True)
    assert "digest also listens" in raised.value.message
    assert "--cursor --yes" in raised.value.fix
    await office.ask("triggers.reset", name="oncall", cursor=True, yes=True)
    assert await office.store.memory_of(POLLED.name, "INC-1") is None


async def test_drop_cancels_what_is_held(office: Office) -> None:
    await office.shows(office.incident("INC-1"), first=True)
    assert await office.ask("triggers.drop", name="oncall") == {"trigger": "oncall", "dropped": 1}
    assert (await office.ask("runs.list", trigger="oncall"))["items"][0]["status"] == "cancelled"


async def test_run_reads_the_feed_of_a_polled_trigger(office: Office) -> None:
    answer = await office.ask("triggers.run", name="oncall")
    assert (answer["feed"], answer["new"]) == (POLLED.name, 1)
    assert office.engine.ticked == [POLLED.name]


async def test_run_of_a_webhook_trigger_is_refused_with_what_to_do(office: Office) -> None:
    with pytest.raises(Refused) as raised:
        await office.ask("triggers.run", name="deploys")
    assert "harken workflows run oncall" in raised.value.fix


async def test_replay_starts_another_run_of_the_same_event(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    answer = await office.ask("events.replay", id=1, trigger="oncall")
    assert answer["runs"][0]["replay_of"]
    rows = (await office.ask("runs.list", trigger="oncall"))["items"]
    assert [row["event_keys"] for row in rows] == [["INC-1"], ["INC-1"]]


async def test_replay_of_a_filtered_event_makes_the_input_that_the_mapping_asks_for(office: Office) -> None:
    mapped = msgspec.structs.replace(office.loaded.triggers[0], mapping={"id": "{{.trigger.event.id}}"})
    office.operator.loaded = replace(office.loaded, triggers=(mapped, *office.loaded.triggers[1:]))
    await office.shows(office.incident("INC-2", urgency="low"))
    started = (await office.ask("events.replay", id=1, trigger="oncall"))["runs"][0]
    assert (await office.ask("runs.show", id=started["id"]))["input"] == {"id": "INC-2"}


async def test_replay_of_an_event_that_names_its_pipeline_starts_that_one_and_is_watched(office: Office) -> None:
    routed = msgspec.structs.replace(
        office.loaded.triggers[0], routes={"fix-bug": office.loaded.triggers[0].workflow_rev}
    )
    office.operator.loaded = replace(office.loaded, triggers=(routed, *office.loaded.triggers[1:]))
    for number, pipeline in enumerate(("fix-bug", "gone")):
        data = {"id": f"INC-{number}", "urgency": "high", "pipeline": pipeline}
        await office.shows(msgspec.structs.replace(office.incident(f"INC-{number}"), data=data))
    started = (await office.ask("events.replay", id=1, trigger="oncall"))["runs"][0]
    assert [run.id for run in await office.store.moved_runs()] == [started["id"]]
    with pytest.raises(Refused, match="'gone', which is not configured now"):
        await office.ask("events.replay", id=2, trigger="oncall")


async def test_replay_of_an_event_that_started_nothing_asks_for_a_trigger(office: Office) -> None:
    await office.shows(office.incident("deploy"), feed="deploys")
    await office.shows(office.incident("INC-0", age=7200))
    with pytest.raises(Refused) as raised:
        await office.ask("events.replay", id=2)
    assert "--trigger NAME" in raised.value.fix


async def test_a_dead_run_is_listed_and_retried(office: Office) -> None:
    run_id = await dead_run(office)
    assert [row["id"] for row in (await office.ask("dead.list"))["items"]] == [run_id]
    assert (await office.ask("dead.retry", id=run_id))["status"] == "ready"
    assert (await office.ask("dead.list"))["items"] == []


async def test_a_dead_run_is_dropped_once(office: Office) -> None:
    run_id = await dead_run(office)
    assert (await office.ask("dead.drop", id=run_id))["dropped"]
    with pytest.raises(NotFound):
        await office.ask("dead.drop", id=run_id)


async def test_only_what_is_over_can_be_retried_and_only_what_is_not_cancelled(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    run_id = (await office.ask("runs.list", trigger="oncall"))["items"][0]["id"]
    with pytest.raises(Refused, match="is ready"):
        await office.ask("runs.retry", id=run_id)
    assert (await office.ask("runs.cancel", id=run_id))["status"] == "cancelled"
    with pytest.raises(Refused, match="cancelled already"):
        await office.ask("runs.cancel", id=run_id)


async def test_retry_with_the_latest_workflow_takes_its_revision(office: Office) -> None:
    run_id = await dead_run(office)
    await office.ask("runs.retry", id=run_id, latest=True)
    assert (await office.ask("runs.show", id=run_id))["workflow_rev"] == "r1"


async def test_approve_answers_only_a_run_that_waits_for_a_person(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    claimed = (await office.store.claim("w", 1, 60))[0]
    with pytest.raises(Refused, match="does not wait"):
        await office.ask("runs.approve", id=claimed.id)
    await office.store.park(claimed.id, claimed.token, Park(waiting_for="approval"))
    assert (await office.ask("runs.approve", id=claimed.id, approved=False, comment="no"))["status"] == "ready"
    answer = (await office.store.claim("w", 1, 60))[0].answer
    assert (answer["approved"], answer["comment"]) == (False, "no")


async def test_a_workflow_is_run_by_hand_with_an_input(office: Office) -> None:
    started = await office.ask("workflows.run", name="oncall", input={"who": "Ada"})
    run = await office.ask("runs.show", id=started["id"])
    assert (run["workflow"], run["input"], run["status"]) == ("oncall", {"who": "Ada"}, "ready")


async def test_a_status_that_no_run_has_is_refused_with_a_suggestion(office: Office) -> None:
    with pytest.raises(Refused) as raised:
        await office.ask("runs.list", status="finished")
    assert "There are: blocked" in raised.value.fix


async def test_status_counts_and_names_what_needs_a_look(office: Office) -> None:
    await office.fails("api.example answered 503")
    answer = await office.ask("status")
    assert answer["running"]
    assert answer["triggers"] == {"healthy": 1, "degraded": 2}
    assert answer["attention"][0]["name"] == "digest"
    assert answer["attention"][0]["fixes"] == ["triggers.run"]


async def test_changes_stand_in_the_audit_log_without_inputs(office: Office) -> None:
    await office.ask("workflows.run", name="oncall", input={"password": "hunter2"})
    await office.ask("triggers.pause", name="oncall", reason="holiday")
    audits = (await office.store.audits()).items
    assert [(audit["did"], audit["what"]) for audit in audits] == [
        ("triggers.pause", "oncall"),
        ("workflows.run", "oncall"),
    ]
    assert "hunter2" not in str(audits)


async def test_the_audit_log_names_what_was_changed_by_its_whole_id(office: Office) -> None:
    run = (await office.ask("workflows.run", name="oncall"))["id"]
    await office.ask("runs.cancel", id=run[:12])
    again = await office.ask("runs.rerun", id=run[:12], latest=True)
    plan = await office.ask("bulk.plan", action="cancel", ids=[again["id"]])
    audits = (await office.store.audits()).items
    assert [(audit["did"], audit["what"], audit["detail"]) for audit in audits[:3]] == [
        ("bulk.plan", plan["id"], {"action": "cancel"}),
        ("runs.rerun", run, {"latest": True}),
        ("runs.cancel", run, {}),
    ]


async def test_a_backup_never_overwrites(office: Office, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    answer = await office.ask("store.backup", target=str(target))
    assert answer["bytes"] > 0
    with pytest.raises(Refused, match="exists already"):
        await office.ask("store.backup", target=str(target))


async def test_a_sound_store_has_no_problems(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    found = await office.ask("store.check")
    assert (found["ok"], found["problems"], found["space"]["advice"]) == (True, [], "")


async def test_what_is_kept_for_how_long_is_as_configured_and_counted(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    office.operator.loaded = replace(
        office.loaded, settings=Settings(retention=Retention(events="36h", audit="400d", keep_last=0))
    )
    rows = {row["name"]: row for row in (await office.ask("store.retention"))["items"]}
    assert set(rows) == set(Retention.model_fields)
    assert (rows["events"]["keeps"], rows["events"]["keep_seconds"], rows["events"]["stored"]) == ("1d12h", 129_600, 1)
    assert (rows["runs"]["keeps"], rows["runs"]["stored"]) == ("30d", 2)
    assert (rows["audit"]["keeps"], rows["audit"]["stored"]) == ("400d", None)
    assert rows["keep_last"]["keeps"] == "none"


async def test_what_needs_an_engine_says_to_start_one(office: Office) -> None:
    alone = Operator(office.store, None, office.loaded, office.clock)
    with pytest.raises(Refused) as raised:
        await alone.call("triggers.run", name="oncall")
    assert raised.value.fix == "Start one with: harken start"


async def test_the_tail_yields_what_is_committed_then_a_beat_and_ends_with_the_engine(office: Office) -> None:
    await office.shows(office.incident("INC-1"), office.incident("INC-2"))
    told = [event async for event in office.operator.tail(0)]
    assert [event and event["key"] for event in told] == ["INC-1", "INC-2", None]


async def test_the_tail_goes_on_after_an_id(office: Office) -> None:
    await office.shows(office.incident("INC-1"), office.incident("INC-2"))
    told = [event async for event in office.operator.tail(1)]
    assert [event["key"] for event in told if event] == ["INC-2"]


async def test_the_echo_model_answers_offline(office: Office) -> None:
    office.operator.loaded = replace(office.loaded, settings=Settings(models=Models(default="echo")))
    answer = await office.ask("models.test")
    assert answer["model"] == "echo"
    assert "ready" in answer["answer"]


async def test_an_unknown_operation_is_answered_with_the_nearest(office: Office) -> None:
    with pytest.raises(NotFound) as raised:
        await office.ask("trigger.list")
    assert raised.value.fix == "Did you mean triggers.list?"
    assert "triggers.list" in OPERATIONS


async def test_dead_drop_takes_a_prefix(office: Office) -> None:
    run_id = await dead_run(office)
    assert (await office.ask("dead.drop", id=run_id[:10]))["id"] == run_id
    assert (await office.ask("dead.list"))["items"] == []


async def test_all_dead_runs_of_a_trigger_are_retried_at_once(office: Office) -> None:
    first, second = await dead_run(office), await dead_run(office, "INC-8")
    assert (await office.ask("dead.retry_all", trigger="digest"))["retried"] == 0
    with pytest.raises(NotFound):
        await office.ask("dead.retry_all", trigger="nobody")
    answer = await office.ask("dead.retry_all", trigger="oncall")
    assert ([run["id"] for run in answer["items"]], answer["refused"]) == ([first, second], [])
    assert (await office.ask("dead.list"))["items"] == []


async def correct(office: Office) -> None:
    """The workflow gets another revision."""
    flow = msgspec.structs.replace(office.loaded.workflows["oncall"], rev="r2")
    office.operator.loaded = replace(office.loaded, workflows={"oncall": flow})
    await office.store.open(office.operator.loaded.definitions())


async def test_dead_retry_says_which_revision_it_uses_and_offers_both(office: Office) -> None:
    run_id = await dead_run(office)
    await correct(office)
    kept = await office.ask("dead.retry", id=run_id, same=True)
    assert (kept["workflow_rev"], kept["began_with"], kept["current_rev"]) == ("r1", "r1", "r2")
    await office.ask("runs.cancel", id=run_id)
    other = await dead_run(office, "INC-8")
    assert (await office.ask("dead.retry", id=other, latest=True))["workflow_rev"] == "r2"
    with pytest.raises(Misconfigured, match="exclude each other"):
        await office.ask("dead.retry", id=other, latest=True, same=True)


DONE = StepRecord(path="ask", action="llm", status="ok")
SENT = StepRecord(path="first", action="notify", status="ok")


def failed(code: str) -> StepRecord:
    return StepRecord(path="tell", action="notify", status="failed", error="no", code=code)


@pytest.mark.parametrize(
    ("journal", "uses", "why"),
    [
        ((failed("attention"),), "r2", "cannot_work"),
        ((DONE, failed("misconfigured")), "r2", "cannot_work"),
        ((failed("retry"), failed("refused")), "r2", "cannot_work"),
        ((), "r2", "cannot_work"),
        ((failed("retry"),), "r1", "may_work"),
        ((failed("attention"), failed("timeout")), "r1", "may_work"),
        ((failed(""),), "r1", "may_work"),
        ((SENT, failed("attention")), "r1", "steps_done"),
    ],
)
async def test_dead_retry_uses_the_corrected_workflow_when_the_old_one_cannot_work(
    office: Office, journal: tuple[StepRecord, ...], uses: str, why: str
) -> None:
    run_id = await dead_run(office, journal=journal)
    unchanged = await office.ask("dead.retry", id=run_id)
    assert (unchanged["workflow_rev"], unchanged["chosen_because"]) == ("r1", "unchanged")
    await dies(office, ())
    await correct(office)
    found = await office.ask("dead.retry", id=run_id)
    assert (found["workflow_rev"], found["chosen_because"]) == (uses, why)
    assert (await office.ask("runs.show", id=run_id))["workflow_rev"] == uses
