"""A real controller in its own process, found, asked and stopped by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.process, pytest.mark.worker_group("cli-process")]

HELLO = """\
name: hello
trigger:
  schedule: {every: 1s}
steps:
  - {id: note, action: transform, set: {text: hello}}
"""


class Started:
    def __init__(self, directory: Path, process: subprocess.Popen[str]) -> None:
        self.directory = directory
        self.process = process

    def types(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "harken.cli", *args, "--config", str(self.directory)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    def json(self, *args: str) -> Any:
        done = self.types(*args, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "hello.yaml").write_text(HELLO)
    command = [sys.executable, "-m", "harken.cli", "--config", str(tmp_path), "start", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    ready = next((line for line in process.stdout if "ready at" in line), "")
    assert ready
    yield Started(tmp_path, process)
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_controller_is_started_watched_asked_and_stopped(started: Started) -> None:
    tail = [sys.executable, "-m", "harken.cli", "--config", str(started.directory), "events", "tail", "--json"]
    tail += ["--feed", "hello"]
    with subprocess.Popen(tail, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        event = json.loads(watching.stdout.readline())
        watching.terminate()
    assert event["verdicts"][0]["outcome"] == "fired"
    assert event["feed"] == event["feed_id"] == "schedule/hello"
    unknown = started.types("events", "tail", "--feed", "schedule/helo")
    assert (unknown.returncode, "Did you mean schedule/hello?" in unknown.stderr) == (1, True), "not a wait in vain"
    assert started.json("explain", "hello", event["key"])["outcome"] == "fired"
    assert started.json("status")["controller"]["pid"] == started.process.pid
    assert started.json("triggers", "pause", "hello")["status"] == "paused"
    assert os.stat(started.directory / "harken.db.run.json").st_mode & 0o077 == 0
    assert started.json("controller", "stop")["stopped"]
    assert started.process.wait(200) == 0
    assert started.types("controller", "status").returncode == 1
    assert started.json("triggers", "show", "hello")["status"] == "paused"


def test_the_first_line_of_a_start_on_a_store_of_its_own_is_that_it_is_ready(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "hello.yaml").write_text(HELLO)
    command = [sys.executable, "-m", "harken.cli", "--config", str(tmp_path), "start", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.terminate()
        rest = process.stdout.read()
    assert first.startswith("harken is ready at ")
    assert "lease." not in rest


def test_a_start_with_wrong_files_says_how_many_and_which_command_helps(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "hello.yaml").write_text(HELLO)
    (tmp_path / "workflows" / "no_action.yaml").write_text("name: other\nsteps: [{id: more}]\n")
    (tmp_path / "workflows" / "no_yaml.yaml").write_text("name: [")
    command = [sys.executable, "-m", "harken.cli", "--config", str(tmp_path), "start", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.terminate()
        process.stdout.read()
    assert first.startswith("harken is ready at ")
    assert " (1 feed, 1 trigger), but there are errors in 2 files: harken config check shows them, " in first


def test_start_prints_a_line_for_each_run_and_stop_ends_it(started: Started) -> None:
    assert started.process.stdout is not None
    line = next(line for line in started.process.stdout if "  hello  " in line)
    assert line.split("  ")[3] == "done"
    done = started.types("workflows", "run", "hello", "--wait")
    assert (done.returncode, "text  hello" in done.stdout) == (0, True)
    assert any("  hello  (by hand)  done  " in line for line in started.process.stdout)
    tail = [sys.executable, "-m", "harken.cli", "--config", str(started.directory), "runs", "tail"]
    with subprocess.Popen(tail, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert "  done  " in watching.stdout.readline()
        watching.terminate()
    assert started.json("stop")["stopped"]
    assert started.process.wait(200) == 0


def test_a_quiet_start_prints_no_line_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "hello.yaml").write_text(HELLO)
    command = [sys.executable, "-m", "harken.cli", "--config", str(tmp_path), "start", "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert any("ready at" in line for line in process.stdout)
        here = Started(tmp_path, process)
        here.json("workflows", "run", "hello", "--wait")
        here.types("stop")
        assert [line for line in process.stdout if "  hello  " in line] == []
