"""What a broker's message becomes: an event, or a dead letter that says why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from harken.event import Event
from harken.kit.stream_messages import MessageQuery, MessageReader
from harken.source import Rejected

AT = datetime(2026, 11, 17, 18, 0, tzinfo=UTC)


def event(body: bytes, *, about: str = "", metadata: dict[str, Any] | None = None, **settings: Any) -> Event:
    found = MessageReader(MessageQuery(**settings), "broker.message").read(
        "orders/0@7", body, about=about, at=AT, metadata=metadata
    )
    assert isinstance(found, Event), found
    return found


def reason(body: bytes, *, metadata: dict[str, Any] | None = None, **settings: Any) -> str:
    found = MessageReader(MessageQuery(**settings), "broker.message").read("orders/0@7", body, metadata=metadata)
    assert isinstance(found, Rejected), found
    assert found.event.key == "orders/0@7"
    return found.reason


def test_a_json_object_is_the_event_and_kept_byte_for_byte() -> None:
    found = event(b'{"id": 5,  "total": 12.50}')
    assert (found.data, found.raw) == ({"id": 5, "total": 12.5}, b'{"id": 5,  "total": 12.50}')
    assert (found.subject, found.key, found.state) == ("orders/0@7", "orders/0@7", None)
    assert (found.type, found.occurred_at) == ("broker.message", AT)


def test_messages_about_one_thing_are_told_apart_by_their_names() -> None:
    found = event(b"{}", about="customer-9")
    assert (found.subject, found.state, found.key) == ("customer-9", "orders/0@7", "orders/0@7")


def test_fields_of_the_message_name_it() -> None:
    body = b'{"event": {"id": 77, "kind": "paid"}, "order": "A1", "at": "2026-01-02T03:04:05Z"}'
    found = event(body, id_field="event.id", type_field="event.kind", subject_field="order", time_field="at")
    assert (found.key, found.type, found.subject, found.state) == ("77", "paid", "A1", "77")
    assert found.occurred_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_other_formats_become_a_field() -> None:
    assert event(b"[1, 2]").data == {"value": [1, 2]}
    assert event("grüße".encode(), format="text").data == {"text": "grüße"}
    assert event(b"\x00\xff", format="binary").data == {"base64": "AP8="}


def test_what_the_broker_says_is_added_on_request() -> None:
    assert event(b'{"n": 1}', metadata={"partition": 3}).data == {"n": 1}
    reader = MessageReader(MessageQuery(metadata=True), "broker.message")
    found = reader.read("m", b'{"n": 1}', metadata={"partition": 3})
    assert isinstance(found, Event)
    assert (found.data, found.raw) == ({"n": 1, "_message": {"partition": 3}}, b"")


@pytest.mark.parametrize(
    ("body", "settings", "why"),
    [
        (b"{ no", {}, "it is not JSON; format: says what messages are"),
        (b"\xff\xfe", {}, "it is not JSON; format: says what messages are"),
        (b'{"n": NaN}', {}, "it is not JSON; format: says what messages are"),
        (b"\xff", {"format": "text"}, "it is not UTF-8; format: says what messages are"),
        (b"[" * 10_000 + b"]" * 10_000, {}, "its JSON is nested too deeply"),
        (b'{"a": "' + b"x" * 100 + b'"}', {"max_bytes": 50}, "it is larger than 50 bytes (max_bytes)"),
        (b'{"a": 1}', {"id_field": "id"}, "it has no id at 'id' (id_field)"),
        (b'{"id": "' + b"x" * 1_001 + b'"}', {"id_field": "id"}, "its id is longer than 1,000 characters"),
        (b'{"s": "' + b"x" * 1_001 + b'"}', {"subject_field": "s"}, "its subject is longer than 1,000 characters"),
    ],
)
def test_what_cannot_be_read_says_why(body: bytes, settings: dict[str, Any], why: str) -> None:
    assert reason(body, **settings) == why


def test_a_header_bomb_is_rejected() -> None:
    reader = MessageReader(MessageQuery(metadata=True), "broker.message")
    found = reader.read("m", b"{}", metadata={"headers": {"x": "y" * 100_000}})
    assert isinstance(found, Rejected)
    assert found.reason == "its headers are larger than 65,536 bytes"


def test_a_dead_letter_keeps_the_beginning_of_a_message() -> None:
    letter = MessageReader(MessageQuery(), "broker.message").reject("m", b"x" * 1_000_000, "no")
    assert letter.event.data["size"] == 1_000_000
    assert len(letter.event.data["base64"]) < 100_000
