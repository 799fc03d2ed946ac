from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from harken.clock import SystemClock
from harken.errors import NeedsAttention, Refused, RetryLater
from harken.http import Client, HttpSettings, Reply, Validators
from harken.http.client import _timeout
from harken.outgoing_rate_limit import RateLimit
from tests.http.loopback import Dns, Server, reply, start

TOKEN = {"Authorization": "Bearer s3cret", "X-Api-Key": "s3cret", "Cookie": "id=s3cret", "Accept": "application/json"}


async def get(client: Client, url: str, **options: object) -> Reply:
    return await client.request("GET", url, allow_private=True, **options)  # type: ignore[arg-type]


async def test_an_answer_is_returned_whatever_its_status(client: Client, server: Server) -> None:
    server.answer = lambda _: reply(418, b"short", Content_Type="text/plain")
    answered = await get(client, server.url("/pot?a=1"))
    assert (answered.status, answered.body, answered.url.path_qs) == (418, b"short", "/pot?a=1")


async def test_params_json_and_own_name_are_sent(client: Client, server: Server) -> None:
    await client.request("post", server.url("/x?a=1"), params={"b": "2 3"}, json={"ü": 1}, allow_private=True)
    asked = server.asked[0]
    assert (asked.method, asked.target) == ("POST", "/x?a=1&b=2+3")
    assert asked.body == '{"ü":1}'.encode()
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["user-agent"].startswith("Harken/")


async def test_connections_are_reused_and_cookies_are_not_kept(client: Client, server: Server) -> None:
    server.answer = lambda _: reply(200, Set_Cookie="id=1")
    await get(client, server.url())
    await get(client, server.url())
    assert server.connections == 1
    assert "cookie" not in server.asked[1].headers


async def test_a_last_modified_of_this_second_proves_nothing(client: Client, server: Server) -> None:
    stamp = "Wed, 01 Jan 2020 00:00:00 GMT"
    server.answer = lambda _: reply(200, b"{}", Last_Modified=stamp, Date=stamp)
    assert (await get(client, server.url())).validators.last_modified is None


async def test_validators_make_the_next_request_conditional(client: Client, server: Server) -> None:
    server.answer = lambda _: reply(200, b"{}", ETag='"v1"', Last_Modified="Wed, 01 Jan 2020 00:00:00 GMT")
    first = await get(client, server.url())
    server.answer = lambda _: reply(304, length=False)
    second = await get(client, server.url(), conditional=first.validators)
    sent = server.asked[1].headers
    assert (sent["if-none-match"], sent["if-modified-since"]) == ('"v1"', "Wed, 01 Jan 2020 00:00:00 GMT")
    assert second.not_modified
    assert second.validators == first.validators


async def test_nothing_conditional_is_sent_without_validators(client: Client, server: Server) -> None:
    await get(client, server.url(), conditional=Validators())
    assert not {"if-none-match", "if-modified-since"} & set(server.asked[0].headers)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_with_all_headers_on_the_same_origin(
    client: Client, server: Server, status: int
) -> None:
    server.answer = lambda asked: reply(200, b"here") if asked.target == "/b" else reply(status, Location="/b")
    answered = await get(client, server.url("/a"), headers=TOKEN)
    assert (answered.body, answered.url.path) == (b"here", "/b")
    assert server.asked[1].headers["authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_secret_follows_a_redirect_to_another_origin(
    client: Client, server: Server, other: Server, status: int
) -> None:
    server.answer = lambda _: reply(status, Location=f"http://planted:name@127.0.0.1:{other.port}/b")
    await get(client, server.url("/a"), headers=TOKEN, conditional=Validators(etag='"v"'))
    headers = other.asked[0].headers
    assert "s3cret" not in str(headers)
    assert "authorization" not in headers
    assert (headers["accept"], headers["if-none-match"]) == ("application/json", '"v"')


async def test_another_name_of_the_same_machine_is_another_origin(server: Server) -> None:
    client = Client(SystemClock(), resolver=Dns(a_example=[["127.0.0.1"]], b_example=[["127.0.0.1"]]))
    server.answer = lambda asked: (
        reply(200) if "b.example" in asked.headers["host"] else reply(302, Location=server.url("/", "b.example"))
    )
    await get(client, server.url("/", "a.example"), headers=TOKEN)
    await client.close()
    assert "authorization" not in server.asked[1].headers


