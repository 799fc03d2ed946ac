"""Recipes: every one of them loads, passes its own cases, has a picture, and can be written into an empty directory."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from harken.cli.root import run
from harken.operate.recipes import list_recipes
from harken.simulation.case_runner import run_cases

NAMES = [row["name"] for row in list_recipes()]
ROOT = Path(__file__).parents[2]
MERMAID = re.compile(r"^```mermaid\nflowchart LR\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_there_are_twenty_five() -> None:
    assert len(NAMES) == 25
    assert sorted(folder.name for folder in (ROOT / "examples" / "recipes").iterdir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_written_and_passes_its_cases(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", str(tmp_path), "--recipe", name]) == 0
    assert "harken" in capsys.readouterr().out
    summary = run_cases(tmp_path)
    assert [str(problem) for result in summary.results for problem in result.problems] == []
    assert summary.results


def test_a_recipe_leaves_out_of_a_repository_what_an_empty_beginning_leaves_out(tmp_path: Path) -> None:
    for folder, options in (("recipe", ["--recipe", "on-call"]), ("empty", [])):
        assert run(["init", str(tmp_path / folder), *options]) == 0
    assert (tmp_path / "recipe" / ".gitignore").read_text() == (tmp_path / "empty" / ".gitignore").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_has_a_picture_and_says_what_it_needs(name: str) -> None:
    text = (ROOT / "examples" / "recipes" / name / "README.md").read_text("utf-8")
    needs = next(row["needs"] for row in list_recipes() if row["name"] == name)
    picture = MERMAID.search(text)
    assert picture and "-->" in picture[1]
    assert all(f"`{variable}`" in text for variable in needs)
    assert f"harken init --recipe {name}\n" in text


def test_the_list_names_what_each_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipes", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["on-call"] == {
        "name": "on-call",
        "title": "tell the channel of an urgent incident, and again if nobody has taken it",
        "needs": ["PAGERDUTY_TOKEN", "SLACK_BOT_TOKEN"],
        "workflows": ["on-call"],
    }
    assert all(row["title"] for row in rows.values())
    assert run(["recipes", "list"]) == 0
    assert "harken init --recipe NAME" in capsys.readouterr().out


def test_one_is_shown_with_its_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipes", "show", "on-call"]) == 0
    assert "flowchart LR" in capsys.readouterr().out


def test_what_is_there_stays_and_keys_are_made_for_one_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "harken.yaml").write_text("# mine\n")
    assert run(["init", str(tmp_path), "--recipe", "dead-mans-switch"]) == 0
    assert "harken.yaml  is there already: left as it is" in capsys.readouterr().out
    assert (tmp_path / "harken.yaml").read_text() == "# mine\n"
    environment = tmp_path / ".env"
    assert re.search(r"^ALIVE_KEY=\S{20,}$", environment.read_text(), re.MULTILINE)
    assert stat.S_IMODE(environment.stat().st_mode) == 0o600


def test_a_name_that_is_almost_right_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "--recipe", "on-cal"]) == 1
    assert "on-call" in capsys.readouterr().err
