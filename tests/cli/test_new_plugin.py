"""`harken new plugin`: a repository that passes its own tests and can be published."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from harken.cli.root import run


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    assert run(["new", "plugin", "my-weather"]) == 0
    assert "harken-my-weather/.github/workflows/test.yaml  written" in capsys.readouterr().out
    return tmp_path / "harken-my-weather"


def test_it_has_an_entry_point_a_test_and_continuous_integration(package: Path) -> None:
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["harken.services"] == {"my_weather": "harken_my_weather:plugin"}
    workflow = yaml.safe_load((package / ".github" / "workflows" / "test.yaml").read_text())
    steps = workflow["jobs"]["test"]["steps"]
    assert steps[1]["with"]["python-version"] == "${{ matrix.python }}"
    commands = [step["run"] for step in steps if "run" in step]
    assert commands == ["pip install --editable '.[dev]'", "ruff check . && ruff format --check .", "pytest -q"]
    assert "harken-my-weather" in (package / "README.md").read_text()


def test_what_its_continuous_integration_runs_passes(package: Path) -> None:
    for words in (["ruff", "check", "--no-cache", "."], ["ruff", "format", "--no-cache", "--check", "."]):
        done = subprocess.run([sys.executable, "-m", *words], cwd=package, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(tests, cwd=package, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_nothing_that_is_there_is_touched(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "plugin", "my-weather", "--json"]) == 1
    assert "is there already" in capsys.readouterr().err
    assert run(["new", "plugin", "my-weather", "other", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["kind"], len(made["files"])) == ("my_weather", 8)
