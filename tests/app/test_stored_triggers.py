"""Triggers as rows: made, changed and removed over the API while the application runs, and there after a restart."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from harken.config.findings import Finding
from harken.config.stored_trigger_compiler import SCHEMA_VERSION, RowCompiler, TriggerRow, as_file, from_file, read_row
from harken.errors import (
    Forbidden,
    Malformed,
    Misconfigured,
    NotFound,
    Outdated,
    Refused,
    StoreUnavailable,
    Unconditional,
)
from harken.ingest.intake import Intake
from harken.operate.load_and_check_configuration import credentials_of
from harken.operate.principal import Principal
from harken.operate.stored_triggers import InvalidRow
from harken.store import DocumentChange
from harken.store.document_kinds import CHANGES, TRIGGER_LOG, TRIGGER_ROW
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
async def test_a_row_that_is_not_enabled_is_found_by_its_type_and_no_command_denies_that_it_is_there(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await house.ask("triggers.create", name="mine", enabled=False, **HOURLY)
    await house.ask("triggers.create", name="theirs", **{**HOURLY, "workflow": "hello"})
    await house.ask("triggers.edit", name="theirs", enabled=False, match="*")
    listed = (await house.ask("triggers.list", type="schedule"))["items"]
    assert [(row["name"], row["status"], row["workflow"]) for row in listed if row["name"] != "hello"] == [
        ("mine", "disabled", "mine"),
        ("theirs", "disabled", "hello"),
    ]
    for operation in ("run", "pause", "resume", "explain", "backtest", "bank"):
        with pytest.raises(Refused, match="trigger mine is not enabled"):
            await house.ask(f"triggers.{operation}", name="mine")
    await house.down()


@virtual
async def test_every_operation_on_a_row_takes_its_id_as_well(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    id = (await house.ask("triggers.create", name="mine", **HOURLY))["id"]
    assert (await house.ask("triggers.pause", name=id, reason="moving"))["name"] == "mine"
    assert (await house.ask("triggers.show", name="mine"))["status"] == "paused"
    for operation in ("resume", "run", "explain", "backtest", "bank"):
        await house.ask(f"triggers.{operation}", name=id)
    await house.ask("triggers.edit", name=id, condition="true", match="*")
    assert {entry["what"] for entry in (await house.ask("audit.list"))["items"]} >= {"mine"}
    assert id not in {entry["what"] for entry in (await house.ask("audit.list"))["items"]}
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
        # what counts would be told by nothing
        ({"workflow": {**STEPS, "name": "hello"}}, Misconfigured),
        ({"workflow": {**STEPS, "trigger": {"event": {"type": ["run.failed"]}}}}, Misconfigured),
        ({"options": {"schedule": {"every": "2h"}}}, Misconfigured),
        ({"options": {"condition": "true"}, "condition": "false"}, Misconfigured),
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


RESERVED = """\
integrations:
  shop: {kind: json, allow_agents: [bob]}
  alarm: {kind: ntfy, allow_agents: [bob]}
  open: {kind: json}
feeds:
  items: {integration: shop, interval: 1h, query: {url: "https://shop.example/items"}}
