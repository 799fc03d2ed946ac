"""The client that services share: what it sends, and the errors that replies become."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from harken.errors import NeedsAttention, Refused, RetryLater
from harken.http import Reply
from harken.kit import JsonApi
from harken.kit.json_api import join_url, server_time
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes.server import Answer, FakeServer, Handler, json_reply


class Books(FakeServer):
    """Three pages of books, linked to each other."""

    def routes(self) -> Mapping[str, Handler]:
        return {"/books": self._books, "/{name}": self._echo}

    async def _books(self, request: web.Request) -> web.Response:
        page = int(request.query.get("page", "1"))
        reply = json_reply([f"book {page}"])
        if page < 3:
            reply.headers["Link"] = f'<{self.url}/books?page={page + 1}>; rel="next"'
        return reply

    async def _echo(self, request: web.Request) -> web.Response:
        return json_reply({"name": request.match_info["name"], "values": [1]})


@pytest.fixture
async def books(clock: HandClock) -> AsyncIterator[Books]:
    served = Books(clock)
    async with served.serve():
        yield served


@pytest.fixture
def api(books: Books, host: Host) -> JsonApi:
    headers, params = {"Authorization": "Bearer t"}, {"version": "1"}
    return JsonApi(host, base_url=f"{books.url}/", headers=headers, params=params, fixes={404: "Check the name"})


async def test_every_request_has_the_headers_and_params_of_the_account(api: JsonApi, books: Books):
    await api.get("/a", {"limit": 5})
    await api.send("POST", api.url("b"), params={"version": "2"}, headers={"Accept": "text/x"}, json={"c": 1})
    first, second = books.seen
    assert (first.path, first.query) == ("/a", {"version": "1", "limit": "5"})
    assert (first.headers["authorization"], first.headers["accept"]) == ("Bearer t", "application/json")
    assert (second.path, second.query, second.headers["accept"]) == ("/b", {"version": "2"}, "text/x")
    assert second.body == b'{"c":1}'


def test_a_part_of_a_path_cannot_leave_its_place():
    assert join_url("https://x.example/v1", "a/../b", "c d?") == "https://x.example/v1/a%2F..%2Fb/c%20d%3F"


async def test_objects_and_lists_are_returned(api: JsonApi):
    assert api.expect_object(await api.get("/a"))["name"] == "a"
    assert api.expect_list(await api.get("/a"), key="values") == [1]
    assert api.expect_list(await api.get("/books")) == ["book 1"]


async def test_another_shape_is_an_error_that_names_the_keys(api: JsonApi):
    with pytest.raises(RetryLater, match="something that is no list; its keys are name, values"):
        api.expect_list(await api.get("/a"))
    with pytest.raises(RetryLater, match="something that has no list; its keys are name, values"):
        api.expect_list(await api.get("/a"), key="name")
    with pytest.raises(RetryLater, match="something that is no object; there is a list"):
        api.expect_object(await api.get("/books"))


async def test_a_refusal_has_the_fix_for_its_status(api: JsonApi, books: Books):
    books.answers = [Answer(status=404), Answer(status=503)]
    with pytest.raises(NeedsAttention, match="answered 404 to the book") as refused:
        api.check(await api.get("/a"), "the book")
    assert refused.value.fix == "Check the name"
    with pytest.raises(RetryLater):
        api.expect_object(await api.get("/a"))


async def test_a_service_can_tell_refusals_apart_itself(books: Books, host: Host):
    def refuse(reply: Reply, what: str) -> None:
        if "X-Frozen" in reply.headers:
            raise RetryLater(f"{what} is frozen")

    api = JsonApi(host, base_url=books.url, refuse=refuse)
    books.answers = [Answer(status=403, headers={"X-Frozen": "yes"}), Answer(status=403)]
    with pytest.raises(RetryLater, match="the book is frozen"):
        api.check(await api.get("/a"), "the book")
    with pytest.raises(NeedsAttention, match="403"):
        api.check(await api.get("/a"), "the book")


async def test_a_list_is_read_to_its_end_or_to_the_last_allowed_page(api: JsonApi):
    assert await api.read_list(await api.get("/books"), 3) == (["book 1", "book 2", "book 3"], True)
    assert await api.read_list(await api.get("/books"), 2) == (["book 1", "book 2"], False)


async def test_private_networks_are_reached_only_if_the_integration_allows_it(books: Books, host: Host):
    closed = replace(host, allow_private=False)
    with pytest.raises(Refused):
        await closed.request("GET", f"{books.url}/a")
    assert (await closed.request("GET", f"{books.url}/a", allow_private=True)).status == 200
    assert (await host.request("GET", f"{books.url}/a")).status == 200


@pytest.mark.parametrize(("ahead", "expected"), [(-60, -60), (60, 0)])
async def test_the_time_is_the_servers_unless_its_clock_is_ahead(api: JsonApi, books: Books, ahead: int, expected: int):
    date = format_datetime(START + timedelta(seconds=ahead), usegmt=True)
    books.answers = [Answer(headers={"Date": date})]
    assert server_time(await api.get("/a"), START) == START + timedelta(seconds=expected)
