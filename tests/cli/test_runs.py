"""`harken runs …` against a running controller."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from harken.cli.runs import follow_runs
from harken.runs import Dead, Finished, RunOutcome, StepRecord
from harken.store import Settlement
from tests.cli.conftest import Desk


async def ends(desk: Desk, outcome: RunOutcome, *records: StepRecord) -> str:
    """The next run is claimed, keeps these records and ends like that; its id."""
    store = desk.office.store
    claimed = (await store.claim("w", 1, 60))[0]
    await store.journal(claimed.id, claimed.token, records)
    desk.office.clock.advance(2.5)
    await store.settle([Settlement(id=claimed.id, token=claimed.token, outcome=outcome)])
    return claimed.id


def step(desk: Desk, path: str, action: str, **more: Any) -> StepRecord:
    now = desk.office.clock.now()
    made: dict[str, Any] = {"path": path, "action": action, "status": "ok", "started_at": now}
    return StepRecord(**(made | {"finished_at": now + timedelta(seconds=1.5)} | more))


async def test_runs_show_prints_input_output_duration_tries_and_warnings_of_each_step(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"))
    asked = step(
        desk,
        "triage",
        "llm",
        attempt=2,
        retries=1,
        input={"prompt": "What is\nINC-1?"},
        output={"response": "A full disk.", "model": "echo"},
        warnings=("no value for .title",),
    )
    run_id = await ends(desk, Finished(output=None), asked)
    _, out, _ = await desk.types("runs", "show", run_id[:10])
    lines = out.splitlines()
    assert [line.split()[:5] for line in lines if line.startswith("triage  ")] == [["triage", "llm", "ok", "3", "1.5"]]
    below = lines[lines.index("triage (llm)") :]
    assert below == [
        "triage (llm)",
        "  input",
        "    prompt  What is",
        "            INC-1?",
        "  output",
        "    response  A full disk.",
        "    model     echo",
        "  warnings  no value for .title",
    ]
    assert next(line for line in lines if line.startswith("took ")).split() == ["took", "2.5", "s"]
    shown = (await desk.json("runs", "show", run_id))["steps"][0]
    assert (shown["tries"], shown["seconds"], shown["input"]) == (3, 1.5, {"prompt": "What is\nINC-1?"})


async def test_a_run_that_a_filter_step_ended_is_filtered_and_not_just_done(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"))
    said = {"passed": False, "reason": "event.urgency is high"}
    run_id = await ends(desk, Finished(filtered=True), step(desk, "calm", "filter", output=said))
    assert [(row["status"], row["outcome"]) for row in await desk.json("runs", "list", "--status", "done")] == [
        ("done", "filtered")
    ]
    assert (await desk.json("runs", "show", run_id))["outcome"] == "filtered"
    _, out, _ = await desk.types("explain", "oncall", "INC-1")
    assert "ended by its filter step calm: event.urgency is high" in out


async def test_runs_retry_keeps_counting_tries(desk: Desk) -> None:
    await desk.office.shows(desk.office.incident("INC-1"))
    run_id = await ends(desk, Dead(error="no"))
    assert (await desk.json("runs", "retry", run_id))["attempt"] == 2
    await ends(desk, Dead(error="no"))
    assert (await desk.json("runs", "retry", run_id))["attempt"] == 3


async def test_runs_list_since_10m_shows_only_young_runs(desk: Desk) -> None:
    old = await desk.office.fires("INC-1")
    desk.office.clock.advance(3_600)
    young = await desk.office.fires("INC-2")
    assert [row["id"] for row in await desk.json("runs", "list", "--since", "10m", "--trigger", "oncall")] == [young]
    listed = await desk.json("runs", "list", "--since", "2h", "--trigger", "oncall")
    assert [row["id"] for row in listed] == [young, old]
    code, _, err = await desk.types("runs", "list", "--since", "soon")
    assert (code, "10m or 2026-03-01T10:00:00Z" in err) == (1, True)


async def test_followed_runs_are_those_that_are_new_or_changed(desk: Desk) -> None:
    first = await desk.office.fires("INC-1")
    known = (await desk.json("runs", "list", "--trigger", "oncall"))[:1]
    following = follow_runs(desk.served.controller, {"trigger": "oncall", "status": None}, known)
    await ends(desk, Dead(error="no"))
    assert [(row["id"], row["outcome"]) for row in [await asyncio.to_thread(next, following)]] == [(first, "dead")]
    second = await desk.office.fires("INC-2")
    row = await asyncio.to_thread(next, following)
    assert (row["id"], row["outcome"]) == (second, "ready")


async def test_an_open_run_far_back_is_still_followed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harken.cli.runs.PAGE", 1)
    first = await desk.office.fires("INC-1")
    known = await desk.json("runs", "list", "--trigger", "oncall")
    await ends(desk, Finished())
    later = [await desk.office.fires(f"INC-{number}") for number in (2, 3)]
    following = follow_runs(desk.served.controller, {"trigger": "oncall"}, known)
    found = [await asyncio.to_thread(next, following) for _ in range(3)]
    assert {row["id"] for row in found} == {first, *later}


async def test_workflows_run_wait_shows_the_end_and_exits_1_when_it_is_not_good(desk: Desk) -> None:
    waiting = asyncio.create_task(desk.types("workflows", "run", "oncall", "--wait", "--json"))
    while (await desk.office.store.counts()).get("runs_ready", 0) == 0:  # noqa: ASYNC110 - another thread starts it
        await asyncio.sleep(0.01)
    await ends(desk, Dead(error="no"))
    code, out, _ = await waiting
    assert (code, json.loads(out)["outcome"]) == (1, "dead")
