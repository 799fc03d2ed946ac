"""Google Cloud Storage: its contract on gcp-storage-emulator, pages, tokens of a service account, refusals in words."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, quote

import msgspec
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from gcp_storage_emulator.server import create_server
from pydantic import ValidationError
from yarl import URL

from harken.errors import Garbled, NeedsAttention, RetryLater
from harken.kit.object_listing import BucketListing
from harken.services.gcs import GcsAccount, GcsQuery, Tokens, list_page, show_generation
from harken.source import Host
from harken.testing import HandClock
from harken.testing.source import Service, SourceContract
from tests.servers.ports import free_port
from tests.services.buckets.bucket import Bucket, goes_through_its_life
from tests.services.buckets.serving import serving


@pytest.fixture
def server() -> Iterator[str]:
    port = free_port()
    emulator = create_server("127.0.0.1", port, in_memory=True, default_bucket="orders")
    emulator.start()
    yield f"http://127.0.0.1:{port}"
    emulator.stop()


@pytest.fixture
def bucket(server: str, host: Host) -> Bucket:
    def build(**query: Any) -> BucketListing:
        asked, account = GcsQuery(bucket="orders", **query), GcsAccount(base_url=server)
        tokens = Tokens(account, host)
        return BucketListing(
            asked,
            host,
            lambda token: list_page(asked, account, tokens, host, token),
            show_generation,
            kind="gcs",
            page=3,
        )

    def put(key: str) -> tuple[str, URL]:
        path = "/upload/storage/v1/b/orders/o?uploadType=media&name="
        return "POST", URL(f"{server}{path}{quote(key, safe='')}", encoded=True)

    def delete(key: str) -> tuple[str, URL]:
        return "DELETE", URL(f"{server}/storage/v1/b/orders/o/{quote(key, safe='')}", encoded=True)

    return Bucket(host, build, put, delete)


class TestContract(SourceContract):
    @pytest.fixture
    def service(self, bucket: Bucket) -> Service:
        return bucket


async def test_objects_are_created_changed_and_deleted(bucket: Bucket) -> None:
    events = await goes_through_its_life(bucket)
    generations = [event.data["generation"] for event in events if event.subject == "b"]
    assert len(set(generations)) == 2
    assert all(int(generation) > 0 for generation in generations)


async def test_a_bucket_that_is_not_there_needs_a_person(server: str, host: Host) -> None:
    account = GcsAccount(base_url=server)
    with pytest.raises(NeedsAttention, match="answered 404 to the list of missing"):
        await list_page(GcsQuery(bucket="missing"), account, Tokens(account, host), host, "")


async def test_a_server_that_is_away_is_tried_again(host: Host) -> None:
    account = GcsAccount(base_url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(RetryLater):
        await list_page(GcsQuery(bucket="orders"), account, Tokens(account, host), host, "")


class Google:
    """Lists numbered objects in pages of two, to whoever has a token that it gave for a signed assertion."""

    def __init__(self, key: RSAPrivateKey) -> None:
        self._key = key
        self.given = 0
        self.assertions: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        return await (self._give_token(request) if request.path == "/token" else self._list(request))

    async def _give_token(self, request: web.Request) -> web.Response:
        [assertion] = parse_qs(await request.text())["assertion"]
        signed, _, signature = assertion.rpartition(".")
        self._key.public_key().verify(_unpadded(signature), signed.encode(), PKCS1v15(), SHA256())
        self.assertions.append(msgspec.json.decode(_unpadded(signed.partition(".")[2])))
        self.given += 1
        return web.json_response({"access_token": f"token-{self.given}", "expires_in": 3600, "token_type": "Bearer"})

    async def _list(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer token-{self.given}":
            return web.Response(status=401, text="token-secret is wrong")
        start = int(request.query.get("pageToken", 0))
        items = [
            {"name": f"o{number}", "size": "1", "updated": "2026-01-05T08:00:00Z", "generation": str(number + 1)}
            for number in range(start, min(start + 2, 5))
        ]
        return web.json_response({"items": items} | ({"nextPageToken": str(start + 2)} if start < 4 else {}))


def _unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def key_file(key: RSAPrivateKey, url: str) -> str:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    fields = {"type": "service_account", "client_email": "reader@example.test", "private_key": pem}
    return msgspec.json.encode(fields | {"token_uri": f"{url}/token"}).decode()


async def test_all_pages_are_read_with_tokens_of_a_service_account(host: Host, clock: HandClock) -> None:
    key = generate_private_key(65537, 2048)
    google = Google(key)
    async with serving(google.answer) as url:
        account = GcsAccount(service_account_key=key_file(key, url), base_url=url)
        query, tokens = GcsQuery(bucket="orders"), Tokens(account, host)
        source = BucketListing(
            query, host, lambda token: list_page(query, account, tokens, host, token), show_generation, kind="gcs"
        )
        batch = await source.poll(None, clock.now())
        assert [event.subject for event in batch.events] == [f"o{number}" for number in range(5)]
        assert google.given == 1
        clock.advance(3500)
        assert (await source.poll(batch.cursor, clock.now())).unchanged
        assert google.given == 2
    assert [claims["iss"] for claims in google.assertions] == ["reader@example.test"] * 2
    assert google.assertions[0]["aud"] == f"{url}/token"


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (401, "", NeedsAttention, "Access tokens end after an hour"),
        (403, "", NeedsAttention, "Storage Object Viewer"),
        (429, "", RetryLater, "answered 429"),
        (503, "", RetryLater, "answered 503"),
        (200, "<html>", Garbled, "not a list of objects"),
        (200, '{"items": [{"name": "a", "updated": "soon"}]}', Garbled, "not a list of objects"),
        (200, '{"items": [{"name": "a", "updated": "2026-01-05T08:00:00Z", "size": "x"}]}', Garbled, "not a list"),
    ],
)
async def test_a_refusal_is_said_in_words(
    host: Host, status: int, body: str, error: type[Exception], said: str
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    async with serving(answer) as url:
        account = GcsAccount(token="token-secret", base_url=url)
        with pytest.raises(error) as raised:
            await list_page(GcsQuery(bucket="orders"), account, Tokens(account, host), host, "")
    assert said in str(raised.value)
    assert "token-secret" not in str(raised.value)


@pytest.mark.parametrize("text", ["{}", "no JSON", '{"client_email": "a", "private_key": "b"}'])
def test_what_is_no_key_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ValidationError, match="not the JSON of a service account's key") as raised:
        GcsAccount(service_account_key=text)
    assert text not in str(raised.value)
