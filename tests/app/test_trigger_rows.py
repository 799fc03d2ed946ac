"""Triggers as rows: made, changed and removed over the API while the application runs, and there after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harken.config.trigger_rows import SCHEMA_VERSION, as_file, from_file, read_row
from harken.errors import Malformed, Misconfigured, NotFound, Outdated, Refused, Unconditional
from harken.operate.trigger_rows import InvalidRow
from harken.testing import VirtualClock, virtual
from tests.system.hostile.world import House

FLOW = """\
name: hello
trigger: {schedule: {every: 1h}}
steps:
  - {id: say, action: transform, set: {text: hello}}
"""
STEPS = {"steps": [{"id": "say", "action": "transform", "set": {"text": "hi"}}]}
HOURLY: dict[str, Any] = {"provider": "schedule", "config": {"every": "1h"}, "workflow": STEPS}


def begin(directory: Path, clock: VirtualClock) -> House:
    directory.joinpath("harken.yaml").write_text("{}\n")
    directory.joinpath("workflows").mkdir(exist_ok=True)
    directory.joinpath("workflows/hello.yaml").write_text(FLOW)
    return House(directory, clock)


async def names(house: House) -> dict[str, str]:
    """What there is; nothing has been read yet, or all reads were good."""
    found = {row["name"]: row["status"] for row in (await house.ask("triggers.list"))["items"]}
    return {name: "fine" if status in ("new", "healthy") else status for name, status in found.items()}


async def finished(house: House, workflow: str) -> int:
    return len((await house.ask("runs.list", workflow=workflow, status="done"))["items"])


@virtual
async def test_a_row_reads_and_runs_at_once_and_after_a_restart(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    row = await house.ask("triggers.create", name="mine", **HOURLY)
    await asyncio.sleep(3 * 3600)
    assert await finished(house, "mine") == 3
    await house.down()
    await house.up()
    await asyncio.sleep(2 * 3600)
    assert await finished(house, "mine") >= 5
    shown = await house.ask("triggers.show", name=row["id"])
    assert (shown["name"], shown["row"]["provider"], shown["revision"]) == ("mine", "schedule", "1")
    assert shown["row"]["schema_version"] == SCHEMA_VERSION
    await house.down()


@virtual
async def test_a_row_may_start_a_workflow_of_the_files_and_follows_its_revision(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await house.ask("triggers.create", name="mine", **{**HOURLY, "workflow": "hello"})
    tmp_path.joinpath("workflows/hello.yaml").write_text(FLOW.replace("text: hello", "text: other"))
    await house.app.controller.reload()
    revisions = {row["name"]: row["rev"] for row in (await house.ask("workflows.list"))["items"]}
    triggers = {trigger.name: trigger for trigger in house.app.loaded.triggers}
    assert triggers["mine"].workflow_rev == triggers["hello"].workflow_rev == revisions["hello"]
    assert await names(house) == {"hello": "fine", "mine": "fine"}
    await house.down()


@virtual
async def test_a_change_needs_the_version_that_was_read(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await house.ask("triggers.create", name="mine", **HOURLY)
    with pytest.raises(Unconditional):
        await house.ask("triggers.edit", name="mine", condition="true")
    changed = await house.ask("triggers.edit", name="mine", condition="event.n > 1", match='"1"')
    assert (changed["revision"], changed["condition"]) == ("2", "event.n > 1")
    for operation, given in (("edit", {"enabled": False}), ("delete", {}), ("replace", HOURLY)):
        with pytest.raises(Outdated):
            await house.ask(f"triggers.{operation}", name="mine", match='"1"', **given)
    replaced = await house.ask("triggers.replace", name="mine", match='"2"', **HOURLY)
    assert (replaced["condition"], replaced["created_at"]) == ("", changed["created_at"])
    await house.down()


@virtual
async def test_a_row_that_is_not_enabled_does_nothing_until_it_is(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await house.ask("triggers.create", name="mine", enabled=False, **HOURLY)
    await asyncio.sleep(2 * 3600)
    assert await names(house) == {"hello": "fine", "mine": "disabled"}
    assert await finished(house, "mine") == 0
    await house.ask("triggers.edit", name="mine", enabled=True, match="*")
    await asyncio.sleep(2 * 3600)
    assert await finished(house, "mine") > 0
    await house.down()


@virtual
async def test_a_row_that_is_deleted_is_gone_and_its_name_is_free(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    first = await house.ask("triggers.create", name="mine", **HOURLY)
    await house.ask("triggers.delete", name="mine", match='"1"')
    assert await names(house) == {"hello": "fine"}
    with pytest.raises(NotFound):
        await house.ask("triggers.show", name=first["id"])
    again = await house.ask("triggers.create", name="mine", **HOURLY)
    assert again["id"] != first["id"]
    await house.down()


@virtual
async def test_what_is_wrong_with_a_row_is_said_as_of_a_file(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    wrong = {**HOURLY, "condition": "event.n >", "config": {"every": "1h", "tzz": "UTC"}}
    with pytest.raises(InvalidRow) as raised:
        await house.ask("triggers.create", name="mine", **wrong)
    rows = raised.value.findings
    tmp_path.joinpath("workflows/mine.yaml").write_text(
        "name: mine\ntrigger:\n  schedule:\n    every: 1h\n    tzz: UTC\n  condition: event.n >\n"
        "steps:\n  - id: say\n    action: transform\n    set:\n      text: hi\n"
    )
    answer = await house.app.controller.reload()
    of_file = [line.split(": ", 1)[1] for line in answer["findings"] if "mine.yaml" in line]
    assert [row["text"].split(": ", 1)[1] for row in rows] == of_file
    assert [row["line"] for row in rows] == [int(line.split(":")[1]) for line in answer["findings"]]
    await house.down()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": "hello"}, Refused),
        ({"provider": "pol"}, Misconfigured),
        ({"workflow": "nobody"}, Misconfigured),
        ({"workflow": {}}, Misconfigured),
        ({"workflow": 7}, Misconfigured),
        ({"name": "a/b"}, Misconfigured),
        ({"config": {"every": "${HOME}"}}, Misconfigured),
    ],
)
@virtual
async def test_a_row_that_cannot_be_is_refused_and_nothing_stays(
    clock: VirtualClock, tmp_path: Path, given: dict[str, Any], error: type[Exception]
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    with pytest.raises(error):
        await house.ask("triggers.create", **{"name": "mine", **HOURLY, **given})
    assert await names(house) == {"hello": "fine"}
    assert await house.app.store.documents("trigger") == []
    await house.down()


@virtual
async def test_a_trigger_of_a_file_is_changed_in_its_file(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    with pytest.raises(Refused, match=r"workflows/hello\.yaml:2"):
        await house.ask("triggers.edit", name="hello", enabled=False, match="*")
    exported = await house.ask("triggers.export", name="hello")
    assert from_file_text(exported["yaml"])["provider"] == "schedule"
    await house.down()


@virtual
async def test_an_export_of_a_row_is_a_file_that_does_the_same(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await house.ask("triggers.create", name="mine", options={"overlap": "skip"}, condition="true", **HOURLY)
    before = {trigger.name: trigger for trigger in house.app.loaded.triggers}["mine"]
    exported = await house.ask("triggers.export", name="mine")
    await house.ask("triggers.delete", name="mine", match="*")
    tmp_path.joinpath("workflows/mine.yaml").write_text(exported["yaml"])
    await house.app.controller.reload()
    after = {trigger.name: trigger for trigger in house.app.loaded.triggers}["mine"]
    assert (after.condition, after.overlap, after.workflow_rev) == (before.condition, "skip", before.workflow_rev)
    await house.down()


@virtual
async def test_a_secret_in_a_row_is_kept_apart_and_never_shown(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    hook = {"provider": "webhook", "config": {"secret": "k3y-of-the-hook-7"}, "workflow": STEPS}
    row = await house.ask("triggers.create", name="hook", **hook)
    shown = await house.ask("triggers.show", name="hook")
    exported = await house.ask("triggers.export", name="hook")
    documents = await house.app.store.documents("trigger")
    assert row["config"]["secret"].startswith("${secret:trigger-")
    assert "k3y-of-the-hook-7" not in f"{row}{shown}{exported}{documents}"
    assert "k3y-of-the-hook-7" in house.app.loaded.secrets
    [listed] = (await house.ask("webhooks.list"))["items"]
    assert listed["triggers"] == ["hook"]
    await house.ask("triggers.delete", name="hook", match="*")
    assert (await house.ask("webhooks.list"))["items"] == []
    await house.down()


@virtual
async def test_of_rows_with_the_same_name_that_are_made_at_once_there_is_one(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    made = [house.ask("triggers.create", name="mine", **HOURLY) for _ in range(5)]
    found = await asyncio.gather(*made, return_exceptions=True)
    assert sorted(type(one).__name__ for one in found) == ["Refused"] * 4 + ["dict"]
    assert await names(house) == {"hello": "fine", "mine": "fine"}
    await house.down()


@virtual
async def test_rows_that_read_the_same_share_a_feed_and_leave_it_one_by_one(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = begin(tmp_path, clock)
    tmp_path.joinpath("harken.yaml").write_text(
        "feeds: {ticks: {integration: json, query: {url: 'https://news.example/all'}, interval: 1h}}\n"
    )
    await house.up()
    for name in ("one", "two"):
        await house.ask("triggers.create", name=name, provider="feed", config="ticks", workflow="hello")
    listeners = await house.app.store.listeners("ticks")
    assert [trigger.name for trigger, _ in listeners.triggers] == ["one", "two"]
    await house.ask("triggers.delete", name="one", match="*")
    listeners = await house.app.store.listeners("ticks")
    assert [trigger.name for trigger, _ in listeners.triggers] == ["two"]
    assert "ticks" in {feed.name for feed in house.app.loaded.feeds}
    await house.down()


def test_a_row_is_the_file_that_it_stands_for() -> None:
    file = {"name": "a", "trigger": {"schedule": {"every": "1h"}, "condition": "true", "priority": 3}, **STEPS}
    moment = "2026-01-01T00:00:00Z"
    row = read_row({"id": "x", "created_at": moment, "updated_at": moment, **from_file(file)})
    assert as_file(row) == file


def test_a_row_of_a_newer_harken_is_refused() -> None:
    with pytest.raises(Refused, match="newer"):
        read_row({"name": "a", "schema_version": SCHEMA_VERSION + 1})


def from_file_text(text: str) -> dict[str, Any]:
    import yaml

    return from_file(yaml.safe_load(text))


def test_a_file_without_a_kind_is_no_row() -> None:
    with pytest.raises(Misconfigured):
        from_file({"name": "a", "steps": []})
    assert issubclass(Unconditional, Malformed)
