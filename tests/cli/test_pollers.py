"""`harken pollers` on a terminal, with a controller and without one, and what makes a controller look again."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from harken.app import App
from harken.cli.root import run
from harken.errors import NeedsAttention
from tests.operate.counting_service import busy, install, readings
from tests.operate.poller_jobs import job, metered, write


class Terminal:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    async def types(self, *args: str, stdin: io.StringIO | None = None) -> tuple[int, str, str]:
        self._monkeypatch.setattr("sys.stdin", stdin or io.StringIO())
        self._capsys.readouterr()  # what a controller in this process has logged
        code = await asyncio.to_thread(run, ["--config", str(self.directory), "pollers", *args])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    async def json(self, *args: str) -> Any:
        code, out, err = await self.types(*args, "--json")
        assert code in (0, 1), err
        return json.loads(out)


class Person(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    with metered(tmp_path, monkeypatch) as directory:
        readings.latency = 0.0
        write(directory, job("one"), job("two", agent="bea"))
        yield Terminal(directory, monkeypatch, capsys)


@pytest.fixture
async def beside(terminal: Terminal) -> AsyncIterator[Terminal]:
    """A controller runs."""
    async with App.start(terminal.directory, port=0):
        yield terminal


async def test_jobs_are_a_table_and_an_array(beside: Terminal) -> None:
    code, out, _ = await beside.types("list")
    head, first, second = out.splitlines()
    assert (code, head.split()[:4]) == (0, ["id", "kind", "agent", "state"])
    assert (first.split()[:3], second.split()[:3]) == (["one", "meter", "ana"], ["two", "meter", "bea"])
    assert [row["id"] for row in await beside.json("list")] == ["one", "two"]


async def test_the_table_fits_a_terminal_and_what_went_wrong_stands_below_it(beside: Terminal) -> None:
    readings.down["one"] = busy()
    await beside.types("run", "one")
    _, out, _ = await beside.types("list")
    *table, below = out.splitlines()
    assert (len(table), max(map(len, table)) <= 80) == (3, True)
    assert below == f"one: {(await beside.json('list'))[0]['last_error']}"


async def test_one_job_is_shown_with_its_settings(beside: Terminal) -> None:
    _, out, _ = await beside.types("show", "one")
    assert ("poller/one" in out, '"max_per_tick": 20' in out, "run at ms" in out) == (True, True, False)
    assert (await beside.json("show", "one"))["settings"]["config"]["max_per_tick"] == 20


async def test_a_job_that_is_stopped_is_shown_with_the_time_of_its_next_try(beside: Terminal) -> None:
    readings.down["one"] = NeedsAttention("the token is wrong", fix="Make another")
    await beside.types("run", "one")
    code, out, err = await beside.types("show", "one")
    lines = out.splitlines()
    until = next(line for line in lines if line.startswith("breaker until"))
    assert (code, err, lines[-1]) == (0, "", "last error: the token is wrong. Make another")
    assert datetime.strptime(until.removeprefix("breaker until").strip(), "%Y-%m-%d %H:%M:%S %Z")


async def test_a_run_prints_what_it_found_and_fails_with_the_read(beside: Terminal) -> None:
    assert (await beside.types("run", "one"))[:2] == (0, "one: 1 seen, 1 new\n")
    readings.down["one"] = RuntimeError("with a token in it")
    code, out, _ = await beside.types("run", "one")
    assert (code, out.splitlines()[-1]) == (1, "one: unexpected RuntimeError")
    readings.down["one"] = busy()
    assert (await beside.json("run", "one"))["result"] == "error"


async def test_a_job_is_paused_and_resumed(beside: Terminal) -> None:
    assert (await beside.types("pause", "one"))[:2] == (0, "one is paused\n")
    code, _, err = await beside.types("run", "one")
    assert (code, "harken pollers resume one" in err) == (1, True)
    assert (await beside.types("resume", "one"))[:2] == (0, "one is running\n")


async def test_a_reset_asks_a_person_and_tells_a_script_what_to_type(beside: Terminal) -> None:
    code, _, err = await beside.types("reset", "one")
    assert (code, "harken pollers reset one --yes" in err) == (1, True)
    assert (await beside.types("reset", "one", stdin=Person("n\n")))[0] == 130
    assert (await beside.types("reset", "one", stdin=Person("y\n")))[0] == 0
    assert (await beside.types("reset", "one", "--yes"))[:2] == (0, "one is running\n")


@pytest.mark.parametrize("args", [("show",), ("run",), ("pause",), ("resume",), ("reset",), ("reset", "--yes")])
async def test_an_unknown_id_comes_with_the_nearest(beside: Terminal, args: tuple[str, ...]) -> None:
    code, _, err = await beside.types(args[0], "tow", *args[1:])
    assert (code, err) == (1, "harken: there is no job tow\n  Did you mean two?\n")


async def test_a_reload_prints_the_plan_and_what_was_refused(beside: Terminal) -> None:
    write(beside.directory, job("one", kind="metre"), job("three"))
    code, out, _ = await beside.types("reload")
    planned = [line.split()[:2] for line in out[out.index("what ") :].splitlines()]
    assert (code, planned[1:4]) == (1, [["add", "three"], ["remove", "two"], ["refused", "one"]])
    assert "Did you mean meter? (its old version goes on)" in out
    assert out.splitlines()[-1] == "1 add, 0 replace, 1 remove, 0 keep, 1 refused"
    write(beside.directory, job("one"), job("three"))
    code, out, _ = await beside.types("reload")
    assert (code, out.splitlines()[-1]) == (0, "Nothing changed: 0 add, 0 replace, 0 remove, 2 keep, 0 refused")


async def test_without_a_controller_jobs_can_be_seen_and_steered_but_not_run(terminal: Terminal) -> None:
    assert [row["last_status"] for row in await terminal.json("list")] == [None, None]
    code, _, err = await terminal.types("pause", "one")
    assert (code, "no controller has opened it yet" in err) == (1, True)
    async with App.start(terminal.directory, port=0):
        await terminal.json("run", "one")
    row = (await terminal.json("list"))[0]
    assert (row["last_status"], row["items_seen_total"] > 0) == ("ok", True)
    assert (await terminal.json("pause", "one"))["paused"]
    for command in ("run", "reload"):
        code, _, err = await terminal.types(command, *(["one"] if command == "run" else []))
        assert (code, "Start one with: harken start" in err) == (1, True)


async def test_without_a_section_every_command_says_so(terminal: Terminal) -> None:
    (terminal.directory / "pollers.yaml").unlink()
    code, _, err = await terminal.types("list")
    assert (code, err.splitlines()[0]) == (1, "harken: there is no pollers section")


@pytest.mark.process
@pytest.mark.worker_group("cli-process")
def test_a_changed_file_and_a_hangup_reload_the_jobs(tmp_path: Path) -> None:
    directory = tmp_path / "agency"
    directory.mkdir()
    write(directory, job("one"))
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{install(tmp_path)}:{root}"}
    command = [sys.executable, "-m", "harken.cli", "--config", str(directory), "start", "--port", "0"]
    # what a reload says of itself is an info line
    (directory / "harken.yaml").write_text("log: {level: info}\n")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        try:
            assert "ready at" in next(line for line in lines if "ready at" in line)
            write(directory, job("one"), job("two"))
            assert reloaded(lines) == (1, 0)
            process.send_signal(signal.SIGHUP)
            assert reloaded(lines) == (0, 0)
            write(directory, job("one", kind="metre"), job("two"))
            assert reloaded(lines) == (0, 1)
        finally:
            process.kill()


def reloaded(lines: Iterator[str]) -> tuple[int, int]:
    """How many jobs the next reload adds and refuses."""
    said = json.loads(next(line for line in lines if "config.reloaded" in line))
    return said["add"], said["refused"]
