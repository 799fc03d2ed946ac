"""Messages with `{field}` placeholders: one pass, nothing in a value is expanded, and what is unknown stays visible."""

from __future__ import annotations

from typing import Any

import pytest

from harken.language.message_placeholders import LONGEST, Filled, fill

ITEM: dict[str, Any] = {
    "title": "Disk full — 90 % 🚨",
    "link": "https://example.com/?a={title}",
    "fields": {"status": {"name": "Open"}, "labels": ["a", "b"]},
    "a.b": "dotted key",
    "count": 3,
    "ratio": 0.5,
    "ok": True,
    "nothing": None,
    "x-id": "dashed",
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{title}", "Disk full — 90 % 🚨"),
        ("Ünïcode 日本 {count}🎉", "Ünïcode 日本 3🎉"),
        ("{fields.status.name}/{fields.labels.1}", "Open/b"),
        ("{fields}", '{"status":{"name":"Open"},"labels":["a","b"]}'),
        ("{a.b}", "dotted key"),
        ("{x-id}", "dashed"),
        ("{ratio} {ok}", "0.5 true"),
        ("[{nothing}]", "[]"),
        ('{"key": "{count}"}', '{"key": "3"}'),
        ("{} { title } {0} {title", "{} { title } {0} {title"),
        ("{{title}}", "{Disk full — 90 % 🚨}"),
        ("", ""),
    ],
)
def test_fields_are_filled_in(template: str, text: str) -> None:
    assert fill(template, ITEM).text == text


def test_a_placeholder_in_a_value_is_not_expanded() -> None:
    assert fill("{link}", ITEM).text == "https://example.com/?a={title}"
    assert fill("{a}{b}", {"a": "{b}", "b": "{a}"}).text == "{b}{a}"


def test_what_is_unknown_stays_visible_and_is_told() -> None:
    filled = fill("{titel} {fields.nope} {title.x} {count}", ITEM)
    assert filled.text == "{titel} {fields.nope} {title.x} 3"
    assert filled.unknown == ("titel", "fields.nope", "title.x")


def test_json_is_the_whole_item_unless_a_field_has_that_name() -> None:
    assert fill("{json}", {"a": 1}).text == '{"a":1}'
    assert fill("{json}", {"json": "mine"}).text == "mine"


def test_python_attributes_are_out_of_reach() -> None:
    assert fill("{title.__class__} {__class__}", ITEM).text == "{title.__class__} {__class__}"


def test_a_message_does_not_grow_beyond_its_bound() -> None:
    assert len(fill("{big}" * 50, {"big": "x" * 100_000}).text) == LONGEST


def test_a_path_that_is_longer_than_any_is_no_placeholder() -> None:
    deep: dict[str, object] = {"b": 1}
    for _ in range(31):
        deep = {"b": deep}
    assert fill("{a" + 32 * ".b" + "}", {"a": deep}).text == "1"
    endless = "{a" + 50_000 * ".b" + "}"
    assert fill(endless, {"a": {"b": 1}}) == Filled(endless)
