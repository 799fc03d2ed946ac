"""What `config check`, `workflows check` and `doctor` find before the first event, and how they print it."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from harken.cli.root import run

WRONG_CONDITION = """\
name: wrong
trigger:
  schedule: {every: 10s}
  condition: event.x == 1 and event.y == 2
steps:
  - {id: look, action: filter, condition: "sizze(event.x) > 1"}
"""


def write(directory: Path, file: str, text: str) -> Path:
    path = directory / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return directory


def test_findings_show_the_line_of_a_condition_with_a_caret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "workflows/wrong.yaml", WRONG_CONDITION)
    assert run(["--config", str(tmp_path), "config", "check"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("trigger.condition: 1:14: write && instead of and")
    assert lines[1:3] == ["    event.x == 1 and event.y == 2", "                 ^"]
    assert lines[3].endswith("1:1: there is no function sizze; did you mean size?")
    assert lines[4:] == ["    sizze(event.x) > 1", "    ^", "2 errors, 0 warnings"]


@pytest.mark.parametrize("command", ["config", "workflows"])
def test_output_format_github_annotates_the_line_in_the_file(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "workflows/wrong.yaml", WRONG_CONDITION)
    assert run(["--config", str(tmp_path), command, "check", "--output-format", "github"]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        f"::error file={tmp_path}/workflows/wrong.yaml,line=4,col=14,title=expression::"
        "1:14: write && instead of and%0Aevent.x == 1 and event.y == 2%0A             ^"
    )


@pytest.mark.parametrize("command", ["config", "workflows"])
def test_output_format_json_is_that_of_json(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "workflows/wrong.yaml", WRONG_CONDITION)
    assert run(["--config", str(tmp_path), command, "check", "--output-format", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert run(["--config", str(tmp_path), command, "check", "--json"]) == 1
    assert rows == json.loads(capsys.readouterr().out)
    assert rows[0]["excerpt"] == "event.x == 1 and event.y == 2\n             ^"


def test_one_error_is_not_one_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "workflows/one.yaml", "name: one\nsteps: [{action: fliter}]\n")
    assert run(["--config", str(tmp_path), "config", "check"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 error, 0 warnings"
