"""Whatever an event is about, the names that a store keeps of it lead to it."""

from __future__ import annotations

from itertools import product

import pytest

from harken.store.events_by_object_name import is_about, names_of, names_to_try


def texts(longest: int) -> list[str]:
    return ["".join(some) for size in range(1, longest + 1) for some in product("a@#", repeat=size)]


def leads_to(subject: str, key: str, name: str) -> bool:
    tried = set(names_to_try(name))
    return bool(tried & names_of(subject, key)) or key in tried


def test_every_name_that_an_event_is_about_leads_to_it() -> None:
    missed = [
        (subject, key, name)
        for subject, key in product(texts(4), texts(6))
        for name in {text[:cut] for text in (subject, key) for cut in range(1, len(text) + 1)}
        if is_about(subject, key, name) and not leads_to(subject, key, name)
    ]
    assert missed == []


@pytest.mark.parametrize(
    ("subject", "key", "kept"),
    [
        ("INC-1", "INC-1", set()),
        ("INC-1", "INC-1@open", {"INC-1"}),
        ("INC-1", "INC-1@open#2", {"INC-1"}),
        ("acme/shop#12@7", "acme/shop#12@7@open#2", {"acme/shop#12"}),
        ("10023:h9", "TEAM-3#h9", {"10023:h9", "TEAM-3"}),
        ("@@@@@@", "######", {"@", "#"}),
    ],
)
def test_few_names_are_kept_of_an_event(subject: str, key: str, kept: set[str]) -> None:
    assert names_of(subject, key) == kept


def test_a_hostile_name_is_not_tried_a_thousand_times() -> None:
    assert len(names_to_try("a@" * 1000)) == 8
