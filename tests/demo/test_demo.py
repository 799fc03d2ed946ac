from __future__ import annotations

import json
import signal
import subprocess
import sys
from subprocess import PIPE
from typing import Any

import pytest

from harken.demo import SCENARIOS

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("demo")]


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

    assert first.startswith("harken demo · API http://127.0.0.1:")
    assert fired
    assert "demo summary" in rest


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
