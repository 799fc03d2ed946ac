"""Changes of the files are in the audit log: which file, at which revision, also if nobody asked for a reload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harken.testing import VirtualClock, virtual
from tests.operate.test_fleet import replicas, site
from tests.system.hostile.world import House

FLOW = """\
name: {name}
trigger: {{schedule: {{every: {every}}}}}
steps:
  - {{id: say, action: transform, set: {{text: {text}}}}}
"""


def write(directory: Path, name: str, every: str = "1h", text: str = "hello") -> None:
    directory.joinpath("workflows").mkdir(exist_ok=True)
    directory.joinpath(f"workflows/{name}.yaml").write_text(FLOW.format(name=name, every=every, text=text))


async def told(house: House) -> list[Any]:
    """What the log says of files, oldest first."""
    found = (await house.ask("audit.list", did="config.changed"))["items"]
    return [(row["what"], row["detail"]["done"], row["detail"]["file"]) for row in reversed(found)]


@virtual
async def test_a_reload_tells_what_was_added_changed_and_removed_with_revisions(
    clock: VirtualClock, tmp_path: Path
) -> None:
    tmp_path.joinpath("harken.yaml").write_text("{}\n")
    for name in ("stays", "changes", "slows", "goes"):
        write(tmp_path, name)
    house = House(tmp_path, clock)
    await house.up()
    before = house.app.loaded.workflows["changes"].rev
    write(tmp_path, "new")
    write(tmp_path, "changes", text="other")
    write(tmp_path, "slows", every="2h")
    tmp_path.joinpath("workflows/goes.yaml").unlink()
    await house.app.controller.reload()
    assert await told(house) == [
        ("workflow:changes", "changed", "workflows/changes.yaml"),
        ("workflow:goes", "removed", "workflows/goes.yaml"),
        ("workflow:new", "added", "workflows/new.yaml"),
        ("workflow:slows", "changed", "workflows/slows.yaml"),
    ]
    rows = (await house.ask("audit.list", did="config.changed", what="workflow:changes"))["items"]
    assert rows[0]["who"].startswith("files on ")
    after = house.app.loaded.workflows["changes"].rev
    assert (rows[0]["detail"]["before"], rows[0]["detail"]["rev"]) == (before, after)
    await house.app.controller.reload()
    assert len(await told(house)) == 4
    await house.down()


@virtual
async def test_what_changed_while_nobody_ran_is_told_at_the_start(clock: VirtualClock, tmp_path: Path) -> None:
    tmp_path.joinpath("harken.yaml").write_text("{}\n")
    write(tmp_path, "changes")
    write(tmp_path, "goes")
    house = House(tmp_path, clock)
    await house.up()
    assert await told(house) == []
    await house.down()
    write(tmp_path, "changes", text="other")
    write(tmp_path, "new")
    tmp_path.joinpath("workflows/goes.yaml").unlink()
    await house.up()
    assert await told(house) == [
        ("workflow:changes", "changed", "workflows/changes.yaml"),
        ("workflow:goes", "removed", "workflows/goes.yaml"),
        ("workflow:new", "added", "workflows/new.yaml"),
    ]
    await house.down()


@virtual
async def test_of_several_replicas_the_first_tells(clock: VirtualClock, tmp_path: Path) -> None:
    directory = site(tmp_path / "site", "daily")
    async with replicas(clock, directory, directory) as (store, apps):
        site(directory, "weekly")
        await apps[0].controller.reload()
        await clock.sleep(20)
        assert "weekly" in {trigger.name for trigger in apps[1].loaded.triggers}
        assert [row["what"] for row in (await store.audits(did="config.changed")).items] == ["workflow:weekly"]