"""
READ = {"interval": "1h", "query": {"url": "https://shop.example/items"}}
NOTIFY = {"steps": [{"id": "say", "action": "notify", "channel": "alarm", "to": "topic", "text": "hi"}]}
USES: dict[str, dict[str, Any]] = {
    "by a poll": {"provider": "poll", "config": {"integration": "shop", **READ}},
    "by a feed": {"provider": "feed", "config": "items"},
    "by a step": {"workflow": NOTIFY},
    "by a step in the other way to write else": {
        "workflow": {
            "steps": [{"id": "if", "action": "if", "condition": "true", "then": [], "otherwise": NOTIFY["steps"]}]
        }
    },
    "by a step in a loop": {
        "workflow": {"steps": [{"id": "all", "action": "foreach", "items": [1], "steps": NOTIFY["steps"]}]}
    },
}


@pytest.mark.parametrize("use", USES)
@virtual
async def test_an_account_is_used_by_rows_of_no_owner_but_those_whom_it_allows(
    clock: VirtualClock, tmp_path: Path, use: str
) -> None:
    house = begin(tmp_path, clock)
    tmp_path.joinpath("harken.yaml").write_text(RESERVED)
    await house.up()
    as_owner = {
        name: house.app.operator.acting_as(Principal(name=name, role="operator", owner=name)) for name in ("ana", "bob")
    }
    given = {**HOURLY, "enabled": False, **USES[use]}
    with pytest.raises(InvalidRow, match="is not for ana"):
        await as_owner["ana"].call("triggers.create", name="anas", **given)
    await as_owner["ana"].call(
        "triggers.create",
        name="anas",
        **{**given, "provider": "poll", "config": {"integration": "open", **READ}} | {"workflow": STEPS},
    )
    await as_owner["bob"].call("triggers.create", name="bobs", **given)
    await house.ask("triggers.create", name="ours", **given)
    with pytest.raises(InvalidRow, match="is not for ana"):
        await as_owner["ana"].call("triggers.edit", name="anas", match="*", **USES[use])
    await house.down()


@pytest.mark.parametrize("use", USES)
@virtual
async def test_a_row_no_longer_uses_an_account_that_is_not_for_its_owner_any_more(
    clock: VirtualClock, tmp_path: Path, use: str
) -> None:
    house = begin(tmp_path, clock)
    tmp_path.joinpath("harken.yaml").write_text(RESERVED.replace("[bob]", "[ana, bob]"))
    await house.up()
    ana = house.app.operator.acting_as(Principal(name="ana", role="operator", owner="ana"))
    await ana.call("triggers.create", name="anas", **{**HOURLY, **USES[use]})
    await house.down()
    tmp_path.joinpath("harken.yaml").write_text(RESERVED)
    await house.up()
    assert house.app.loaded.trigger("anas") is None
    assert "is not for ana" in str(house.app.loaded.refused)
    await house.down()


async def written_before(house: House, name: str, **fields: Any) -> None:
    """Give the row these fields as an earlier version has stored them, and have it read."""
    store = house.app.store
    stored = await store.get(TRIGGER_ROW, house.app.loaded.rows[name])
    noted = await store.get(TRIGGER_LOG, CHANGES)
    assert stored is not None and noted is not None
    row = DocumentChange(kind=TRIGGER_ROW, name=stored.name, value={**stored.value, **fields})
    log = {"recent": [*noted.value["recent"], stored.name]}
    await store.change([row, DocumentChange(kind=TRIGGER_LOG, name=CHANGES, value=log)])
    await house.app.controller.sync_rows()


TWICE: dict[str, Any] = {"condition": "false", "options": {"condition": "true"}, "workflow": {**STEPS, "name": "mine"}}
"""What rows of earlier versions may have: the second of each counted."""


@virtual
async def test_a_row_that_says_something_twice_since_before_goes_on_and_can_be_changed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await house.ask("triggers.create", name="mine", **HOURLY)
    await written_before(house, "mine", **TWICE)

    def condition() -> str:
        found = house.app.loaded.trigger("mine")
        assert found is not None
        return found.condition

    assert condition() == "true"
    await house.ask("triggers.edit", name="mine", match="*", enabled=False)
    await house.ask("triggers.edit", name="mine", match="*", enabled=True)
    assert condition() == "true"
    for field, value in TWICE.items():
        with pytest.raises(InvalidRow, match="is a field of the row itself"):
            await house.ask("triggers.edit", name="mine", match="*", **{field: value})
    await house.ask("triggers.edit", name="mine", match="*", condition="event.n > 1", options={}, workflow=STEPS)
    assert condition() == "event.n > 1"
    await house.down()


@pytest.mark.parametrize("field", ["options", "workflow"])
@virtual
async def test_a_row_of_an_owner_that_says_something_twice_since_before_is_refused(
    clock: VirtualClock, tmp_path: Path, field: str
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    ana = house.app.operator.acting_as(Principal(name="ana", role="operator", owner="ana"))
    await ana.call("triggers.create", name="anas", **HOURLY)
    heard = {"options": {"schedule": {"every": "9h"}}, "workflow": {**STEPS, "trigger": {"event": {}}}}
    await written_before(house, "anas", **{field: heard[field]})
    await house.down()
    await house.up()
    assert house.app.loaded.trigger("anas") is None
    assert "is a field of the row itself" in str(house.app.loaded.refused)
    await house.down()


ONLY_THE_RUN_KNOWS = {"steps": [{"id": "say", "action": "notify", "channel": "{{.trigger.event.c}}", "text": "hi"}]}


@pytest.mark.parametrize("called", ["name", "id"])
@virtual
async def test_a_row_that_is_refused_by_now_is_mended_or_deleted_by_its_owner(
    clock: VirtualClock, tmp_path: Path, called: str
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    ana, bob = (house.app.operator.acting_as(Principal(name=one, role="operator", owner=one)) for one in ("ana", "bob"))
    row = await ana.call("triggers.create", name="anas", **HOURLY)
    await written_before(house, "anas", workflow=ONLY_THE_RUN_KNOWS)
    await house.down()
    await house.up()
    assert house.app.loaded.trigger("anas") is None
    ana, bob = (house.app.operator.acting_as(Principal(name=one, role="operator", owner=one)) for one in ("ana", "bob"))
    assert [one["status"] for one in (await ana.call("triggers.list"))["items"]] == ["refused"]
    assert (await bob.call("triggers.list"))["items"] == []
    for operation in ("triggers.edit", "triggers.delete"):
        with pytest.raises(NotFound, match="there is no trigger"):
            await bob.call(operation, name=row[called], match="*")
    with pytest.raises(InvalidRow, match="a channel that is only known when it runs"):
        await ana.call("triggers.edit", name=row[called], match="*", condition="true")
    await ana.call("triggers.edit", name=row[called], match="*", workflow=STEPS)
    assert house.app.loaded.trigger("anas") is not None
    await ana.call("triggers.delete", name=row[called], match="*")
    assert (await ana.call("triggers.list"))["items"] == []
    await house.down()


@pytest.mark.parametrize("called", ["name", "id"])
@virtual
async def test_an_owner_edits_a_disabled_row_as_it_was_read_and_enables_it(
    clock: VirtualClock, tmp_path: Path, called: str
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    ana = house.app.operator.acting_as(Principal(name="ana", role="operator", owner="ana"))
    row = await ana.call("triggers.create", name="anas", **HOURLY)
    credentials_of(tmp_path).store_secret(f"trigger-{row['id']}-x", "s3cret")
    steps = [{"id": "say", "action": "transform", "set": {"a": f"${{secret:trigger-{row['id']}-x}}"}}]
    await ana.call("triggers.edit", name=row[called], match="*", enabled=False)
    await ana.call("triggers.edit", name=row[called], match="*", workflow={"steps": steps})
    await ana.call("triggers.edit", name=row[called], match="*", enabled=True)
    assert house.app.loaded.trigger("anas") is not None
    await house.down()


@virtual
async def test_a_channel_that_only_the_run_knows_is_no_ones_but_the_operators(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = begin(tmp_path, clock)
    tmp_path.joinpath("harken.yaml").write_text(RESERVED)
    await house.up()
    flow = {"steps": [{**NOTIFY["steps"][0], "channel": '{{ "alarm" }}'}]}
    ana = house.app.operator.acting_as(Principal(name="ana", role="operator", owner="ana"))
    with pytest.raises(InvalidRow, match="only known when it runs"):
        await ana.call("triggers.create", name="anas", **{**HOURLY, "workflow": flow})
    await house.ask("triggers.create", name="ours", enabled=False, **{**HOURLY, "workflow": flow})
    await house.down()


START = {"id": "go", "action": "workflow"}
STARTS: dict[str, dict[str, Any]] = {
    "by its type": {"id": "go", "type": "workflow", "workflow": "hello"},
    "by the name of the field": {**START, "name": "hello"},
    "by a secret of hers": {"id": "go", "action": "${secret:trigger-ROW-x}", "workflow": "hello"},
    "in a loop": {"id": "all", "type": "foreach", "items": [1], "steps": [{"type": "workflow", "name": "hello"}]},
}


@pytest.mark.parametrize("way", STARTS)
@virtual
async def test_steps_start_no_workflow_of_others_however_they_are_written(
    clock: VirtualClock, tmp_path: Path, way: str
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    ana = house.app.operator.acting_as(Principal(name="ana", role="operator", owner="ana"))
    row = (await ana.call("triggers.create", name="anas", **HOURLY))["id"]
    credentials_of(tmp_path).store_secret(f"trigger-{row}-x", "workflow")
    flow = json.loads(json.dumps({"steps": [STARTS[way]]}).replace("ROW", row))
    with pytest.raises((Forbidden, NotFound)):
        await ana.call("triggers.edit", name="anas", match="*", workflow=flow)
    with pytest.raises((Forbidden, NotFound)):
        await ana.call("triggers.draft", name="anas", replaces=row, **{**HOURLY, "workflow": flow})
    assert (await house.ask("triggers.show", name="anas"))["row"]["workflow"] == STEPS
    await house.ask("triggers.edit", name="anas", match="*", workflow={"steps": [{**START, "workflow": "hello"}]})
    await house.down()


DRAFTS: dict[str, dict[str, Any]] = {
    "a secret in steps": {"steps": r'steps: [{id: a, action: http, url: "https://a.example/\x24{secret:OPS}"}]'},
    "a secret in a file": {"yaml": r'trigger: {poll: {url: "https://a.example/\x24{secret:OPS}"}}'},
    "another workflow": {"yaml": "trigger: {schedule: {every: 1h}}\nworkflow: hello"},
    "a step that starts another": {"steps": r'steps: [{id: a, action: "\x77orkflow", workflow: hello}]'},
    "all runs": {"yaml": "trigger: {event: {type: [run.failed]}}"},
    "runs of another workflow": {"yaml": "trigger: {event: {workflow: hello}}"},
}


@pytest.mark.parametrize("what", DRAFTS)
@virtual
async def test_a_draft_reaches_nothing_of_others_by_what_its_text_stands_for(
    clock: VirtualClock, tmp_path: Path, what: str
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    credentials_of(tmp_path).store_secret("OPS", "hunter2")
    ana = house.app.operator.acting_as(Principal(name="ana", role="operator", owner="ana"))
    given = {"name": "mine", "provider": "schedule", "config": {"every": "1h"}, **DRAFTS[what]}
    if "steps" not in given:
        given["workflow"] = STEPS
    with pytest.raises((Forbidden, NotFound)):
        await ana.call("triggers.draft", **given)
    assert "problems" in await house.ask("triggers.draft", **given)
    await house.down()


SENT = {"action": "workflow", "workflow": "deploy.yml"}


@virtual
async def test_what_a_step_of_an_owner_sends_is_taken_for_no_step(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    ana = house.app.operator.acting_as(Principal(name="ana", role="operator", owner="ana"))
    call = {"id": "go", "action": "http", "method": "POST", "url": "https://ana.example", "json": [SENT, {"a": SENT}]}
    given = {**HOURLY, "workflow": {"steps": [call]}}
    assert (await ana.call("triggers.draft", name="anas", **given))["ok"]
    await ana.call("triggers.create", name="anas", **given)
    with pytest.raises(InvalidRow, match="a step needs an action"):
        await ana.call("triggers.edit", name="anas", match="*", workflow={"steps": [{"id": "go", "<<": SENT}]})
    await house.down()


@virtual
async def test_a_disabled_row_of_an_owner_does_not_come_to_hear_all_runs(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    tmp_path.joinpath("workflows/shared.yaml").write_text(
        "name: shared\nshare_with: operator\nsteps: [{id: say, action: transform, set: {a: b}}]\n"
    )
    await house.up()
    ana = house.app.operator.acting_as(Principal(name="ana", role="operator", owner="ana"))
    heard = {"provider": "event", "config": {"workflow": "shared"}, "workflow": STEPS}
    await ana.call("triggers.create", name="mine", enabled=False, **heard)
    for config in ({"type": ["run.failed"]}, {"workflow": "hello"}):
        with pytest.raises((Forbidden, NotFound)):
            await ana.call("triggers.edit", name="mine", match="*", config=config)
    assert (await ana.call("triggers.edit", name="mine", match="*", enabled=True))["config"] == {"workflow": "shared"}
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


@virtual
async def test_a_new_row_may_have_the_name_of_one_that_was_deleted_since_the_last_look(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await house.ask("triggers.create", name="same", **HOURLY)
    store = house.app.store
    old = await store.get(TRIGGER_ROW, house.app.loaded.rows["same"])
    noted = await store.get(TRIGGER_LOG, CHANGES)
    assert old is not None and noted is not None
    recent = [*noted.value["recent"], old.name]
    gone = DocumentChange(kind=TRIGGER_ROW, name=old.name)
    await store.change([gone, DocumentChange(kind=TRIGGER_LOG, name=CHANGES, value={"recent": recent})])
    # its id comes before that of the old one
    new = DocumentChange(kind=TRIGGER_ROW, name="0-new", value={**old.value, "id": "0-new"})
    await store.change([new, DocumentChange(kind=TRIGGER_LOG, name=CHANGES, value={"recent": [*recent, "0-new"]})])
    await house.app.controller.sync_rows()
    assert (house.app.loaded.rows["same"], dict(house.app.loaded.refused)) == ("0-new", {})
    await house.down()


@virtual
async def test_rows_that_change_after_a_reload_that_failed_do_not_bring_its_files(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await house.ask("triggers.create", name="old", **HOURLY)
    tmp_path.joinpath("workflows/late.yaml").write_text(FLOW.replace("hello", "late"))
    with monkeypatch.context() as broken:
        broken.setattr(Intake, "apply", _fail)
        with pytest.raises(StoreUnavailable):
            await house.app.controller.reload()
    await house.ask("triggers.delete", name="old", match="*")
    await house.ask("triggers.create", name="new", **HOURLY)
    assert {trigger.name for trigger in house.app.loaded.triggers} == {"hello", "new"}
    assert await names(house) == {"hello": "fine", "new": "fine"}
    await house.app.controller.reload()
    assert await names(house) == {"hello": "fine", "late": "fine", "new": "fine"}
    await house.down()


async def _fail(*given: Any, **options: Any) -> None:
    raise StoreUnavailable("the store is away")


@virtual
async def test_a_list_has_the_rows_that_were_made_and_deleted_since_the_last_one(
    clock: VirtualClock, tmp_path: Path
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    for name in ("b", "d"):
        await house.ask("triggers.create", name=name, **HOURLY)
    context = house.app.operator._context
    before = context.trigger_names()
    await house.ask("triggers.create", name="c", **HOURLY)
    await house.ask("triggers.edit", name="d", condition="false", match="*")
    await house.ask("triggers.delete", name="b", match="*")
    assert list(context.trigger_names()) == ["c", "d", "hello"]
    assert list(before) == ["b", "d", "hello"]
    await house.down()


@virtual
async def test_whoever_has_an_older_configuration_sees_it_as_it_was(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await house.ask("triggers.create", name="mine", **HOURLY)
    older = house.app.loaded
    await house.ask("triggers.delete", name="mine", match="*")
    await house.ask("triggers.create", name="other", **HOURLY)
    assert [trigger.name for trigger in older.triggers] == ["hello", "mine"]
    assert [trigger.name for trigger in house.app.loaded.triggers] == ["hello", "other"]
    assert ("mine" in older.workflows, "other" in older.workflows, "mine" in older.rows) == (True, False, True)
    assert older.trigger("mine") is not None and house.app.loaded.trigger("mine") is None
    await house.down()


async def call(house: House, path: str, secret: str) -> int:
    """Send a signed webhook to the path; the status of the answer."""
    body, sent = b'{"n": 1}', []
    mark = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"x-signature", f"sha256={mark}".encode())]
    scope = {"method": "POST", "path": path, "headers": headers, "query_string": b"", "client": ("203.0.113.7", 9)}
    await house.app.intake.webhooks(scope, receive, send)
    return int(sent[0]["status"])


@virtual
async def test_the_webhook_of_a_row_is_changed_and_removed_without_a_look_at_the_others(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    whole: list[Intake] = []
    monkeypatch.setattr(Intake, "_serve_webhooks", whole.append)
    for name in ("one", "two"):
        config = {"secret": f"first-secret-of-{name}", "header": "X-Signature"}
        await house.ask("triggers.create", name=name, provider="webhook", config=config, workflow=STEPS)
    one, two = "/webhooks/generic/one", "/webhooks/generic/two"
    assert await call(house, one, "first-secret-of-one") == 202
    config = {"secret": "second-secret-of-one", "header": "X-Signature"}
    await house.ask("triggers.edit", name="one", config=config, match="*")
    assert (await call(house, one, "first-secret-of-one"), await call(house, one, "second-secret-of-one")) == (401, 200)
    assert await call(house, two, "first-secret-of-two") == 202
    assert house.app.intake.webhooks.refusals.count("generic/one") == 1
    await house.ask("triggers.delete", name="one", match="*")
    assert (await call(house, one, "second-secret-of-one"), await call(house, two, "first-secret-of-two")) == (404, 200)
    assert house.app.intake.webhooks.refusals.count("generic/one") == 0
    await house.ask("triggers.edit", name="two", enabled=False, match="*")
    assert await call(house, two, "first-secret-of-two") == 404
    await house.ask("triggers.edit", name="two", enabled=True, match="*")
    assert await call(house, two, "first-secret-of-two") == 200
    assert whole == []
    await house.down()


@virtual
async def test_a_change_that_is_refused_takes_no_secret_from_what_runs(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    hook = {"provider": "webhook", "config": {"secret": "k3y-of-the-hook-7"}, "workflow": STEPS}
    await house.ask("triggers.create", name="hook", **hook)
    kept = credentials_of(tmp_path).secrets()
    compile_row = RowCompiler.compile

    def refuse_references(self: RowCompiler, row: TriggerRow, **given: Any) -> Any:
        found = compile_row(self, row, **given)
        return (
            found
            if "${secret:" not in str(row.config)
            else (None, (Finding(file="x", line=1, column=1, message="no"),))
        )

    monkeypatch.setattr(RowCompiler, "compile", refuse_references)
    with pytest.raises(InvalidRow):
        await house.ask("triggers.edit", name="hook", config={"secret": "an0ther-of-the-hook"}, match="*")
    assert len(kept) == 1
    assert credentials_of(tmp_path).secrets() == kept
    await house.down()
