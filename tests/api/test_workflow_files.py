"""Workflow files are read and changed over HTTP: checked as by the command, with a diff, and loaded at once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from harken.app import App
from harken.client import Client
from harken.errors import Misconfigured, Outdated
from harken.operate.load_and_check_configuration import workflow_findings
from harken.operate.permissions import PERMISSIONS
from tests.services.whole import write

TOKEN = "tok_4f9a8b7c6d5e4f3a2b1c"
DEPLOYS = f"""# what we do about deployments
name: deploys
trigger:
  webhook: {{id: deploys, secret: {TOKEN}}}
steps:
  - {{id: say, action: transform, set: {{text: hello}}}}
"""
NOTES = """name: notes
steps:
  - {id: say, action: transform, set: {text: noted}}
"""


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    write(tmp_path, "metrics: {enabled: false}\n", deploys=DEPLOYS, notes=NOTES)
    async with App.start(tmp_path, port=0) as started:
        yield started


class Door:
    def __init__(self, app: App) -> None:
        self._client = Client(app.url)
        self._url = app.url

    async def call(self, operation: str, match: str = "", **params: Any) -> Any:
        return await asyncio.to_thread(self._client.call, operation, params, match=match)

    async def write(self, name: str, text: str, *, match: str, dry_run: bool = False) -> Any:
        return await self.call("workflows.write", match, name=name, text=text, dry_run=dry_run)

    async def etag(self, path: str) -> str:
        def asked() -> str:
            with urlopen(Request(self._url + path), timeout=60) as answer:
                return str(answer.headers["ETag"])

        return await asyncio.to_thread(asked)


@pytest.fixture
def door(app: App) -> Door:
    return Door(app)


async def test_a_file_is_read_as_it_is_written(door: Door) -> None:
    found = await door.call("workflows.source", name="notes")
    assert (found["file"], found["text"], found["writable"]) == ("workflows/notes.yaml", NOTES, True)
    assert await door.etag("/api/workflows/notes/source") == f'"{found["revision"]}"'
    by_file = await door.call("workflows.source", name="workflows/notes.yaml")
    assert by_file["revision"] == found["revision"]


async def test_a_dry_run_tells_the_diff_and_writes_nothing(door: Door, app: App, tmp_path: Path) -> None:
    revision = (await door.call("workflows.source", name="notes"))["revision"]
    answer = await door.write("notes", NOTES.replace("noted", "written"), match=f'"{revision}"', dry_run=True)
    assert answer["diff"].splitlines() == [
        "--- a/workflows/notes.yaml",
        "+++ b/workflows/notes.yaml",
        "@@ -1,3 +1,3 @@",
        " name: notes",
        " steps:",
        "-  - {id: say, action: transform, set: {text: noted}}",
        "+  - {id: say, action: transform, set: {text: written}}",
    ]
    assert (answer["findings"], answer["written"], answer["reload"]) == ([], False, None)
    assert (tmp_path / "workflows/notes.yaml").read_text() == NOTES
    assert (await app.operator.call("audit.list", did="workflows.write"))["items"] == []


async def test_what_is_written_is_loaded_and_audited(door: Door, app: App, tmp_path: Path) -> None:
    revision = (await door.call("workflows.source", name="notes"))["revision"]
    answer = await door.write("notes", NOTES.replace("noted", "written"), match=f'"{revision}"')
    assert "written" in (tmp_path / "workflows/notes.yaml").read_text()
    assert (answer["written"], answer["reload"]["done"], answer["reload"]["refused"]) == (True, True, [])
    assert "workflow:notes" in answer["reload"]["replace"]
    shown = await door.call("workflows.show", name="notes")
    assert shown["definition"]["steps"][0]["set"] == {"text": "written"}
    [entry] = (await app.operator.call("audit.list", did="workflows.write"))["items"]
    assert (entry["what"], entry["detail"]["file"]) == ("notes", "workflows/notes.yaml")
    assert entry["detail"]["revision"] == answer["revision"]


async def test_a_text_is_checked_as_the_command_checks_a_file(door: Door, tmp_path: Path) -> None:
    revision = (await door.call("workflows.source", name="notes"))["revision"]
    wrong = NOTES.replace("transform", "transfrom")
    answer = await door.write("notes", wrong, match=f'"{revision}"', dry_run=True)
    with pytest.raises(Misconfigured) as caught:
        await door.write("notes", wrong, match=f'"{revision}"')
    assert (tmp_path / "workflows/notes.yaml").read_text() == NOTES
    (tmp_path / "workflows/notes.yaml").write_text(wrong)
    said = await asyncio.to_thread(workflow_findings, tmp_path, "notes")
    assert answer["findings"] == said
    assert said[0]["text"] in caught.value.fix
    assert (said[0]["file"], said[0]["line"]) == ("workflows/notes.yaml", 3)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "name: [", "\ufffe", "&a [*a]", "name: notes\n"])
async def test_what_is_no_workflow_is_not_written(door: Door, tmp_path: Path, text: str) -> None:
    revision = (await door.call("workflows.source", name="notes"))["revision"]
    with pytest.raises(Misconfigured, match="was not written"):
        await door.write("notes", text, match=f'"{revision}"')
    assert (tmp_path / "workflows/notes.yaml").read_text() == NOTES


async def test_a_text_that_breaks_another_file_is_not_written(door: Door, tmp_path: Path) -> None:
    revision = (await door.call("workflows.source", name="notes"))["revision"]
    with pytest.raises(Misconfigured, match="was not written"):
        await door.write("notes", NOTES.replace("name: notes", "name: deploys"), match=f'"{revision}"')
    assert (tmp_path / "workflows/notes.yaml").read_text() == NOTES


async def test_a_file_that_was_changed_on_the_disk_is_a_conflict(door: Door, tmp_path: Path) -> None:
    revision = (await door.call("workflows.source", name="notes"))["revision"]
    edited = NOTES.replace("noted", "by an editor")
    (tmp_path / "workflows/notes.yaml").write_text(edited)
    with pytest.raises(Outdated, match="was changed meanwhile"):
        await door.write("notes", NOTES, match=f'"{revision}"')
    assert (tmp_path / "workflows/notes.yaml").read_text() == edited


async def test_our_tokens_are_not_shown_and_survive_a_change(door: Door, tmp_path: Path) -> None:
    found = await door.call("workflows.source", name="deploys")
    assert TOKEN not in found["text"]
    assert "***" in found["text"]
    text = found["text"].replace("hello", "good morning")
    answer = await door.write("deploys", text, match=f'"{found["revision"]}"')
    assert TOKEN not in answer["diff"]
    assert (tmp_path / "workflows/deploys.yaml").read_text() == DEPLOYS.replace("hello", "good morning")


async def test_line_ends_stay_those_of_the_file(door: Door, tmp_path: Path) -> None:
    (tmp_path / "workflows/notes.yaml").write_bytes(NOTES.replace("\n", "\r\n").encode())
    found = await door.call("workflows.source", name="notes")
    answer = await door.write("notes", NOTES.replace("noted", "written"), match=f'"{found["revision"]}"')
    assert answer["diff"].count("\n-") == 1
    assert (tmp_path / "workflows/notes.yaml").read_bytes().count(b"\r\n") == 3


async def test_a_workflow_without_a_file_gets_one(door: Door, tmp_path: Path) -> None:
    answer = await door.write("fresh", NOTES.replace("name: notes", "name: fresh"), match='"new"')
    assert (answer["file"], answer["diff"].splitlines()[0]) == ("workflows/fresh.yaml", "--- /dev/null")
    assert "workflow:fresh" in answer["reload"]["add"]
    assert (tmp_path / "workflows/fresh.yaml").exists()


async def test_a_file_that_was_refused_can_be_corrected(door: Door, tmp_path: Path) -> None:
    (tmp_path / "workflows/broken.yaml").write_text("name: [")
    await door.call("reload")
    found = await door.call("workflows.source", name="workflows/broken.yaml")
    good = NOTES.replace("name: notes", "name: broken")
    answer = await door.write("workflows/broken.yaml", good, match=f'"{found["revision"]}"')
    assert (answer["written"], answer["reload"]["refused"]) == (True, [])


@pytest.mark.parametrize(
    "name", ["../harken", "..", "/etc/passwd", "workflows/../harken.yaml", "harken.yaml", "a/b", ".hidden", "a.yaml "]
)
async def test_hostile_names_reach_no_file(door: Door, app: App, tmp_path: Path, name: str) -> None:
    before = sorted(str(path) for path in tmp_path.parent.rglob("*.yaml"))
    reply = await asyncio.to_thread(_put, f"{app.url}/api/workflows/{quote(name, safe='')}/source", NOTES)
    assert reply in (404, 409)
    assert sorted(str(path) for path in tmp_path.parent.rglob("*.yaml")) == before


async def test_nul_and_huge_texts_are_refused(door: Door, app: App) -> None:
    address = f"{app.url}/api/workflows/notes/source"
    assert await asyncio.to_thread(_put, f"{app.url}/api/workflows/a%00b/source", NOTES) == 400
    assert await asyncio.to_thread(_put, address, "a\0b") == 400
    revision = (await door.call("workflows.source", name="notes"))["revision"]
    with pytest.raises(Misconfigured, match="larger than 256 kB"):
        await door.write("notes", "#" * 300_000, match=f'"{revision}"')


async def test_a_file_behind_a_link_is_shown_why_not(
    door: Door, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    real = tmp_path_factory.mktemp("outside") / "notes.yaml"
    os.rename(tmp_path / "workflows/notes.yaml", real)
    (tmp_path / "workflows/notes.yaml").symlink_to(real)
    reply = await asyncio.to_thread(_get, f"{door._url}/api/workflows/notes/source")
    assert (reply["status"], reply["detail"]) == (409, "notes.yaml in workflows/notes.yaml is a symbolic link")


async def test_the_schema_for_editors_is_that_of_the_command(door: Door) -> None:
    found = await door.call("config.schema")
    assert found["title"] == "Harken: workflows/*.yaml"
    assert {"name", "trigger", "steps"} <= set(found["properties"])
    assert (await door.call("config.schema", file="harken"))["title"] == "Harken: harken.yaml"


def test_only_admins_without_an_owner_may() -> None:
    rows = [PERMISSIONS["workflows.source"], PERMISSIONS["workflows.write"]]
    assert {(row.role, row.thing) for row in rows} == {("admin", "everything")}


def _put(address: str, text: str) -> int:
    from urllib.error import HTTPError

    headers = {"Content-Type": "application/json", "If-Match": '"new"'}
    try:
        with urlopen(Request(address, json.dumps({"text": text}).encode(), headers, method="PUT"), timeout=60) as reply:
            return int(reply.status)
    except HTTPError as error:
        return error.code


def _get(address: str) -> Any:
    from urllib.error import HTTPError

    try:
        with urlopen(address, timeout=60) as reply:
            return json.loads(reply.read())
    except HTTPError as error:
        return json.loads(error.read())
