"""What a reload refuses is in the log with its place, and stays in the list of triggers; what it changes at once."""

from __future__ import annotations

from pathlib import Path

import structlog.testing

from harken.testing import VirtualClock, virtual
from tests.system.hostile.world import House

FLOW = """\
name: hello
trigger: {schedule: {every: 1h}}
steps:
  - {id: say, action: transform, set: {text: hello}}
"""


def write(directory: Path, flow: str, name: str = "hello") -> None:
    directory.joinpath("harken.yaml").write_text("{}\n")
    directory.joinpath("workflows").mkdir(exist_ok=True)
    directory.joinpath(f"workflows/{name}.yaml").write_text(flow)


@virtual
async def test_reload_errors_are_in_the_log_with_their_place_at_error(clock: VirtualClock, tmp_path: Path) -> None:
    write(tmp_path, FLOW)
    house = House(tmp_path, clock)
    await house.up()
    write(tmp_path, FLOW.replace("transform", "trransform"))
    with structlog.testing.capture_logs() as logs:
        await house.app.controller.reload()
    [line] = [line for line in logs if line["event"] == "config.refused"]
    assert (line["log_level"], line["item"]) == ("error", "workflow:hello")
    assert line["at"].startswith("workflows/hello.yaml:4:")
    assert "trransform" in line["reason"]
    await house.down()


@virtual
async def test_what_a_reload_refuses_is_in_the_list_whether_or_not_an_old_version_runs(
    clock: VirtualClock, tmp_path: Path
) -> None:
    write(tmp_path, FLOW)
    house = House(tmp_path, clock)
    await house.up()
    write(tmp_path, FLOW + "stepps: []\n")
    write(tmp_path, FLOW.replace("name: hello", "name: other\nstepps: []"), "other")
    await house.app.controller.reload()
    rows = {row["name"]: row for row in (await house.ask("triggers.list"))["items"]}
    assert (rows["other"]["status"], rows["other"]["reason"].split(" ")[0]) == ("refused", "workflows/other.yaml:2:1:")
    assert "the old version runs" in rows["hello"]["reason"]
    assert "workflows/hello.yaml:5:1:" in rows["hello"]["reason"]
    await house.down()
    await house.up()
    rows = {row["name"]: row for row in (await house.ask("triggers.list"))["items"]}
    assert {name: row["status"] for name, row in rows.items()} == {"hello": "refused", "other": "refused"}
    await house.down()


@virtual
async def test_a_reload_changes_how_many_runs_there_are_at_one_time(clock: VirtualClock, tmp_path: Path) -> None:
    write(tmp_path, FLOW)
    house = House(tmp_path, clock)
    await house.up()
    worker = house.app.worker
    assert worker.reserve(99) == 4
    worker.unreserve(4)
    tmp_path.joinpath("harken.yaml").write_text("agent: {queue: {max_parallel_jobs: 6}}\n")
    await house.app.controller.reload()
    assert worker.reserve(99) == 6
    worker.unreserve(6)
    tmp_path.joinpath("harken.yaml").write_text("agent: {queue: {max_parallel_jobs: 2}}\n")
    await house.app.controller.reload()
    assert worker.reserve(99) == 2
    await house.down()