@pytest.mark.parametrize(("status", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
async def test_a_redirected_post_changes_as_browsers_do_it(
    client: Client, server: Server, status: int, method: str
) -> None:
    server.answer = lambda asked: reply(200) if asked.target == "/b" else reply(status, Location="/b")
    await client.request("POST", server.url("/a"), json={"a": 1}, allow_private=True)
    assert server.asked[1].method == method
    assert server.asked[1].body == {"GET": b"", "POST": b'{"a":1}'}[method]


async def test_a_body_is_not_carried_to_another_origin(client: Client, server: Server, other: Server) -> None:
    server.answer = lambda _: reply(307, Location=other.url())
    with pytest.raises(Refused, match="another host"):
        await client.request("POST", server.url(), data=b"grant=s3cret", allow_private=True)
    assert other.connections == 0


async def test_redirects_end_somewhere(client: Client, server: Server) -> None:
    server.answer = lambda _: reply(302, Location="/again?token=s3cret")
    with pytest.raises(NeedsAttention, match="redirects more than 5 times") as raised:
        await get(client, server.url())
    assert len(server.asked) == 6
    assert "s3cret" not in str(raised.value)


async def test_redirects_are_left_to_the_caller_on_request(client: Client, server: Server) -> None:
    server.answer = lambda _: reply(302, Location="/b")
    answered = await get(client, server.url(), follow_redirects=False)
    assert (answered.status, answered.headers["Location"]) == (302, "/b")


@pytest.mark.parametrize("location", ["http://[", "http://x:99999/", "file:///etc/passwd", "javascript:1"])
async def test_a_redirect_to_nonsense_is_an_error_of_ours(client: Client, server: Server, location: str) -> None:
    server.answer = lambda _: reply(302, Location=location)
    with pytest.raises((Refused, RetryLater)):
        await get(client, server.url())


async def test_a_body_announced_too_large_is_not_read(client: Client, server: Server) -> None:
    server.answer = lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nabc"
    with pytest.raises(RetryLater, match="sent more than 32,000,000 bytes"):
        await get(client, server.url())


async def test_a_body_without_end_is_cut_off_while_it_streams(client: Client, server: Server) -> None:
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()
            sent += 65536

    server.answer = lambda _: reply(200, length=False, Transfer_Encoding="chunked")
    server.after = endless
    with pytest.raises(RetryLater, match="sent more than 1,000,000 bytes"):
        await get(client, server.url(), max_bytes=1_000_000)
    assert sent < 10_000_000


@pytest.mark.parametrize(
    ("encoding", "bomb"), [("gzip", gzip.compress(bytes(20_000_000))), ("deflate", zlib.compress(bytes(20_000_000)))]
)
async def test_a_compressed_bomb_is_cut_off_by_its_real_size(
    client: Client, server: Server, encoding: str, bomb: bytes
) -> None:
    assert len(bomb) < 100_000
    server.answer = lambda _: reply(200, bomb, Content_Encoding=encoding)
    with pytest.raises(RetryLater, match="sent more than 2,000,000 bytes"):
        await get(client, server.url(), max_bytes=2_000_000)


async def test_a_compressed_answer_is_unpacked(client: Client, server: Server) -> None:
    server.answer = lambda _: reply(200, gzip.compress(b'{"a": 1}'), Content_Encoding="gzip")
    assert (await get(client, server.url())).json() == {"a": 1}


async def test_a_head_request_may_announce_any_size(client: Client, server: Server) -> None:
    server.answer = lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
    answered = await client.request("HEAD", server.url(), allow_private=True)
    assert (answered.status, answered.body) == (200, b"")


GARBAGE = {
    "not_http": b"SSH-2.0-OpenSSH_9.6\r\n\r\nConnection: close",
    "nothing": b"Connection: close"[:0],
    "status": b"HTTP/1.1 banana\r\n\r\nConnection: close",
    "short_body": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100\r\n\r\nabc",
    "bad_length": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: -5\r\n\r\nabc",
    "bad_chunk": b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "bad_gzip": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    "long_header": b"HTTP/1.1 200 OK\r\nConnection: close\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
async def test_garbage_is_retried_later_and_says_nothing_of_the_url(
    client: Client, server: Server, garbage: bytes
) -> None:
    async def hang_up(writer: asyncio.StreamWriter) -> None:
        writer.close()

    server.answer = lambda _: garbage
    server.after = hang_up
    with pytest.raises(RetryLater) as raised:
        await get(client, server.url("/x?token=s3cret"))
    assert "127.0.0.1" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__cause__ is None


async def test_a_server_that_hangs_is_a_timeout_and_leaves_the_caller_able_to_record_it(
    client: Client, server: Server
) -> None:
    stuck = asyncio.Event()

    async def hang(_: asyncio.StreamWriter) -> None:
        await stuck.wait()

    server.answer = lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"
    server.after = hang
    with pytest.raises(RetryLater, match=r"within 0\.05 s") as raised:
        await get(client, server.url("/?token=s3cret"), timeout=0.05)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)
    assert (raised.value.reason, raised.value.after) == ("timeout", None)
    stuck.set()


@pytest.mark.parametrize(("seconds", "connecting"), [(30.0, 5.0), (3.0, 3.0)], ids=["its own", "not above the whole"])
def test_connecting_has_a_limit_of_its_own(seconds: float, connecting: float) -> None:
    limits = _timeout(seconds, 5.0)
    assert (limits.total, limits.sock_connect) == (seconds, connecting)


async def test_redirects_share_one_timeout(client: Client, server: Server) -> None:
    async def dawdle(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.04)

    server.answer = lambda _: reply(302, Location="/again")
    server.after = dawdle
    with pytest.raises(RetryLater) as raised:
        await get(client, server.url(), timeout=0.1)
    assert raised.value.reason == "timeout"


async def test_cancelling_a_request_is_not_mistaken_for_a_failure(client: Client, server: Server) -> None:
    server.answer = lambda _: b""
    task = asyncio.create_task(get(client, server.url()))
    await server.arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_nobody_listening_is_retried_later(client: Client, server: Server) -> None:
    url = "http://127.0.0.1:1/x?token=s3cret"
    with pytest.raises(RetryLater, match=r"^could not connect to 127\.0\.0\.1:1 \(connection refused\)$") as raised:
        await get(client, url)
    assert raised.value.reason == "failed"


async def test_an_unknown_name_is_retried_later() -> None:
    class NoDns(Dns):
        async def resolve(self, host: str, port: int = 0, family: object = 0) -> list[object]:  # type: ignore[override]
            raise OSError(None, "no such name, and a token=s3cret")

    client = Client(SystemClock(), resolver=NoDns())
    with pytest.raises(RetryLater, match=r"^the name gone\.example could not be resolved$"):
        await get(client, "http://gone.example/")
    await client.close()


@pytest.mark.parametrize("headers", [{"X-A": "a\r\nX-B: s3cret"}, {"X\r\nY": "s3cret"}])
async def test_a_header_that_would_inject_another_is_refused(
    client: Client, server: Server, headers: dict[str, str]
) -> None:
    with pytest.raises(Refused) as raised:
        await get(client, server.url(), headers=headers)
    assert "s3cret" not in str(raised.value)
    assert server.asked == []


async def test_a_budget_is_asked_before_and_taught_after(client: Client, server: Server) -> None:
    server.answer = lambda _: reply(429, Retry_After="700")
    budget = RateLimit(SystemClock())
    await get(client, server.url(), rate_limit=budget, who="oncall")
    assert budget.blocked_until is not None
    with pytest.raises(RetryLater, match="used up") as raised:
        await get(client, server.url(), rate_limit=budget, patience=5)
    assert (raised.value.after or 0) > 690
    assert len(server.asked) == 1


async def test_another_origin_does_not_teach_the_budget(client: Client, server: Server, other: Server) -> None:
    server.answer = lambda _: reply(302, Location=other.url())
    other.answer = lambda _: reply(429, Retry_After="700")
    budget = RateLimit(SystemClock())
    await get(client, server.url(), rate_limit=budget)
    assert budget.blocked_until is None


async def test_a_proxy_on_a_private_address_is_used() -> None:
    proxy = Server()
    listening = await start(proxy)
    client = Client(SystemClock(), settings=HttpSettings(proxy=proxy.url()))
    answered = await client.request("GET", "http://public.example/a")
    await client.close()
    listening.close()
    assert (answered.status, proxy.asked[0].target) == (200, "http://public.example/a")


async def test_a_proxy_that_is_away_is_retried_later() -> None:
    client = Client(SystemClock(), settings=HttpSettings(proxy="http://u:s3cret@127.0.0.1:1"))
    with pytest.raises(RetryLater, match="the proxy could not be reached") as raised:
        await client.request("GET", "http://public.example/a")
    await client.close()
    assert "s3cret" not in str(raised.value)
