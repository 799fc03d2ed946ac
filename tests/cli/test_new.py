"""`harken new service`: what it writes passes its own test, and nothing that is there is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harken.cli.root import run
from tests.cli.editable_plugin import plugged

LONGEST = "an-uncommonly-long-name-of-one"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def within(package: Path, *words: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a tool of this environment in the package."""
    environ = {**os.environ, "PYTHONPATH": str(path or "")}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=package, env=environ, capture_output=True, text=True, check=False
    )


def files(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


class TestWhatIsWritten:
    @pytest.fixture(params=["weather", LONGEST])
    def package(self, request: pytest.FixtureRequest, elsewhere: Path) -> Path:
        assert run(["new", "service", request.param]) == 0
        return elsewhere / f"harken-{request.param}"

    def test_its_own_test_passes(self, package: Path) -> None:
        done = within(package, "pytest", "-q", "-p", "no:cacheprovider")
        assert done.returncode == 0, done.stdout
        assert "15 passed" in done.stdout

    def test_ruff_has_nothing_to_say(self, package: Path) -> None:
        for words in (["check"], ["format", "--check"]):
            done = within(package, "ruff", *words, "--no-cache")
            assert done.returncode == 0, done.stdout

    def test_a_source_that_loses_a_page_does_not_pass(self, package: Path) -> None:
        (service,) = package.glob("harken_*.py")
        service.write_text(service.read_text().replace('more=answer["more"]', "more=False"))
        done = within(package, "pytest", "-q", "-p", "no:cacheprovider")
        assert done.returncode == 1
        assert "test_all_pages_are_read" in done.stdout


def test_mypy_has_nothing_to_say(elsewhere: Path) -> None:
    assert run(["new", "service", "weather"]) == 0
    done = within(elsewhere / "harken-weather", "mypy", "--strict")
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_installed_package_is_a_kind_of_integration(elsewhere: Path) -> None:
    assert run(["new", "service", "my-weather"]) == 0
    site = plugged(elsewhere / "harken-my-weather", elsewhere / "site")
    (elsewhere / "harken.yaml").write_text("integrations: {sky: {kind: my_weather, token: x, nothing: 1}}\n")
    done = within(elsewhere, "harken.cli", "config", "check", path=site)
    assert "integrations.sky.nothing" in done.stdout
    assert "1 error, 0 warnings" in done.stdout


def test_the_answer_says_what_was_written(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "service", "my-weather", "plugins/sky", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["kind"], made["directory"]) == ("my_weather", "plugins/sky")
    assert sorted(made["files"]) == sorted(f"plugins/sky/{name}" for name in files(elsewhere / "plugins" / "sky"))


def test_a_person_is_told_what_to_type_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "service", "weather"]) == 0
    assert "cd harken-weather && pip install --editable '.[dev]' && pytest" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["Weather", "2day", "a b", "../up", "wet_", "a--b", "", "ünder", LONGEST + "x", "-x"])
def test_a_bad_name_is_refused_and_nothing_is_written(
    name: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["new", "service", "--", name]) == 1
    assert "lower-case letters and digits" in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["json", "webhook-poll"])
def test_a_name_or_alias_that_is_taken_is_refused(
    name: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["new", "service", name]) == 1
    assert "is installed already" in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []


def test_a_directory_with_something_in_it_is_left_alone(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (elsewhere / "harken-weather").mkdir()
    (elsewhere / "harken-weather" / "mine.txt").write_text("mine")
    assert run(["new", "service", "weather"]) == 1
    assert "harken-weather is there already" in capsys.readouterr().err
    assert files(elsewhere) == {"harken-weather/mine.txt": "mine"}


def test_a_file_in_the_place_of_the_directory_is_left_alone(elsewhere: Path) -> None:
    (elsewhere / "sky").write_text("mine")
    assert run(["new", "service", "weather", "sky"]) == 1
    assert files(elsewhere) == {"sky": "mine"}


def test_an_empty_directory_is_filled(elsewhere: Path) -> None:
    (elsewhere / "sky").mkdir()
    assert run(["new", "service", "weather", "sky"]) == 0
    assert (elsewhere / "sky" / "harken_weather.py").is_file()
