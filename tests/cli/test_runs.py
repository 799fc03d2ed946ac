"""`harken runs …` against a running controller."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

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
