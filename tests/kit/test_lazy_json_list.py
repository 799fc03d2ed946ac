"""A long JSON answer: its items are found without decoding it at once, and are the same as if it had been."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from harken.errors import NeedsAttention, RetryLater
from harken.event import Event
from harken.http import Reply
from harken.kit import lazy_json_list
from harken.kit.events_by_field_paths import SLICE, ItemEvents, Shape, events_of, kept_events, long_events_of
from harken.kit.lazy_json_list import GROUP, Items, items_in

SHAPE = Shape(whose="x.example", id_field="id", type="x", time_field="at", state_field="state")


def reply(body: bytes) -> Reply:
    headers = CIMultiDictProxy(CIMultiDict({"Content-Type": "application/json"}))
    return Reply("GET", URL("https://x.example/list"), 200, headers, body, 0.0)


@pytest.fixture(autouse=True)
def every_answer_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_json_list, "WHOLE", 0)
    monkeypatch.setattr(lazy_json_list, "TOKENS", 7)


AWKWARD: list[Any] = [
    {"id": 1, "text": 'a "quoted" \\ back]slash}, [{', "deep": {"list": [1, [2, {"x": "]"}]], "none": None}},
    {"id": 2, "text": "\\", "empty": {}, "no": [], "é": "ü😀\u2028"},
    "plain, text",
    -1.5e10,
    True,
    None,
    [],
    {},
    [[["deep"]]],
    2**70,
]


@pytest.mark.parametrize("indent", [None, 1, 3])
@pytest.mark.parametrize(
    ("path", "wrap"),
    [
        ("", lambda items: items),
        ("items", lambda items: {"before": {"items": [1]}, "items": items, "next": "n"}),
        ("data.rows", lambda items: {"rows": [0], "data": {"x": [{"rows": 1}], "rows": items}, "data2": {"rows": 2}}),
        ("data.rows", lambda items: {"data": {"other": 1, "rows": items, "more": True}}),
        ("a.b.c", lambda items: {"a": {"c": [3], "b": {"c": items}}}),
        ("a.b", lambda items: {"a": {"b": [9]}, "a.b": items}),
        ("a.0.b", lambda items: {"a": [{"b": items}]}),
    ],
    ids=["the root", "a key", "a path", "a path with more", "a longer path", "a key with a dot", "an index"],
)
async def test_a_long_answer_has_the_same_items_as_a_short_one(path: str, wrap: Any, indent: int | None) -> None:
    body = msgspec.json.encode(wrap(AWKWARD * 45))
    document, items = await items_in(reply(msgspec.json.format(body, indent=indent or 0)), path, "x.example")
    assert list(items) == msgspec.json.decode(msgspec.json.encode(AWKWARD)) * 45
    assert items[-1] == items[len(items) - 1]
    if isinstance(document, dict):
        assert list(document) == list(wrap([]))


@pytest.mark.parametrize("count", [0, 1, GROUP - 1, GROUP, GROUP + 1, 3 * GROUP])
async def test_groups_of_items_have_no_gaps_and_no_overlap(count: int) -> None:
    body = msgspec.json.encode([{"id": n} for n in range(count)])
    _, items = await items_in(reply(body), "", "x.example")
    assert isinstance(items, Items)
    assert [item["id"] for item in items] == list(range(count))
    assert len(items) == count
    assert items[2:5] == [{"id": n} for n in range(count)][2:5]


async def test_the_rest_of_a_long_answer_is_there_for_paging() -> None:
    body = b'{"meta": {"next": "c9"}, "items": [{"id": 1}], "more": true}'
    document, items = await items_in(reply(body), "items", "x.example")
    assert (document["meta"], document["more"], list(items)) == ({"next": "c9"}, True, [{"id": 1}])


@pytest.mark.parametrize(
    "body",
    [
        b'[{"id": 1}, {"id": 2}',
        b'[{"id": 1}, {"id": "2]',
        b'[{"id": 1}} ]',
        b'[{"id": 1} {"id": 2}]',
        b'[{"id": 1},]',
        b'[{"id": 1}]]',
        b'{"items": [1, 2}',
        b"[" + b'{"id": 1},' * GROUP + b"]",
    ],
)
async def test_a_long_answer_that_breaks_off_is_no_list(body: bytes) -> None:
    with pytest.raises(RetryLater, match="not JSON"):
        _, items = await items_in(reply(body), "items" if body.startswith(b"{") else "", "x.example")
        list(items)


async def test_a_path_without_a_list_is_an_error_that_names_the_keys() -> None:
    with pytest.raises(NeedsAttention, match="its keys are rows"):
        await items_in(reply(b'{"rows": [1]}'), "items", "x.example")


async def test_a_group_that_is_not_quite_json_is_mended() -> None:
    _, items = await items_in(reply(b'[{"id": 1, "load": NaN}, {"id": 2}]'), "", "x.example")
    assert list(items) == [{"id": 1, "load": None}, {"id": 2}]


def items(count: int) -> list[Any]:
    return [{"id": n, "at": 1_700_000_000 + n, "state": "open"} for n in range(count)]


async def test_events_of_many_items_are_made_when_they_are_used() -> None:
    many = items(2 * SLICE + 5)
    events = await long_events_of(many, SHAPE)
    assert isinstance(events, ItemEvents)
    assert (len(events), events[-1], events[3:7]) == (
        len(many),
        events_of(many, SHAPE)[-1],
        events_of(many, SHAPE)[3:7],
    )
    assert list(events) == events_of(many, SHAPE)
    assert isinstance(await long_events_of(many[:SLICE], SHAPE), list)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"id": None}, f"item {SLICE + 7} of x.example has no id at 'id'"),
        ({"at": None}, "no item of x.example has an instant at 'at'"),
        ({"state": ""}, "no item of x.example has a state at 'state'"),
    ],
)
async def test_all_of_many_items_are_checked_before_any_is_used(broken: dict[str, Any], message: str) -> None:
    many = items(2 * SLICE)
    for number, item in enumerate(many):
        if "id" not in broken or number == SLICE + 6:
            item.update(broken)
    with pytest.raises(NeedsAttention, match=message):
        await long_events_of(many, SHAPE)


@pytest.mark.parametrize("count", [SLICE, 3 * SLICE])
async def test_events_are_kept_and_reversed_however_many_there_are(count: int) -> None:
    def is_even(event: Event) -> bool:
        return int(event.subject) % 2 == 0

    events = await long_events_of(items(count), SHAPE)
    kept = await kept_events(events, is_even, reverse=True)
    assert [event.subject for event in kept] == [str(n) for n in range(count - 2, -1, -2)]
    assert kept[0:2] == list(kept)[0:2]
