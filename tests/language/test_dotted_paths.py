from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.language.dotted_paths import MISSING, lookup

DATA: dict[str, Any] = {
    "a": {"b": [{"c": 1}, {"c": None}]},
    "x.y": "exact",
    "x": {"y": "nested", "z": 0},
    "k": {"p.q": {"r": 5}},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.b.0.c", 1),
        ("a.b.1.c", None),
        ("x.y", "exact"),
        ("x.z", 0),
        ("k.p.q.r", 5),
        ("", DATA),
        ("a.b.2.c", MISSING),
        ("a.b.-1", MISSING),
        ("a.b.c", MISSING),
        ("a..b", MISSING),
        ("nope", MISSING),
        ("x.z.q", MISSING),
        ("a.__class__", MISSING),
        ("a.b.²", MISSING),
        ("a.b." + "9" * 5000, MISSING),
    ],
)
def test_path_leads_to(path: str, expected: object) -> None:
    assert lookup(DATA, path) == expected


def test_missing_is_false_and_nothing_else() -> None:
    assert not MISSING
    assert repr(MISSING) == "MISSING"


@given(path=st.text(max_size=20))
def test_any_path_has_an_answer(path: str) -> None:
    lookup({"a": [1, {"b": 2}], "": {"": 1}}, path)
    lookup([[1], path], path)
    lookup(None, path)
