"""Commands without a controller: they open the store themselves."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from harken.app import App
from harken.cli.root import run
from tests.operate.operator_world import opened

HELLO = """\
name: hello
trigger:
  schedule: {every: 10s}
steps:
  - {id: note, action: transform, set: {text: hello}}
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "hello.yaml").write_text(HELLO)
    return tmp_path


class Terminal:
    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys

    def types(self, *args: str) -> tuple[int, str, str]:
        code = run(["--config", str(self.directory), *args])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def json(self, *args: str) -> Any:
        code, out, err = self.types(*args, "--json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def terminal(directory: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(directory, capsys)


def test_reads_work_before_the_first_start(terminal: Terminal) -> None:
    assert [(row["name"], row["status"]) for row in terminal.json("triggers", "list")] == [("hello", "new")]
    assert terminal.json("status")["running"] is False
    assert terminal.json("runs", "list") == []
    assert [row["name"] for row in terminal.json("workflows", "list")] == ["hello"]


def test_reads_do_not_make_a_store(terminal: Terminal) -> None:
    terminal.json("triggers", "list")
    assert not (terminal.directory / "harken.db").exists()


def test_a_workflow_that_is_written_wrong_is_not_said_to_be_missing(terminal: Terminal) -> None:
    wrong = HELLO.replace("name: hello", "name: broken").replace("action: transform", "action: transfrom")
    (terminal.directory / "workflows" / "broken.yaml").write_text(wrong)
    for words in (("triggers", "test"), ("triggers", "show"), ("explain",)):
        code, _, err = terminal.types(*words, "broken")
        assert (code, "broken cannot be used as it is written" in err, "transform" in err) == (1, True, True), err


@pytest.mark.parametrize("words", [("triggers", "test"), ("triggers", "show"), ("triggers", "pause"), ("explain",)])
def test_a_job_or_project_that_is_refused_is_not_said_to_be_missing(words: tuple[str, ...], terminal: Terminal) -> None:
    (terminal.directory / "pollers.yaml").write_text("pollers: {jobs: [{id: leads, kind: rss, agent: ana}]}\n")
    (terminal.directory / "harken.yaml").write_text("projects: {shop: {tracker: hub}}\n")
    listed = {row["name"]: row["status"] for row in terminal.json("triggers", "list")}
    assert (listed["leads"], listed["shop"]) == ("refused", "refused")
    for name, place in (("leads", "pollers.yaml:1:"), ("shop", "harken.yaml:1:")):
        code, _, err = terminal.types(*words, name)
        assert (code, f"{name} cannot be used as it is written: {place}" in err) == (1, True), err


def test_a_tracker_that_is_refused_is_not_said_to_be_missing(terminal: Terminal) -> None:
    (terminal.directory / "harken.yaml").write_text("trackers: {hub: {type: githob}}\n")
    for words in (("trackers", "test", "hub"), ("tickets", "list", "--tracker", "hub")):
        code, _, err = terminal.types(*words)
        assert (code, "hub cannot be used as it is written: harken.yaml:1:" in err) == (1, True), err


def test_a_tracker_that_is_refused_is_listed_with_its_place(terminal: Terminal) -> None:
    (terminal.directory / "harken.yaml").write_text("trackers: {hub: {type: githob}}\n")
    [row] = terminal.json("trackers", "list")["items"]
    assert (row["name"], row["state"], row["projects"]) == ("hub", "refused", [])
    assert row["message"].startswith("harken.yaml:1:")
    _, out, _ = terminal.types("trackers", "list")
    assert "hub      -     -         -      no        refused  -     -          harken.yaml:1:" in out


def test_a_wrong_name_is_compared_with_the_configured_ones_before_the_first_start(terminal: Terminal) -> None:
    code, _, err = terminal.types("triggers", "show", "helo")
    assert (code, "Did you mean hello?" in err) == (1, True), err


def test_an_account_that_is_missing_names_every_variable_that_it_needs(terminal: Terminal) -> None:
    code, _, err = terminal.types("integrations", "jira", "test")
    assert (code, "or set JIRA_BASE_URL, JIRA_API_TOKEN" in err) == (1, True)


@pytest.mark.usefixtures("started")
def test_a_dry_run_changes_no_byte_of_the_store(terminal: Terminal) -> None:
    before = digest(terminal.directory)
    assert terminal.types("triggers", "test", "hello")[0] == 0
    assert digest(terminal.directory) == before


def digest(directory: Path) -> str:
    return hashlib.sha256((directory / "harken.db").read_bytes()).hexdigest()


@pytest.fixture
def started(directory: Path) -> None:
    """A controller has run here once."""

    async def once() -> None:
        async with App.start(directory, port=0):
            pass

    asyncio.run(once())


@pytest.mark.usefixtures("started")
def test_a_trigger_is_paused_and_resumed_without_a_controller(terminal: Terminal) -> None:
    assert terminal.json("triggers", "pause", "hello", "--reason", "holiday")["status"] == "paused"
    assert terminal.json("triggers", "show", "hello")["paused"] == "holiday"
    assert terminal.json("triggers", "resume", "hello")["paused"] == ""


def test_a_trigger_that_was_never_opened_says_to_start(terminal: Terminal) -> None:
    code, _, err = terminal.types("triggers", "pause", "hello")
    assert code == 1
    assert err.endswith("no controller has opened it yet\n  Run: harken start\n")


def test_a_run_started_by_hand_waits_for_the_next_controller(terminal: Terminal) -> None:
    code, out, _ = terminal.types("workflows", "run", "hello")
    assert code == 0
    assert "begins with the next `harken start`" in out
    assert [run["status"] for run in terminal.json("runs", "list")] == ["ready"]


@pytest.mark.usefixtures("started")
def test_a_file_that_keeps_unused_space_is_named_and_compacted(terminal: Terminal) -> None:
    file = terminal.directory / "harken.db"
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        connection.execute("PRAGMA auto_vacuum=NONE; VACUUM")
        connection.execute("CREATE TABLE large AS SELECT zeroblob(3100000); DROP TABLE large")
    code, out, _ = terminal.types("store", "check")
    assert (code, "The store is sound.\n" in out, "3.0 MB of it unused" in out) == (0, True, True)
    [space] = [row for row in terminal.json("doctor") if row["name"] == "space"]
    assert (space["state"], "harken store compact" in space["fix"]) == ("warn", True)
    code, out, err = terminal.types("store", "compact")
    assert (code, err) == (0, "")
    assert out.startswith(f"Writing {file} anew")
    answer = terminal.json("store", "compact")
    assert answer == {"store": str(file), "before": file.stat().st_size, "after": file.stat().st_size}
    assert terminal.types("store", "check")[1] == "The store is sound.\n"


def test_a_store_that_is_not_there_is_not_compacted(terminal: Terminal) -> None:
    code, _, err = terminal.types("store", "compact")
    assert (code, "there is no store at" in err) == (1, True)


@pytest.mark.usefixtures("started")
def test_explain_and_doctor_answer(terminal: Terminal) -> None:
    assert terminal.json("explain", "hello", "nothing")["outcome"] == "never_seen"
    assert {row["name"] for row in terminal.json("doctor")} >= {"config", "store", "clock"}


async def test_a_store_that_another_process_writes_is_still_read(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with opened(directory) as office:
        await office.shows(office.incident("INC-1"))
        code = await asyncio.to_thread(run, ["--config", str(directory), "events", "list", "--json"])
    assert code == 0
    assert [event["key"] for event in json.loads(capsys.readouterr().out)] == ["INC-1"]
