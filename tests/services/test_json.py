"""Items become events, conditional requests hide nothing, and what is wrong is said with its reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.event import Event
from harken.http import Client, HttpSettings
from harken.services.json import JsonListing, Query
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes import Answer, Listing
from tests.services.reading import events, page, read, subjects

NEXT = {"next": "next"}
TOKEN = "s3cr3t-t0ken-value"


def source(host: Host, listing: Listing, path: str = "all", **query: Any) -> JsonListing:
    return JsonListing(Query.model_validate({"url": f"{listing.url}/{path}", "items_path": "items", **query}), host)


async def read_body(host: Host, listing: Listing, body: Any, **query: Any) -> list[Event]:
    listing.answers = [Answer(body=msgspec.json.encode(body))]
    return events(await read(source(host, listing, **query)))


class TestItems:
    async def test_an_item_becomes_an_event_with_its_own_data(self, host: Host, listing: Listing):
        body = {"items": [{"id": 7, "name": "Ada", "deep": {"at": "2026-01-02T03:04:05Z"}}]}
        (event,) = await read_body(host, listing, body, time_field="deep.at", type="person")
        assert (event.subject, event.type, event.state) == ("7", "person", None)
        assert event.data == body["items"][0]
        assert event.occurred_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    async def test_the_root_may_be_the_list(self, host: Host, listing: Listing):
        found = await read_body(host, listing, [{"id": "a"}, {"id": "b"}], items_path="")
        assert [event.subject for event in found] == ["a", "b"]

    async def test_ids_and_items_are_found_by_dotted_paths(self, host: Host, listing: Listing):
        body = {"data": {"rows": [{"meta": {"uid": 2**60}}]}}
        (event,) = await read_body(host, listing, body, items_path="data.rows", id_field="meta.uid")
        assert event.subject == str(2**60)

    async def test_an_id_repeated_on_a_page_is_passed_on(self, host: Host, listing: Listing):
        found = await read_body(host, listing, {"items": [{"id": 1}, {"id": 1}]})
        assert [event.subject for event in found] == ["1", "1"]

    async def test_plain_values_identify_themselves_when_no_id_is_named(self, host: Host, listing: Listing):
        found = await read_body(host, listing, ["red", 5], items_path="", id_field="")
        assert [event.data for event in found] == [{"value": "red"}, {"value": 5}]
        assert found[0].subject == "red"

    async def test_objects_without_ids_are_told_apart_by_all_they_hold(self, host: Host, listing: Listing):
        body = [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 3}]
        found = await read_body(host, listing, body, items_path="", id_field="")
        assert found[0].subject == found[1].subject != found[2].subject

    @pytest.mark.parametrize(
        ("query", "state", "identity"),
        [
            ({"state_field": "status"}, "open", "transition"),
            ({"version_field": "rev"}, "3", "change"),
            ({}, None, "once"),
        ],
    )
    async def test_the_state_is_the_status_or_the_version(
        self, host: Host, listing: Listing, query: Any, state: str | None, identity: str
    ):
        (event,) = await read_body(host, listing, {"items": [{"id": 1, "status": "open", "rev": 3}]}, **query)
        assert event.state == state
        assert Query(url="http://x.example", **query).identity == identity

    async def test_a_change_of_state_shows_in_the_next_read(self, host: Host, listing: Listing):
        listing.add("a")
        listed = source(host, listing, state_field="state")
        first = await read(listed)
        listing.change("a", "closed")
        second = await read(listed, first[-1].cursor)
        assert [event.state for event in events([*first, *second])] == ["open", "closed"]

    @pytest.mark.parametrize(
        ("written", "expected"),
        [
            ("2026-03-01T10:00:00Z", datetime(2026, 3, 1, 10, tzinfo=UTC)),
            ("2026-03-01T10:00:00.25+02:00", datetime(2026, 3, 1, 8, 0, 0, 250_000, tzinfo=UTC)),
            ("2026-03-01 10:00", datetime(2026, 3, 1, 10, tzinfo=UTC)),
            ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
            ("Sun, 01 Mar 2026 10:00:00 GMT", datetime(2026, 3, 1, 10, tzinfo=UTC)),
            (1_772_359_200, datetime(2026, 3, 1, 10, tzinfo=UTC)),
            (1_772_359_200_500, datetime(2026, 3, 1, 10, 0, 0, 500_000, tzinfo=UTC)),
            ("1772359200500", datetime(2026, 3, 1, 10, 0, 0, 500_000, tzinfo=UTC)),
            ("1772359200.5", datetime(2026, 3, 1, 10, 0, 0, 500_000, tzinfo=UTC)),
            ("soon", None),
            (None, None),
            (True, None),
            (1e300, None),
        ],
    )
    async def test_instants_are_read_in_the_usual_notations(
        self, host: Host, listing: Listing, written: Any, expected: datetime | None
    ):
        body = {"items": [{"id": 0, "at": "2026-01-01T00:00:00Z"}, {"id": 1, "at": written}]}
        found = await read_body(host, listing, body, time_field="at")
        assert found[1].occurred_at == expected


class TestWrongShapes:
    @pytest.mark.parametrize(
        ("body", "query", "told"),
        [
            ({"itms": []}, {}, "no list at items_path 'items'; its keys are itms; did you mean itms? Correct"),
            ({"items": {"a": 1}}, {}, "its keys are a"),
            ({"items": None}, {}, "items_path 'items'; 'items' is empty"),
            ({"data": {"rows": []}}, {"items_path": "data.items"}, "below 'data', its keys are rows"),
            ({"error": "quota"}, {"items_path": ""}, "no list at its root"),
            ({}, {}, "the object is empty"),
            (7, {}, "a plain value"),
            ({"items": [{"id": 1}, {"Id": 2}]}, {}, "item 2 of 127.0.0.1 has no id at 'id'; its keys are Id"),
            ({"items": [{"id": None}]}, {}, "item 1 of 127.0.0.1 has no id"),
            ({"items": [{"id": ""}]}, {}, "has no id at 'id'; 'id' is empty. Correct id_field"),
            ({"items": [{"id": {"x": 1}}]}, {}, "has no id at 'id'; 'id' is an object. Correct id_field"),
            ({"items": ["red"]}, {}, "has no id at 'id'; there is a plain value"),
            ({"items": [None]}, {}, "there is nothing"),
            (
                {"items": [{"id": 1, "on": "never"}]},
                {"time_field": "on"},
                "no item of 127.0.0.1 has an instant at 'on'; 'on' is a plain value that cannot be read so",
            ),
            ({"items": [{"id": 1}]}, {"state_field": "status"}, "has a state at 'status'"),
        ],
    )
    async def test_what_is_not_where_the_query_says_is_named(
        self, host: Host, listing: Listing, body: Any, query: Any, told: str
    ):
        with pytest.raises(NeedsAttention) as caught:
            await read_body(host, listing, body, **query)
        assert told in str(caught.value)
        assert caught.value.fix

    async def test_an_empty_list_is_no_failure(self, host: Host, listing: Listing):
        assert await read_body(host, listing, {"items": []}) == []

    async def test_values_of_items_stay_out_of_errors(self, host: Host, listing: Listing):
        with pytest.raises(NeedsAttention) as caught:
            await read_body(host, listing, {"items": [{"name": "private-value"}]})
        assert "private-value" not in str(caught.value)

    @pytest.mark.parametrize("body", [b"", b"<html>", b"\x00\xff", b"[" * 100_000, b'{"items": [', b"NaN"])
    async def test_garbage_is_tried_again_later(self, host: Host, listing: Listing, body: bytes):
        listing.answers = [Answer(body=body)]
        with pytest.raises(RetryLater, match="not JSON"):
            await read(source(host, listing))


class TestStatus:
    @pytest.mark.parametrize("status", [401, 403, 400, 404, 410, 422])
    async def test_other_4xx_need_a_person(self, host: Host, listing: Listing, status: int):
        listing.answers = [Answer(status=status)]
        with pytest.raises(NeedsAttention):
            await read(source(host, listing))

    @pytest.mark.parametrize(
        ("status", "reason"), [(429, "rate_limited"), (408, "timeout"), (500, "failed"), (503, "failed")]
    )
    async def test_what_passes_is_tried_later(self, host: Host, listing: Listing, status: int, reason: str):
        listing.answers = [Answer(status=status, headers={"Retry-After": "77"})]
        with pytest.raises(RetryLater) as caught:
            await read(source(host, listing))
        assert (caught.value.reason, caught.value.after) == (reason, 77)

    async def test_a_hanging_server_is_a_timeout(self, clock: HandClock, host: Host, listing: Listing):
        hasty = Client(clock, settings=HttpSettings(total_seconds=0.05))
        listing.answers = [Answer(hang=True)]
        impatient = Host(http=hasty, clock=clock, random=host.random, allow_private=True)
        with pytest.raises(RetryLater) as caught:
            await read(source(impatient, listing))
        await hasty.close()
        assert caught.value.reason == "timeout"

    async def test_a_redirect_to_the_metadata_address_is_refused(self, host: Host, listing: Listing):
        listing.answers = [Answer(status=302, headers={"Location": "http://169.254.169.254/latest"})]
        with pytest.raises(Refused):
            await read(source(host, listing))

    async def test_private_addresses_need_to_be_allowed(self, host: Host, listing: Listing):
        strict = Host(http=host.http, clock=host.clock, random=host.random)
        with pytest.raises(Refused, match="private"):
            await read(source(strict, listing))
        listing.add("a")
        assert subjects(await read(source(strict, listing, allow_private_networks=True))) == ["a"]


class TestConditional:
    async def test_a_304_says_unchanged_and_keeps_the_cursor(self, host: Host, listing: Listing):
        listing.add("a")
        listed = source(host, listing)
        first = await page(listed)
        second = await page(listed, first.cursor)
        assert (second.unchanged, list(second.events), second.cursor) == (True, [], first.cursor)
        assert [seen.status for seen in listing.seen] == [200, 304]

    async def test_the_same_bytes_say_unchanged_where_the_server_has_no_etag(self, host: Host, listing: Listing):
        listing.etags = False
        listing.add("a")
        listed = source(host, listing)
        first = await page(listed)
        assert (await page(listed, first.cursor)).unchanged

    async def test_a_new_item_ends_the_304s(self, host: Host, listing: Listing):
        listing.add("a")
        listed = source(host, listing)
        first = await page(listed)
        listing.add("b")
        assert subjects([await page(listed, first.cursor)]) == ["a", "b"]

    async def test_a_page_of_a_longer_listing_is_never_asked_for_conditionally(self, host: Host, listing: Listing):
        for name in "abcdefg":
            listing.add(name)
        listed = source(host, listing, "next", paging=NEXT)
        first = await read(listed)
        # nothing of the first page changes, and the change is on the last
        listing.change("g", "closed")
        second = await read(listed, first[-1].cursor)
        assert events(second)[-1].data["state"] == "closed"
        assert not any("if-none-match" in seen.headers for seen in listing.seen)

    async def test_a_listing_that_outgrows_its_page_is_read_whole(self, host: Host, listing: Listing):
        for name in "abc":
            listing.add(name)
        listed = source(host, listing, "next", paging=NEXT)
        first = await read(listed)
        listing.add("d")
        second = await read(listed, first[-1].cursor)
        assert subjects(second) == ["a", "b", "c", "d"]
        assert [("if-none-match" in seen.headers, seen.status) for seen in listing.seen] == [
            (False, 200),
            (True, 200),
            (False, 200),
        ]

    @pytest.mark.parametrize(
        ("path", "items", "paging"),
        [
            ("links", "", {"next": "link"}),
            ("offsets", "items", {"offset": {"size": 3}}),
            ("pages", "items", {"page": {}}),
        ],
    )
    async def test_a_full_page_does_not_hide_the_first_item_of_a_second_one(
        self, host: Host, listing: Listing, path: str, items: str, paging: Any
    ):
        for name in "abc":
            listing.add(name)
        listed = source(host, listing, path, items_path=items, paging=paging)
        first = await read(listed)
        listing.add("d")
        assert "d" in subjects(await read(listed, first[-1].cursor))

    async def test_an_unfinished_read_keeps_no_validators(self, host: Host, listing: Listing):
        for name in "abcd":
            listing.add(name)
        first = await page(source(host, listing, "next", paging=NEXT))
        assert first.more
        assert "etag" not in first.cursor

    @pytest.mark.parametrize("edit", [{"id_field": "title"}, {"type": "other"}, {"time_field": "created_at"}])
    async def test_an_edited_query_reads_again_what_did_not_change(self, host: Host, listing: Listing, edit: Any):
        listing.add("a", title="A")
        first = await page(source(host, listing))
        again = await page(source(host, listing, **edit), first.cursor)
        assert len(again.events) == 1

    async def test_a_rotated_token_does_not_start_over(self, host: Host, listing: Listing):
        listing.add("a")
        first = await page(source(host, listing, headers={"Authorization": "Bearer one"}))
        assert (await page(source(host, listing, headers={"Authorization": "Bearer two"}), first.cursor)).unchanged

    @pytest.mark.parametrize("cursor", ["junk", 7, [], {"of": 3}, {"at": "http://x"}])
    async def test_a_cursor_of_another_kind_starts_a_new_read(self, host: Host, listing: Listing, cursor: Any):
        listing.add("a")
        assert subjects(await read(source(host, listing), cursor)) == ["a"]


class TestRequest:
    async def test_headers_and_a_json_body_are_sent(self, host: Host, listing: Listing):
        await read(source(host, listing, method="POST", body={"q": [1]}, headers={"X-Team": "blue"}))
        (seen,) = listing.seen
        assert (seen.method, seen.headers["x-team"], seen.body) == ("POST", "blue", b'{"q":[1]}')

    async def test_a_text_body_is_sent_as_it_is(self, host: Host, listing: Listing):
        await read(source(host, listing, method="POST", body="{ items }"))
        assert listing.seen[0].body == b"{ items }"

    async def test_a_parameter_in_the_url_stays_beside_those_of_paging(self, host: Host, listing: Listing):
        await read(source(host, listing, "offsets?team=a%20b&offset=9", paging={"offset": {"size": 3}}))
        assert listing.seen[0].query == {"team": "a b", "offset": "0", "limit": "3"}


class TestSecrets:
    async def test_a_token_that_the_server_echoes_does_not_reach_the_event(self, host: Host, listing: Listing):
        listing.answers = [
            Answer(body=b'{"items": [{"id": 1, "you": "Bearer %s", "v": "2026-01-01"}]}' % TOKEN.encode())
        ]
        headers = {"Authorization": f"Bearer {TOKEN}", "X-Version": "2026-01-01"}
        (event,) = events(await read(source(host, listing, headers=headers)))
        assert event.data == {"id": 1, "you": "Bearer ***", "v": "2026-01-01"}

    @pytest.mark.parametrize(
        "answer", [Answer(status=401), Answer(status=500), Answer(body=b"oops"), Answer(body=b"{}")]
    )
    async def test_no_error_holds_a_token(self, host: Host, listing: Listing, answer: Answer):
        listing.answers = [answer]
        listed = source(host, listing, f"all?key={TOKEN}", headers={"X-Api-Key": TOKEN})
        with pytest.raises(HarkenError) as caught:
            await read(listed)
        assert TOKEN not in repr(caught.value) + str(caught.value)

    def test_a_query_does_not_show_its_headers(self):
        query = Query.model_validate({"url": "http://x.example", "headers": {"Authorization": TOKEN}})
        assert TOKEN not in repr(query)


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "ftp://x.example"},
        {"url": "nonsense"},
        {"method": "DELETE"},
        {"body": {}},
        {"order": "newest_first"},
        {"state_field": "a", "version_field": "b"},
        {"itemspath": "x"},
    ],
)
def test_a_wrong_query_is_refused(wrong: Any):
    with pytest.raises(ValidationError):
        Query.model_validate({"url": "https://api.example/x", **wrong})


def test_every_field_of_the_query_is_described_for_forms():
    properties = Query.model_json_schema()["properties"]
    assert [name for name, field in properties.items() if not field.get("description")] == []


async def test_an_item_that_is_late_is_found_when_it_shows_itself(clock: HandClock, host: Host, listing: Listing):
    listing.add("early")
    listing.add("late", age=3600, late=600)
    listed = source(host, listing, time_field="created_at")
    first = await read(listed)
    clock.advance(timedelta(minutes=11).total_seconds())
    second = await read(listed, first[-1].cursor)
    assert subjects(first) == ["early"]
    assert set(subjects(second)) == {"early", "late"}
