"""CloudEvents arrive in each mode as the library of the specification sends them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import from_http_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from pydantic import ValidationError

from harken.errors import Malformed, Unauthorized
from harken.event import Event
from harken.kit.cloud_events import MAX_BATCH
from harken.match.new_feed_items import recognise
from harken.services.webhook import Incoming, IncomingQuery
from harken.source import Request
from harken.testing import START

AT = datetime(2026, 3, 1, 10, tzinfo=UTC)
PLAIN = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order.paid"}
STRUCTURED = {"content-type": "application/cloudevents+json; charset=utf-8"}
BATCH = {"content-type": "application/cloudevents-batch+json"}


async def receive(headers: Mapping[str, str], body: bytes, **query: Any) -> list[Event]:
    given = {"scheme": "none", "allow_unsigned": True, "format": "cloudevents", **query}
    source = Incoming(IncomingQuery.model_validate(given))
    return await source.receive(Request(headers=headers, body=body, received_at=START))


def sent(data: Any = None, **attributes: Any) -> CloudEvent:
    given = {"id": "7", "source": "/shop", "type": "order.paid", "time": AT, **attributes}
    return CloudEvent(attributes=given, data=data)


EVENTS = [
    sent({"no": 12}, datacontenttype="application/json", subject="order 12"),
    sent({"n": [1, 2]}, datacontenttype="application/vnd.shop+json"),
    sent("größe 100%", datacontenttype="text/plain", subject='größe \u20ac 100% "x"', myext="a b"),
    sent(b"\xff\x00", datacontenttype="application/octet-stream"),
    sent(None),
]


class TestModes:
    @pytest.mark.parametrize("mode", [to_binary_event, to_structured_event])
    @pytest.mark.parametrize("event", EVENTS, ids=["json", "other json", "text", "bytes", "no data"])
    async def test_what_the_library_sends_is_read_as_the_library_reads_it(self, mode: Any, event: CloudEvent):
        message = mode(event)
        headers = {name.lower(): value for name, value in message.headers.items()}
        (found,) = await receive(headers, message.body)
        theirs = from_http_event(message)
        names = ("id", "source", "type", "subject", "myext", "datacontenttype")
        expected = {name: value for name in names if (value := theirs.get_attributes().get(name)) is not None}
        assert {name: found.data[name] for name in names if name in found.data} == expected
        assert (found.key, found.type, found.occurred_at) == ("/shop 7", "order.paid", AT)
        data = theirs.get_data()
        given = base64.b64decode(found.data["data_base64"]) if "data_base64" in found.data else found.data.get("data")
        assert given == (data or None)

    async def test_a_structured_event_is_stored_byte_for_byte(self):
        body = json.dumps(PLAIN, indent=1).encode()
        (found,) = await receive(STRUCTURED, body)
        assert (found.payload(), found.subject, found.state) == (body, "/shop 7", None)

    async def test_the_events_of_a_batch_come_together(self):
        batch = [
            PLAIN,
            {**PLAIN, "id": "8", "subject": "order"},
            {**PLAIN, "source": "/other", "subject": "order"},
            PLAIN,
        ]
        events = await receive(BATCH, json.dumps(batch).encode())
        assert [event.key for event in events] == ["/shop 7", "/shop 8", "/other 7", "/shop 7"]
        assert [seen.event.key for seen in recognise(events, {}, "change")] == ["/shop 7", "/shop 8", "/other 7"]

    async def test_an_empty_batch_is_nothing(self):
        assert await receive(BATCH, b"[]") == []

    async def test_a_body_of_no_type_is_json_if_it_can_be(self):
        headers = {f"ce-{name}": value for name, value in PLAIN.items()}
        assert (await receive(headers, b"[1]"))[0].data["data"] == [1]
        assert (await receive(headers, b"null"))[0].data["data"] is None
        assert (await receive(headers, b"\xff"))[0].data["data_base64"] == "/w=="

    async def test_a_header_cannot_stand_for_the_body(self):
        headers = {f"ce-{name}": value for name, value in {**PLAIN, "data": "x"}.items()}
        assert "data" not in (await receive(headers, b""))[0].data

    async def test_two_events_that_only_look_alike_are_two(self):
        first = await receive(STRUCTURED, json.dumps({**PLAIN, "source": "a b", "id": "c"}).encode())
        second = await receive(STRUCTURED, json.dumps({**PLAIN, "source": "a", "id": "b c"}).encode())
        assert first[0].key != second[0].key


class TestRefusals:
    @pytest.mark.parametrize(
        "wrong",
        [
            *({name: value for name, value in PLAIN.items() if name != missing} for missing in PLAIN),
            {**PLAIN, "specversion": "0.3"},
            {**PLAIN, "id": ""},
            {**PLAIN, "id": 7},
            {**PLAIN, "source": None},
            {**PLAIN, "time": "soon"},
            {**PLAIN, "time": {}},
            [],
            None,
            "x",
        ],
    )
    async def test_what_is_no_cloud_event_is_malformed_in_each_mode(self, wrong: Any):
        with pytest.raises(Malformed):
            await receive(STRUCTURED, json.dumps(wrong).encode())
        with pytest.raises(Malformed, match="event 2 of the batch"):
            await receive(BATCH, json.dumps([PLAIN, wrong]).encode())

    @pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 500_000, b"NaN", b"{}" * 2])
    @pytest.mark.parametrize("headers", [STRUCTURED, BATCH])
    async def test_a_body_that_is_no_json_is_malformed(self, headers: dict[str, str], body: bytes):
        with pytest.raises(Malformed):
            await receive(headers, body)

    async def test_a_body_that_is_not_what_its_type_says_is_malformed(self):
        headers = {f"ce-{name}": value for name, value in PLAIN.items()} | {"content-type": "application/json"}
        with pytest.raises(Malformed):
            await receive(headers, b"<xml/>")

    async def test_other_formats_and_endless_batches_are_malformed(self):
        with pytest.raises(Malformed, match="only JSON"):
            await receive({"content-type": "application/cloudevents+avro"}, b"x")
        with pytest.raises(Malformed, match="more than 5,000"):
            await receive(BATCH, b"[" + b"1," * MAX_BATCH + b"1]")

    async def test_the_signature_is_checked_first(self):
        with pytest.raises(Unauthorized):
            await receive(STRUCTURED, b"{}", scheme="hmac", secret="s")

    def test_fields_that_the_event_has_itself_are_refused(self):
        with pytest.raises(ValidationError, match="id_field"):
            IncomingQuery.model_validate({"secret": "s", "format": "cloudevents", "id_field": "id"})
