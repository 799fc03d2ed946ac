"""The table of other tools: what stands in it, and who could not be had. The tools themselves are not needed here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import peers
from bench.figures import Figure, table
from bench.measurement_sizes import TINY
from bench.peer_installs import NotInstalled, cache_directory, npm_package
from bench.peers import Command, Peer, Round, figures, measure
from bench.processes import ROOT

MISSING = Peer(name="Other", records="something", prepare=peers.PEERS[1].prepare)


def rounds(*cpu_ms: float) -> list[Round]:
    return [Round(cpu_ms=cpu, rate=1_000 / cpu) for cpu in cpu_ms]


def test_the_ratio_of_cpu_is_to_harkens_and_medians_count():
    taken = {("Harken", 16): rounds(0.1, 0.1, 0.9), ("Other", 16): rounds(0.2, 0.3, 0.4)}
    found = {figure.measure: figure for figure in figures([peers.HARKEN, MISSING], taken, {})}
    assert found["Harken, 16 connections: CPU per webhook"].ratio == pytest.approx(1.0)
    assert found["Other, 16 connections: CPU per webhook"].value == pytest.approx(0.3)
    assert found["Other, 16 connections: CPU per webhook"].ratio == pytest.approx(3.0)
    assert found["Other, 16 connections: CPU per webhook"].limit_is == "records something"
    assert found["Other, 16 connections: webhooks"].value == pytest.approx(1_000 / 0.3)


def test_who_could_not_be_had_has_a_row_that_says_why():
    text = table(figures([MISSING], {}, {"Other": "npm is not installed here"}))
    assert "Other, 16 connections  -      not measured: npm is not installed here" in text
    assert "Other, 64 connections" in text


def test_a_figure_without_a_value_is_no_number():
    assert "0" not in table([Figure(measure="x", value=None, unit="ms")])


def refuse(directory: Path, port: int) -> Command:
    raise NotInstalled("it needs a newer node")


def ends(directory: Path, port: int) -> Command:
    return Command(words=(sys.executable, "-c", "pass"))


def fails_before(directory: Path, port: int) -> Command:
    return Command(words=(sys.executable,), before=[(sys.executable, "-c", "raise SystemExit(3)")])


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (refuse, "it needs a newer node"),
        (ends, "it was installed and took no webhook"),
        (fails_before, "raise SystemExit(3) ended with code 3"),
    ],
)
def test_a_peer_that_cannot_be_started_does_not_keep_the_others_from_being_measured(prepare, why):
    said: list[str] = []
    found = measure(TINY, said.append, [Peer(name="Other", records="", prepare=prepare)])
    assert [figure.limit_is for figure in found] == [f"not measured: {why}"] * 2
    assert f"Other: {why}" in said


def test_without_npm_nothing_is_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotInstalled, match="npm is not installed"):
        npm_package("node-red")
    assert cache_directory() == tmp_path / "harken-bench-peers"
    assert not cache_directory().exists()


@pytest.mark.process
@pytest.mark.worker_group("bench")
def test_harken_itself_is_measured_as_a_peer():
    found = measure(TINY, lambda line: None, [peers.HARKEN])
    assert [bool(figure.value) for figure in found] == [True] * 4


@pytest.mark.parametrize("program", ["peer_huey.py", "peer_dbos.py"])
def test_the_program_of_a_peer_can_be_read_by_its_own_python(program):
    subprocess.run([sys.executable, "-m", "py_compile", str(ROOT / "bench" / program)], check=True)
