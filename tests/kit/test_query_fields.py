"""What people may write in a query, whichever service it is for."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from harken.kit.query_fields import as_list, as_text_list, fingerprint_of, label_name, plain_value, unique_names


class Asked(BaseModel):
    state: str = "open"
    labels: tuple[str, ...] = ()


def test_one_value_stands_for_a_list_of_it() -> None:
    assert as_list("bug") == ["bug"]
    assert as_list(7) == [7]
    assert as_list(["bug", "urgent"]) == ["bug", "urgent"]


def test_a_number_is_a_name_where_names_are_wanted() -> None:
    assert as_text_list([2024, "bug"]) == ["2024", "bug"]
    assert as_text_list(2024) == ["2024"]


def test_true_is_no_name() -> None:
    assert as_text_list(True) is True


def test_capitals_make_no_other_name() -> None:
    assert unique_names(["Bug", "urgent", "BUG", "bug", "Urgent"]) == ("Bug", "urgent")


def test_a_label_loses_the_blanks_around_it() -> None:
    assert label_name("  good first issue ", "GitHub") == "good first issue"


@pytest.mark.parametrize(("name", "why"), [("  ", "empty"), ("a\x07b", "printed"), ("bug,urgent", "GitHub takes")])
def test_a_label_that_would_ask_for_others_is_refused(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        label_name(name, "GitHub")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (True, "must be text"),
        (None, "must be text"),
        ("  ", "empty"),
        ("x" * 256, "longer than 255"),
        ("a\nb", "control character"),
        ("a\u2028b", "control character"),
        ("a\ud800b", "control character"),
    ],
)
def test_a_value_that_cannot_stand_in_a_query_is_refused(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        plain_value(value)


def test_a_number_is_a_value_and_blanks_around_it_go() -> None:
    assert (plain_value(7), plain_value(" 7 ")) == ("7", "7")


def test_another_query_has_another_fingerprint() -> None:
    assert fingerprint_of(Asked()) == fingerprint_of(Asked(state="open"))
    assert len({fingerprint_of(one) for one in (Asked(), Asked(state="all"), Asked(labels=("bug",)))}) == 3
