from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import Misconfigured, Refused
from harken.language.fields import compile_fields

ITEM: dict[str, Any] = {
    "title": "Grüße 🔥",
    "link": "https://x.test/?a={title}",
    "author": {"name": "Ana", "tags": ["a", "b"]},
    "n": 3,
    "price": 1.5,
    "ok": True,
    "nothing": None,
    "a.b": "exact",
    "a": {"b": "nested"},
    "foo-bar": "dashed",
}


def text(source: str) -> str:
    return compile_fields(source).render(ITEM).text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{title}: {author.name}", "Grüße 🔥: Ana"),
        ("{author.tags.1} {author.tags}", 'b ["a","b"]'),
        ("{n} {price} {ok}[{nothing}]", "3 1.5 true[]"),
        ("{a.b} {foo-bar}", "exact dashed"),
        ("{{title}} {{{title}}}", "{title} {Grüße 🔥}"),
        ('{"json": 1} { title } {} {1} {', '{"json": 1} { title } {} {1} {'),
        ("", ""),
    ],
)
def test_fields_are_filled_in(source: str, expected: str) -> None:
    assert text(source) == expected


def test_json_is_the_whole_item() -> None:
    assert json.loads(text("{json}")) == ITEM


def test_values_are_never_expanded_again() -> None:
    assert text("{link}") == "https://x.test/?a={title}"


def test_unknown_placeholder_stays_visible_and_is_reported_once() -> None:
    rendered = compile_fields("{titel} {titel} {author.nme}").render(ITEM)
    assert rendered.text == "{titel} {titel} {author.nme}"
    assert rendered.warnings == [
        "{titel} is not there; did you mean title?",
        "{author.nme} is not there; did you mean name?",
    ]


def test_fields_know_what_they_ask_for() -> None:
    assert compile_fields("{title} {json} {author.name} {title}").paths == ("title", "author.name")


def test_message_that_grows_too_long_is_refused() -> None:
    with pytest.raises(Refused):
        compile_fields("{x}" * 1000).render({"x": "a" * 10_000})


def test_template_that_is_too_long_is_misconfigured() -> None:
    with pytest.raises(Misconfigured):
        compile_fields("x" * 100_000)


@given(source=st.text(alphabet=st.characters(exclude_characters="{}", exclude_categories=["Cs"])))
def test_text_without_braces_is_kept(source: str) -> None:
    assert compile_fields(source).render({}).text == source


@given(source=st.text(alphabet="{}abn.json -1", max_size=30), value=st.text(max_size=10))
def test_any_template_renders(source: str, value: str) -> None:
    assert isinstance(compile_fields(source).render({"a": {"b": value}, "n": [value]}).text, str)
