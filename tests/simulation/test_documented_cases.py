"""The pages about cases and the examples' own cases: what they show is what is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harken.cli.root import run
from harken.simulation.case_runner import run_cases
from tests.simulation.configuration import FLOWS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "test-your-workflows.md").read_text("utf-8")
COUNTS = re.compile(r"(?<![a-z]  )(?<=[ :])[0-9.]+(?= )")
SECONDS = re.compile(r"in [0-9.]+ s")


def block(after: str, page: str = PAGE) -> str:
    """The first block of code after this text."""
    found = re.search(r"^```\w*\n(.*?)^```", page[page.index(after) :], re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_page_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for file in ("workflows/urgent.yaml", "tests/urgent.yaml"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(block(f"`{file}`:"), "utf-8")
    (tmp_path / "harken.yaml").write_text("models: {default: echo}\n", "utf-8")
    monkeypatch.chdir(tmp_path)

    assert run(["test", "tests/urgent.yaml"]) == 1

    shown = block("The last one is wrong on purpose").partition("\n")[2]
    assert SECONDS.sub("in - s", capsys.readouterr().out) == SECONDS.sub("in - s", shown)


def test_the_page_about_simulations_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "urgent.yaml").write_text(block("`workflows/urgent.yaml`:"), "utf-8")
    (tmp_path / "workflows" / "morning.yaml").write_text(FLOWS["morning"], "utf-8")
    (tmp_path / "harken.yaml").write_text("models: {default: echo}\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INBOX_KEY", "a-key-for-tests-only")

    assert run(["simulate", "--seed", "7"]) == 0

    page = (ROOT / "docs" / "how-to" / "simulate.md").read_text("utf-8")
    command, _, shown = block("Both must be 0", page).partition("\n")
    said = capsys.readouterr().out
    assert command == "$ harken simulate --seed 7"
    # how often the process could be killed depends on how the engine works, and changes with it
    assert COUNTS.sub("-", said) == COUNTS.sub("-", shown)
    assert "lost     0\ndoubled  0\n" in said


@pytest.mark.parametrize(
    "example", sorted(found.parent.name for found in (ROOT / "examples").glob("*/tests") if found.is_dir())
)
def test_the_cases_of_an_example_pass(example: str):
    summary = run_cases(ROOT / "examples" / example)

    assert summary.results
    assert [str(problem) for result in summary.results for problem in result.problems] == []
