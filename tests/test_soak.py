"""What `make soak` makes longer is said in one place, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import soak

ROOT = Path(__file__).parents[1]
SETTING = "HARKEN" + "_SOAK"
HERE = Path(__file__).relative_to(soak.TESTS).as_posix()


def test_every_file_of_a_round_is_there() -> None:
    assert [file for file in soak.LONGER if not (soak.TESTS / file).is_file()] == []


def test_every_test_that_is_longer_is_in_the_table() -> None:
    using = [path for path in soak.TESTS.rglob("test_*.py") if "from tests.soak import" in path.read_text("utf-8")]

    assert {path.relative_to(soak.TESTS).as_posix() for path in using} - {HERE} <= soak.LONGER.keys()


def test_nobody_else_asks_how_long_a_round_is() -> None:
    places = [path for part in ("src", "tests", "bench") for path in (ROOT / part).rglob("*.py")]

    assert [path.name for path in places if SETTING in path.read_text("utf-8")] == ["soak.py"]


@pytest.mark.parametrize(
    ("rounds", "repeated", "at_once", "seconds"), [(0, 7, 7, 60), (1, 70, 70, 14_400), (10, 700, 70, 144_000)]
)
def test_one_factor_makes_all_of_it_longer_and_nothing_larger_than_in_one_round(
    rounds: int, repeated: int, at_once: int, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "LONGER", {HERE: 10})
    monkeypatch.setattr(soak, "ROUNDS", rounds)
    monkeypatch.setattr(soak, "SOAK", rounds > 0)

    assert soak.longer(__file__, 7) == repeated
    assert soak.larger(__file__, 7) == at_once
    assert soak.patience(60) == seconds
