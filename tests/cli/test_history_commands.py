"""Commands on what is stored: backtest, replay, bulk, rerun, and filters of lists."""

from __future__ import annotations

from harken.runs import Finished, StepRecord
from harken.store import Settlement
from tests.cli.conftest import Desk


async def test_a_backtest_prints_parity_and_difference(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"), desk.office.incident("INC-2", urgency="low"))
    code, out, _ = await desk.types("triggers", "backtest", "oncall", "--condition", "true", "--last", "1h")
    assert code == 0
    assert "unchanged rules give the recorded verdict for all 2 that were checked (100%)" in out
    assert "with the changed condition 1 more would fire, 0 would no longer, 1 stay as they are" in out


async def test_a_span_is_replayed_dry_and_then_for_real(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"))
    span = ("events", "replay", "--since", "1h", "--trigger", "oncall", "--replay-id", "mine")
    _, dry, _ = await desk.types(*span, "--dry")
    assert dry.endswith("replay mine: 1 events would start 1 runs\n")
    _, real, _ = await desk.types(*span)
    assert real.endswith("replay mine: 1 events started 1 runs\n")
    assert len(await desk.json("runs", "list", "--where", 'trigger == "oncall"')) == 2


async def test_a_span_without_a_trigger_is_a_usage_error(desk: Desk) -> None:
    code, _, err = await desk.types("events", "replay", "--since", "1h")
    assert (code, "--trigger NAME" in err) == (2, True)


async def test_a_misspelt_field_of_a_filter_is_named(desk: Desk) -> None:
    code, _, err = await desk.types("runs", "list", "--where", "staus == 'failed'")
    assert code != 0
    assert "there is no field staus here" in err


async def test_a_plan_is_shown_and_executed(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"))
    plan = await desk.json("bulk", "plan", "cancel", "--where", 'trigger == "oncall"')
    assert plan["count"] == 1
    code, out, _ = await desk.types("bulk", "execute", plan["id"])
    assert (code, out) == (0, f"plan {plan['id']} (cancel) is executed: 1 of 1 done\n")
    again = await desk.json("runs", "rerun", plan["ids"][0], "--input", "urgency=high", "--input", "size=2")
    assert (again["replay_of"], again["input"]["size"]) == (plan["ids"][0], 2)


async def test_a_plan_that_nothing_fits_says_so_and_offers_nothing_to_execute(desk: Desk) -> None:
    code, out, _ = await desk.types("bulk", "plan", "cancel", "--where", 'trigger == "nobody"')
    assert code == 0
    assert out.endswith(" would cancel nothing: nothing fits\n") and "execute" not in out


async def test_a_rerun_begins_with_a_step_that_is_named_and_edited(desk: Desk) -> None:
    run_id = await desk.office.fires("A")
    [claimed] = [one for one in await desk.office.store.claim("w", 10, 60) if one.id == run_id]
    record = StepRecord(path="page", action="llm", status="ok", output="fine")
    await desk.office.store.settle([Settlement(id=run_id, token=claimed.token, outcome=Finished(), record=record)])
    code, out, _ = await desk.types("runs", "rerun", run_id[:12], "--from", "page", "--set", "prompt=again")
    assert code == 0
    assert "with a changed step in the workflow as it was" in out
    assert "It begins with page. Taken from the old run, and not done again: nothing." in out
    code, _, err = await desk.types("runs", "rerun", run_id[:12], "--from", "pgae")
    assert (code, "never came to a step pgae" in err, "page" in err) == (1, True, True)


async def test_the_bank_shows_the_last_of_each_outcome_and_stars(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"), desk.office.incident("INC-2", urgency="low"))
    assert (await desk.types("events", "star", "2", "--note", "look here"))[0] == 0
    code, out, _ = await desk.types("triggers", "bank", "oncall")
    assert code == 0
    assert "look here" in out
    assert [line.split()[2] for line in out.splitlines() if "INC-1" in line and "fired" in line] != []
    assert out.endswith("errors: none\n")
    assert [row["id"] for row in (await desk.json("triggers", "bank", "oncall"))["filtered"]] == [2]
    assert (await desk.types("events", "unstar", "2"))[1] == "event 2 is not starred any more\n"


async def test_a_seek_is_shown_and_then_done_by_its_token(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"))
    code, out, _ = await desk.types("triggers", "seek", "oncall", "30m")
    assert code == 0
    assert "Nothing was changed. To do it: harken triggers seek oncall " in out
    done = out.rstrip().rpartition("harken ")[2].split()
    code, out, _ = await desk.types(*done)
    assert (code, out.startswith("oncall reads again what happened since ")) == (0, True)
