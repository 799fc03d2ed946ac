"""S3 on moto's server: its contract, hostile keys, refusals in words, and signatures that botocore makes too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from aiohttp import web
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.server import ThreadedMotoServer
from pydantic import ValidationError
from yarl import URL

from harken.errors import Garbled, NeedsAttention, RetryLater
from harken.kit.object_listing import BucketListing
from harken.services.aws.s3 import (
    S3Account,
    S3Query,
    bucket_url,
    canonical_query,
    list_page,
    pack_etag,
    show_etag,
    signed_headers,
)
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.source import Service, SourceContract
from tests.cpu_time import cpu_at_most
from tests.servers.ports import free_port
from tests.services.buckets.bucket import Bucket, goes_through_its_life
from tests.services.buckets.serving import serving
from tests.soak import larger

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("s3")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=free_port(), verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


def account_at(url: str, **fields: Any) -> S3Account:
    return S3Account(access_key_id="AKIDEXAMPLE", secret_access_key="secret-secret", endpoint=url, **fields)


@pytest.fixture
async def bucket(server: str, host: Host) -> Bucket:
    await host.request("POST", f"{server}/moto-api/reset")
    made = await host.request("PUT", f"{server}/orders")
    assert made.status == 200

    def build(**query: Any) -> BucketListing:
        asked, account = S3Query(bucket="orders", **query), account_at(server)
        return BucketListing(
            asked, host, lambda token: list_page(asked, account, host, token, keys=3), show_etag, kind="s3", page=3
        )

    def address(key: str) -> URL:
        return URL(f"{server}/orders/{quote(key, safe='')}", encoded=True)

    # moto wants to know who writes, and believes it
    scope = "Credential=AKIDEXAMPLE/20260105/us-east-1/s3/aws4_request"
    headers = {"Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"}
    return Bucket(host, build, lambda key: ("PUT", address(key)), lambda key: ("DELETE", address(key)), headers)


class TestContract(SourceContract):
    @pytest.fixture
    def service(self, bucket: Bucket) -> Service:
        return bucket


async def test_objects_are_created_changed_and_deleted(bucket: Bucket) -> None:
    events = await goes_through_its_life(bucket)
    [changed] = [event for event in events if event.type == "object.changed"]
    assert changed.data["etag"] == "795f3202b17cb6bc3d4b771d8c6c9eaf"
    assert changed.data["change"] == "changed"
    assert (changed.data["bucket"], changed.data["key"], changed.data["size"]) == ("orders", "b", 5)


async def test_every_key_is_told_apart(bucket: Bucket) -> None:
    keys = ["a//b", "a/b", "../up", "./x", "a/../b", "lead", "/lead", "dir/", "a+b c", "ü%20", "x" * 1000]
    for key in keys:
        await bucket.write(key)
    assert await bucket.names() == sorted(f"created {key}" for key in keys)
    await bucket.delete("/lead")
    await bucket.delete("a//b")
    assert await bucket.names() == ["deleted /lead", "deleted a//b"]


def listing(keys: list[str], more: str = "") -> str:
    """A page as S3 answers it."""
    fields = "<LastModified>2026-01-05T08:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>1</Size>"
    objects = "".join(f"<Contents><Key>{quote(key)}</Key>{fields}</Contents>" for key in keys)
    rest = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    return f"<ListBucketResult {space}><EncodingType>url</EncodingType>{objects}{rest}</ListBucketResult>"


async def test_keys_that_no_file_could_have_are_keys(host: Host) -> None:
    keys = ["line\nbreak", "carriage\rreturn", "\x01", "x" * 4_096, "../" * 300, "a/\n/b", "..", "/"]

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=listing(keys))

    async with serving(answer) as url:
        query, account = S3Query(bucket="orders"), account_at(url)
        source = BucketListing(query, host, lambda token: list_page(query, account, host, token), show_etag, kind="s3")
        events = (await source.poll(None, START)).events
    assert sorted(event.subject for event in events) == sorted(keys)
    assert all(event.payload() for event in events)


async def test_a_quiet_listing_of_many_keys_is_cheap(host: Host) -> None:
    count = larger(__file__, 10_000)
    numbers = range(0, count, 1_000)
    keys = {begin: [f"in/order-{number:08}.json" for number in range(begin, begin + 1_000)] for begin in numbers}
    pages = {begin: listing(keys[begin], str(begin + 1_000) if begin + 1_000 < count else "") for begin in numbers}

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=pages[int(request.query.get("continuation-token", 0))])

    async with serving(answer) as url:
        query, account = S3Query(bucket="orders"), account_at(url)
        source = BucketListing(query, host, lambda token: list_page(query, account, host, token), show_etag, kind="s3")

        async def read(cursor: Any) -> tuple[int, Any]:
            events, more = 0, True
            while more:
                batch = await source.poll(cursor, START)
                events, cursor, more = events + len(batch.events), batch.cursor, batch.more
            return events, cursor

        found, cursor = await read(None)
        assert found == count
        # the server's part of it included, which is 1 to 2 s for 100,000
        with cpu_at_most(4.0 * count / 100_000):
            assert await read(cursor) == (0, cursor)


async def test_prefix_and_patterns_choose_keys(bucket: Bucket, clock: HandClock) -> None:
    # moto dates objects by the real clock, which ours has to be ahead of
    clock.advance(100 * 365 * 86_400)
    for key in ("in/a.csv", "in/b.txt", "in/old/c.csv", "other/d.csv"):
        await bucket.write(key)
    bucket.restart(prefix="in/", include="*.csv", exclude="in/old/**")
    assert await bucket.names() == ["created in/a.csv"]
    bucket.restart(prefix="in/")
    # what the edited query finds is older than the last read, and no news
    assert await bucket.names() == []
    await bucket.delete("in/b.txt")
    assert await bucket.names() == ["deleted in/b.txt"]


async def test_too_many_objects_need_a_person(bucket: Bucket) -> None:
    await bucket.put(4)
    bucket.restart(max_objects=3)
    with pytest.raises(NeedsAttention, match="more than 3 objects"):
        await bucket.read()


async def test_a_bucket_that_is_not_there_needs_a_person(server: str, host: Host) -> None:
    with pytest.raises(NeedsAttention, match=r"answered 404 to the list of missing \(NoSuchBucket\)"):
        await list_page(S3Query(bucket="missing"), account_at(server), host, "")


async def test_a_server_that_is_away_is_tried_again(host: Host) -> None:
    with pytest.raises(RetryLater):
        await list_page(S3Query(bucket="orders"), account_at(f"http://127.0.0.1:{free_port()}"), host, "")


@pytest.mark.parametrize(
    ("status", "headers", "body", "error", "said"),
    [
        (403, {}, "<Error><Code>AccessDenied</Code></Error>", NeedsAttention, "s3:ListBucket"),
        (403, {}, "<Error><Code>SignatureDoesNotMatch</Code></Error>", NeedsAttention, "Make a new access key"),
        (403, {}, "<Error><Code>RequestTimeTooSkewed</Code></Error>", NeedsAttention, "Set the clock"),
        (301, {"x-amz-bucket-region": "eu-west-1"}, "", NeedsAttention, "Write region: eu-west-1"),
        (503, {}, "<Error><Code>SlowDown</Code></Error>", RetryLater, "answered 503"),
        (200, {}, "<html>sign in</html>", Garbled, "not one of S3"),
        (200, {}, "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>", Garbled, "not one of S3"),
        (200, {}, '<!DOCTYPE a [<!ENTITY b "c">]><ListBucketResult>&b;', Garbled, "not one of S3"),
    ],
)
async def test_a_refusal_is_said_in_words(
    host: Host, status: int, headers: Mapping[str, str], body: str, error: type[Exception], said: str
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, headers=headers, text=body)

    async with serving(answer) as url:
        with pytest.raises(error) as raised:
            await list_page(S3Query(bucket="orders"), account_at(url), host, "")
    assert said in str(raised.value)
    assert "secret-secret" not in str(raised.value)


@pytest.mark.parametrize("token", ["", "a/token+with=signs"])
@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:9000", "https://minio.example/base"])
def test_requests_are_signed_as_botocore_signs_them(monkeypatch: pytest.MonkeyPatch, token: str, endpoint: str) -> None:
    now = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
    account = account_at(endpoint, region="eu-west-1", session_token=token)
    url = bucket_url(account, "orders")
    query = canonical_query({"list-type": "2", "prefix": "in/ü ~+", "continuation-token": "x=/y"})
    request = AWSRequest("GET", f"{url}{'' if urlsplit(url).path else '/'}?{query}")
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda **_: now.replace(tzinfo=None))
    S3SigV4Auth(Credentials("AKIDEXAMPLE", "secret-secret", token or None), "s3", "eu-west-1").add_auth(request)
    ours = signed_headers(account, url, query, now.timestamp())
    assert ours["Authorization"] == request.headers["Authorization"]


def test_without_a_key_requests_are_not_signed() -> None:
    assert signed_headers(S3Account(), "https://b.s3.us-east-1.amazonaws.com", "", START.timestamp()) == {}


@pytest.mark.parametrize("fields", [{"access_key_id": "AKID"}, {"secret_access_key": "s"}, {"endpoint": "minio"}])
def test_half_an_account_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        S3Account(**fields)


@pytest.mark.parametrize(
    ("etag", "shown"),
    [
        ("9b74c9897bac770ffc029102a200c5de", "9b74c9897bac770ffc029102a200c5de"),
        ("9b74c9897bac770ffc029102a200c5de-12", "9b74c9897bac770ffc029102a200c5de-12"),
        ("anything else", None),
        ("", None),
    ],
)
def test_an_etag(etag: str, shown: str | None) -> None:
    assert show_etag(pack_etag(etag)) == {"etag": shown}
    assert len(pack_etag(etag)) == 18
