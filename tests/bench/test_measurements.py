from __future__ import annotations

import subprocess
from types import ModuleType

import msgspec
import pytest

from bench import (
    backtest,
    fanout,
    fleet,
    growth,
    idle,
    poll,
    postgres,
    redis,
    rows,
    scale,
    start,
    streams,
    ticks,
    webhook,
)
from bench.__main__ import NAMES, main
from bench.figures import Figure, at_least, at_most, table
from bench.measurement_sizes import FULL, TINY
from bench.processes import ROOT
from tests.downloads import debian, skip_or_fail
from tests.soak import SOAK

pytestmark = [pytest.mark.process, pytest.mark.worker_group("bench")]

# a takeover lasts as long as a lease
SIZES = (
    msgspec.structs.replace(TINY, takeover_feeds=100, stream_systems=(), row_stores=FULL.row_stores) if SOAK else TINY
)
LOCAL = (webhook, poll, ticks, fanout, backtest)
LONG_LOCAL = (scale, idle, start, rows)
SERVERS = {postgres: "postgresql", redis: "redis-server"}
LONG_SERVERS = {streams: "redis-server", fleet: "postgresql", growth: "postgresql"}
"""Two seconds of CPU and more, each: tried in `make soak` only."""


@pytest.mark.parametrize("measurement", [*LOCAL, *(LONG_LOCAL if SOAK else ())], ids=lambda module: module.__name__)
def test_a_measurement_runs_and_gives_figures(measurement):
    assert_it_measures(measurement)


@pytest.mark.parametrize(
    ("measurement", "server"),
    [*SERVERS.items(), *(LONG_SERVERS.items() if SOAK else ())],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_measurement_on_a_server_runs_and_gives_figures(measurement, server):
    debian.program(server)

    assert_it_measures(measurement)


def assert_it_measures(measurement: ModuleType) -> None:
    said: list[str] = []
    figures = measurement.measure(SIZES, said.append)
    # a server may free more meanwhile than a handful of events takes
    assert all(figure.value >= 0 or figure.unit == "B" for figure in figures)
    assert any(figure.goal for figure in figures)
    assert said


@pytest.mark.parametrize("name", ["postgres", "redis", "streams", "fleet", "growth"])
def test_without_its_server_a_measurement_says_so_and_the_command_fails(name, monkeypatch, tmp_path, capsys):
    def absent(package: str) -> None:
        skip_or_fail(f"Install it: apt-get install {package}")

    for starter in ("postgres", "redis"):
        monkeypatch.setattr(f"tests.servers.{starter}.program", absent)
    monkeypatch.chdir(tmp_path)

    assert main(["--tiny", "--only", name]) == 1

    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"{name}: failed: ")]
    assert "apt-get install" in line


def test_every_measurement_is_a_module_that_the_command_knows():
    modules = {*LOCAL, *LONG_LOCAL, *SERVERS, *LONG_SERVERS}

    assert {module.__name__.removeprefix("bench.") for module in modules} == set(NAMES)


def test_make_bench_passes_on_what_is_asked_for():
    # without what it prints of directories when a make has started us
    make = ["make", "--no-print-directory", "--dry-run", "--old-file=setup", "--old-file=servers"]
    command = [*make, "bench", "ONLY=growth,webhook"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert said.splitlines()[-1].endswith("/python -m bench --only growth,webhook")


def test_a_goal_is_judged_by_the_value_or_by_the_ratio_to_the_limit():
    figure = Figure(measure="speed", value=50, unit="/s", limit=100, ratio=0.5)
    assert at_least(figure, 0.35, of="ratio").ok
    assert not at_most(figure, 40).ok


def test_the_table_shows_the_limit_beside_the_value():
    line = table([Figure(measure="speed", value=1234, unit="/s", limit=5678, limit_is="bare")]).splitlines()[-1]
    assert line.split() == ["speed", "1,234", "/s", "5,678", "/s", "(bare)"]
