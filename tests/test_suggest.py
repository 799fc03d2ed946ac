from __future__ import annotations

import pytest

from harken.suggest import did_you_mean, find_similar, suggest_clause, suggest_fix, suggest_quoted


def test_close_name_is_suggested() -> None:
    assert suggest_clause("Titel", ["title", "id", 3]) == "; did you mean title?"
    assert suggest_clause("zzz", ["title"]) == ""


def test_case_does_not_matter() -> None:
    assert did_you_mean("GMAIL", ["gmail", "jira"]) == "Did you mean gmail?"
    assert did_you_mean("gmial", ["Gmail", "Jira"]) == "Did you mean Gmail?"
    assert did_you_mean("zzz", ["gmail"]) == ""


@pytest.mark.parametrize(
    ("name", "known", "fix"),
    [
        ("oncal", ["oncall", "news"], "Did you mean oncall?"),
        ("zzz", ["oncall", "news"], "There are: news, oncall"),
        ("zzz", [f"feed-{n:02}" for n in range(13)], f"There are: {', '.join(f'feed-{n:02}' for n in range(12))}, …"),
        ("zzz", [], "There are none"),
    ],
)
def test_fix_for_an_unknown_name(name: str, known: list[str], fix: str) -> None:
    assert suggest_fix(name, known) == fix


def test_unknown_key_is_told_the_known_ones_when_they_are_few() -> None:
    assert suggest_quoted("promt", ["prompt", "id"]) == 'Did you mean "prompt"?'
    assert suggest_quoted("zzz", ["prompt", "id"]) == "Known are: id, prompt"
    assert suggest_quoted("zzz", [f"key-{n}" for n in range(26)]) == ""


def test_similar_names_begin_with_the_one_that_differs_in_case_only() -> None:
    known = ["INC-10421", "INC-1043", "inc-1042", "other"]
    assert find_similar("INC-1042", known) == ("inc-1042", "INC-10421", "INC-1043")
    assert find_similar("zz", ["zzz", "fizz buzz"]) == ("zzz",)


def test_long_names_and_many_keys_are_cut() -> None:
    assert suggest_clause("x" * 100_000, [f"{n}" for n in range(100_000)]) == ""
