from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Callable
from subprocess import PIPE
from typing import Any

import pyte
import pytest

from harken.demo import SCENARIOS

pytestmark = [pytest.mark.process, pytest.mark.worker_group("demo")]


COMMAND = [sys.executable, "-m", "harken.cli", "demo", "--port", "0"]


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def finished() -> subprocess.CompletedProcess[str]:
    return demo("--seconds", "14", "--json")


@pytest.fixture(scope="module")
def summary(finished: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


def test_nothing_is_lost_doubled_or_made_up(finished, summary):
    assert (summary["lost"], summary["duplicate"], summary["unexpected"]) == (0, 0, 0), finished.stdout
    assert finished.returncode == 0


def test_every_event_of_the_company_is_recorded_and_run(summary):
    assert summary["events_at_source"] >= 10
    assert summary["recorded"] == summary["events_at_source"]
    assert summary["runs"] > 0
    assert summary["deliveries"] > 0


def test_it_was_not_made_easy(summary):
    assert summary["rate_limited"] > 0
    assert summary["late"] > 0


def test_json_is_all_that_is_printed(finished):
    assert finished.stderr == ""


def test_without_a_terminal_each_event_is_a_line():
    with subprocess.Popen(COMMAND, stdout=PIPE, text=True) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        fired = next((line for line in running.stdout if "triage fired" in line), "")
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read().splitlines()

    assert re.match(r"harken demo · http://127\.0\.0\.1:\d+ in your browser", first)
    assert fired.split()[1] == "incidents"
    assert "demo summary" in rest
    assert any(line.startswith("  late ") and "showed after newer ones" in line for line in rest), (
        "its words are explained"
    )
    assert rest[-2].endswith(" init my-automations"), "it ends with the next step"


class Terminal:
    """A real terminal of 80 by 24, as an emulator shows it; `screens` are its states after each piece of output."""

    def __init__(self, command: list[str]) -> None:
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self.written = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *failure: object) -> None:
        # nothing of a test that failed goes on
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def wait_until(self, shown: Callable[[list[str]], bool]) -> list[str]:
        """Read until the screen is as wanted; the test's timeout ends a wait in vain."""
        while not shown(list(self.screen.display)):
            assert self._read(), "the demo ended before"
        return list(self.screen.display)

    def rest(self) -> str:
        """Everything that is written until the demo ends, without the colours."""
        before = len(self.written)
        while self._read():
            pass
        self.process.wait()
        return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", self.written[before:]).decode().replace("\r\n", "\n")

    def _read(self) -> bool:
        try:
            piece = os.read(self._ours, 65_536)
        except OSError:
            # the other side is closed
            return False
        self.written += piece
        self._stream.feed(piece)
        return bool(piece)


def rows_below(display: list[str], heading: str, end: str) -> list[str]:
    """The lines between a heading and the next line that begins with `end`."""
    begin = next(at for at, line in enumerate(display) if line.startswith(heading))
    after = next(at for at, line in enumerate(display) if at > begin and line.startswith(end))
    return [line for line in display[begin + 1 : after] if line.strip()]


def test_in_80x24_each_event_is_one_line_runs_and_counters_are_visible_and_it_ends_with_the_next_step():
    with Terminal(COMMAND) as terminal:
        display = terminal.wait_until(lambda lines: sum(" done " in line for line in lines) >= 3)
        address = re.findall(r"http://127\.0\.0\.1:\d+", display[0])[0]
        page = urllib.request.urlopen(address, timeout=200)
        body = page.read().decode()
        status = json.load(urllib.request.urlopen(f"{address}/api/status", timeout=200))
        terminal.process.send_signal(signal.SIGINT)
        end = terminal.rest()

    events = rows_below(display, "events, the newest first", "runs, the newest first")
    runs = rows_below(display, "runs, the newest first", "fired:")
    assert len(events) >= 5 and len(runs) >= 3
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in (*events, *runs)), "no line is broken into two"
    assert re.match(r"events \d+  runs \d+  under way \d+  late \d+  rate limited \d+", display[1])
    assert any(line.startswith("late: ") for line in display)
    assert any(line.startswith("rate limited: ") for line in display)
    assert any("export HARKEN_CONFIG=/" in line for line in display)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>Harken</title>" in body
    assert status["controller"]["notice"]["title"] == "Harken at work"
    summary = end.partition("demo summary")[2].splitlines()
    assert max(map(len, summary)) <= 80
    assert summary[-2].endswith(" init my-automations")
    assert terminal.process.returncode == 0


@pytest.fixture(scope="module")
def services() -> dict[str, subprocess.CompletedProcess[str]]:
    """The demo of each service, all at once."""
    command = [*COMMAND, "--seconds", "6", "--json"]
    names = ("pagerduty", "slack", "jira", "datadog")
    started = {name: subprocess.Popen([*command, name], stdout=PIPE, stderr=PIPE, text=True) for name in names}
    record_shown = {name: process.communicate(timeout=300) for name, process in started.items()}
    return {
        name: subprocess.CompletedProcess(process.args, process.returncode, *record_shown[name])
        for name, process in started.items()
    }


@pytest.mark.parametrize("name", ["pagerduty", "slack", "jira", "datadog"])
def test_the_demo_of_a_service_loses_doubles_and_makes_up_nothing(services, name: str):
    finished = services[name]
    summary = json.loads(finished.stdout)

    assert (summary["lost"], summary["duplicate"], summary["unexpected"]) == (0, 0, 0), finished.stdout
    assert summary["recorded"] == summary["events_at_source"] > 0
    assert (finished.returncode, finished.stderr) == (0, "")


def test_an_unknown_demo_is_refused_with_the_nearest_name():
    refused = demo("pagerdutty", "--seconds", "1")

    assert refused.returncode == 1
    assert refused.stderr.splitlines() == ["harken: there is no demo of pagerdutty", "  Did you mean pagerduty?"]


def test_help_lists_the_demos():
    record_shown = demo("--help").stdout

    assert all(f"\n    {name} " in record_shown for name in filter(None, SCENARIOS))
