"""A rerun is a new run that names the one it repeats."""

from __future__ import annotations

import pytest

from harken.errors import Refused
from harken.runs import Finished
from harken.store import Settlement
from tests.operate.operator_world import Office


async def ended(office: Office) -> str:
    run_id = await office.fires("A")
    for one in await office.store.claim("w", 10, 60):
        await office.store.settle([Settlement(id=one.id, token=one.token, outcome=Finished())])
    return run_id


async def test_a_run_that_is_done_runs_again_with_its_own_event(office: Office) -> None:
    old = await ended(office)
    new = await office.ask("runs.rerun", id=old)
    assert new["id"] != old
    assert (new["replay_of"], new["status"], new["event_keys"], new["input"]) == (old, "ready", ["A"], None)
    assert new["workflow_rev"] == new["began_with"] == new["current_rev"] == "r1"
    assert (await office.ask("runs.show", id=old))["status"] == "done"


async def test_fields_of_its_input_are_replaced(office: Office) -> None:
    new = await office.ask("runs.rerun", id=await ended(office), input={"urgency": "low", "more": [1]})
    assert new["input"] == {"id": "A", "urgency": "low", "more": [1]}


async def test_two_reruns_are_two_runs(office: Office) -> None:
    old = await ended(office)
    first, second = [await office.ask("runs.rerun", id=old, latest=True) for _ in range(2)]
    assert first["id"] != second["id"]


async def test_a_run_that_is_not_over_is_refused(office: Office) -> None:
    with pytest.raises(Refused, match="is ready"):
        await office.ask("runs.rerun", id=await office.fires("A"))
