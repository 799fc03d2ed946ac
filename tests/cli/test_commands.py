"""Commands against a running controller."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harken.cli.output import plain_table
from harken.event import Event
from harken.runs import Dead
from harken.store import Settlement
from tests.cli.conftest import Desk
from tests.operate.operator_world import POLLED


async def test_triggers_are_a_plain_table_when_nobody_watches(desk: Desk) -> None:
    code, out, _ = await desk.types("triggers", "list")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split()[:3] == ["name", "type", "status"]
    assert [line.split()[0] for line in lines[1:]] == ["deploys", "digest", "oncall"]


async def test_lists_are_arrays_of_flat_objects_with_json(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"))
    for command in ("triggers", "feeds", "events", "runs", "dead", "workflows", "models"):
        assert isinstance(await desk.json(command, "list"), list)
    assert [row["name"] for row in await desk.json("triggers", "list", "--type", "poll")] == ["digest", "oncall"]


async def test_a_test_prints_what_would_fire_and_why_the_rest_would_not(desk: Desk) -> None:
    code, out, _ = await desk.types("triggers", "test", "oncall")
    assert code == 0
    assert "INC-2" in out
    assert "urgency is low" in out
    assert out.endswith("1 of 2 items would start a run. Nothing was changed.\n")


async def test_events_list_and_triggers_test_show_a_title_beside_the_key(desk: Desk) -> None:
    data = {"urgency": "high", "summary": "The disk\tis full " + "x" * 100}
    await desk.office.shows(Event(subject="INC-1", type="json.item", data=data, occurred_at=desk.office.clock.now()))
    _, listed, _ = await desk.types("events", "list")
    assert "INC-1  The disk is full xxx" in listed
    assert len((await desk.json("events", "list"))[0]["title"]) == 60
    _, tested, _ = await desk.types("triggers", "test", "oncall")
    assert "INC-1  Disk full  " in tested


async def test_what_would_be_forgotten_is_said_before_it_is_done(desk: Desk) -> None:
    data = {"urgency": "high", "summary": "of ana@example.com"}
    await desk.office.shows(Event(subject="INC-1", type="json.item", data=data, occurred_at=desk.office.clock.now()))
    code, looked, _ = await desk.types("events", "forget", "--subject", "ana@example.com")
    assert (code, looked) == (0, "This would remove: 1 event, 2 runs, 0 notes.\nIf you mean it: --yes\n")
    _, done, _ = await desk.types("events", "forget", "--subject", "ana@example.com", "--yes")
    assert done.startswith("Removed: 1 event, 2 runs, 0 refused events, 0 notes.\n")
    assert "Not removed: " in done
    _, listed, _ = await desk.types("events", "list")
    assert "INC-1" not in listed


async def test_explain_works_at_the_top_and_under_triggers(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-2", urgency="low"))
    top = await desk.types("explain", "oncall", "INC-2")
    under = await desk.types("triggers", "explain", "oncall", "INC-2")
    assert top == under
    assert "the condition was not met" in top[1]


async def test_a_trigger_is_paused_and_resumed(desk: Desk) -> None:
    _, out, _ = await desk.types("triggers", "pause", "oncall", "--reason", "holiday")
    assert out.startswith("oncall is paused: paused by a person: holiday")
    assert (await desk.json("triggers", "resume", "oncall"))["paused"] == ""


async def test_reset_of_a_cursor_without_a_terminal_needs_yes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = await desk.types("triggers", "reset", "oncall", "--cursor")
    assert code == 1
    assert "--cursor --yes" in err
    assert (await desk.types("triggers", "reset", "oncall", "--cursor", "--yes"))[0] == 0


async def test_a_trigger_is_run_now(desk: Desk) -> None:
    assert (await desk.json("triggers", "run", "oncall"))["new"] == 1
    assert desk.engine.ticked == [POLLED.name]


async def test_events_are_shown_with_verdicts_and_replayed(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"))
    _, shown, _ = await desk.types("events", "show", "1")
    assert "oncall" in shown
    assert "fired" in shown
    assert len(await desk.json("events", "replay", "1", "--trigger", "oncall")) == 1


async def test_text_of_strangers_cannot_move_the_cursor(desk: Desk) -> None:
    wild = Event(subject="\x1b[2Jboo", type="json.item", data={"urgency": "low"}, occurred_at=desk.office.clock.now())
    await desk.office.shows(wild)
    _, out, _ = await desk.types("events", "list")
    assert "\x1b" not in out
    assert "boo" in out


async def test_a_dead_run_is_listed_shown_and_retried_by_the_beginning_of_its_id(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"))
    claimed = (await desk.office.store.claim("w", 1, 60))[0]
    await desk.office.store.settle([Settlement(id=claimed.id, token=claimed.token, outcome=Dead(error="no"))])
    assert [row["id"] for row in await desk.json("dead", "list")] == [claimed.id]
    assert (await desk.json("runs", "show", claimed.id[:10]))["status"] == "dead"
    _, out, _ = await desk.types("runs", "retry", claimed.id[:10])
    assert out == f"run {claimed.id} is ready\n"


async def test_status_and_doctor_and_the_list_name_what_needs_a_person(desk: Desk) -> None:
    assert (await desk.types("status"))[0] == 0
    await desk.office.shows(*(desk.office.incident(f"INC-{number}") for number in range(120)), first=True)
    code, out, _ = await desk.types("status")
    assert code == 1
    assert "oncall is degraded: 120 runs held by the flood guard" in out
    assert "harken triggers release oncall" in out
    for command in (("triggers", "list"), ("triggers", "list", "--type", "poll"), ("doctor",)):
        assert "harken triggers release oncall" in (await desk.types(*command))[1]
    for name in ("oncall", "digest"):
        await desk.types("triggers", "release", name)
    assert (await desk.types("status"))[0] == 0


async def test_the_list_names_the_command_that_frees_a_paused_trigger(desk: Desk) -> None:
    await desk.types("triggers", "pause", "oncall", "--reason", "holiday")
    assert "harken triggers resume oncall" in (await desk.types("triggers", "list"))[1]


async def test_dead_runs_of_a_trigger_are_retried_with_the_revision_told(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"))
    claimed = (await desk.office.store.claim("w", 1, 60))[0]
    await desk.office.store.settle([Settlement(id=claimed.id, token=claimed.token, outcome=Dead(error="no"))])
    assert (await desk.types("dead", "retry"))[0] == 2
    code, out, _ = await desk.types("dead", "retry", "--trigger", "oncall")
    assert (code, out) == (0, f"run {claimed.id} is ready, with the current workflow (revision r1)\n")
    assert (await desk.types("dead", "retry", "--all"))[1] == "No dead runs.\n"


async def test_dead_retry_says_that_the_corrected_workflow_is_used_and_how_to_keep_the_old_one(desk: Desk) -> None:
    office = desk.office
    await office.shows(office.incident("INC-1"))
    claimed = (await office.store.claim("w", 1, 60))[0]
    await office.store.settle([Settlement(id=claimed.id, token=claimed.token, outcome=Dead(error="no"))])
    flow = msgspec.structs.replace(office.loaded.workflows["oncall"], rev="r2")
    office.operator.loaded = replace(office.loaded, workflows={"oncall": flow})
    await office.store.open(office.operator.loaded.definitions())
    assert (await desk.types("dead", "retry", "--all", "--same", "--latest"))[0] == 2
    code, out, _ = await desk.types("dead", "retry", claimed.id[:12])
    now = "with the workflow as it is now (revision r2), as r1 cannot work; to keep that: --same"
    assert (code, out) == (0, f"run {claimed.id} is ready, {now}\n")


async def test_status_and_doctor_say_since_when_we_are_offline(desk: Desk) -> None:
    since = desk.office.clock.time() - 1_200
    message = "offline: could not connect to api.example"
    await desk.office.fails(message, failures=0, code="offline", offline_since=since)
    code, out, _ = await desk.types("status")
    assert (code, "Offline since " in out, "It goes on by itself" in out) == (0, True, True)
    assert "offline since " in (await desk.types("doctor"))[1]


async def test_a_workflow_is_run_with_input_from_a_file(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"who": "Ada"}')
    started = await desk.json("workflows", "run", "oncall", "--input", f"@{tmp_path / 'in.json'}")
    assert (await desk.json("runs", "show", started["id"]))["input"] == {"who": "Ada"}


async def test_an_input_that_is_not_json_is_one_line_with_the_fix(desk: Desk) -> None:
    code, _, err = await desk.types("workflows", "run", "oncall", "--input", "nope")
    assert code == 1
    assert err.startswith("harken: the input cannot be read")


async def test_status_doctor_and_diff_are_told(desk: Desk) -> None:
    assert (await desk.json("status"))["running"]
    assert "The controller runs: pid 1" in (await desk.types("status"))[1]
    assert (await desk.types("doctor"))[0] == 0
    assert "workflow:new" in (await desk.types("diff"))[1]
    assert (await desk.types("reload"))[0] == 0


async def test_the_store_is_checked_and_backed_up(desk: Desk, tmp_path: Path) -> None:
    assert (await desk.types("store", "check"))[1] == "The store is sound.\n"
    assert (await desk.types("store", "backup", str(tmp_path / "copy.db")))[0] == 0
    assert (tmp_path / "copy.db").exists()


async def test_restore_is_refused_while_a_controller_runs(desk: Desk, tmp_path: Path) -> None:
    code, _, err = await desk.types("store", "restore", str(tmp_path / "copy.db"))
    assert code == 1
    assert "a controller is running" in err
    assert "harken controller stop" in err


async def test_compacting_is_refused_while_a_controller_runs(desk: Desk) -> None:
    code, _, err = await desk.types("store", "compact")
    assert code == 1
    assert "a controller is running" in err
    assert "harken controller stop" in err


async def test_the_controller_is_found(desk: Desk) -> None:
    assert (await desk.json("controller", "status"))["url"] == desk.served.controller.url


async def test_errors_are_a_line_and_its_fix_on_standard_error(desk: Desk) -> None:
    code, out, err = await desk.types("triggers", "show", "oncal")
    assert (code, out) == (1, "")
    assert err == "harken: there is no trigger oncal\n  Did you mean oncall?\n"


async def test_the_directory_may_be_named_after_the_command_too(desk: Desk, tmp_path: Path) -> None:
    code, out, _ = await desk.types("triggers", "list", "--config", str(tmp_path), "--json")
    assert code == 0
    assert len(json.loads(out)) == 3


def test_plain_columns_are_as_wide_as_their_widest_cell() -> None:
    assert plain_table(["a", "b"], [["long", "x"], ["s", "y"]]) == "a     b\nlong  x\ns     y"


async def test_a_read_by_hand_that_fails_exits_1(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(feed: str, by_hand: str = "") -> dict[str, object]:
        return {"result": "error", "seen": 0, "new": 0, "error": "api.example answered 401"}

    monkeypatch.setattr(desk.engine, "tick", fails)
    code, out, _ = await desk.types("triggers", "run", "oncall")
    assert (code, "api.example answered 401" in out) == (1, True)


async def test_the_addresses_of_webhooks_are_listed(desk: Desk) -> None:
    [row] = await desk.json("webhooks")
    code, out, _ = await desk.types("webhooks")
    assert code == 0
    assert row["address"] in out
    assert "harken webhooks --curl ID" in out
    code, _, wrong = await desk.types("webhooks", "--curl", "nonsense")
    assert code != 0
    assert "there is no webhook nonsense" in wrong
