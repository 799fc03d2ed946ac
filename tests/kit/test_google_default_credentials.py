"""Application default credentials of Google: each form gives a token, and nobody else sees what it is made of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from harken.clock import from_unix
from harken.errors import Garbled, HarkenError, NeedsAttention, RetryLater
from harken.http import Client, cloud_metadata_client
from harken.http.cloud_metadata_client import ADDRESSES
from harken.kit.google_default_credentials import machine_project, machine_token, read_credentials, token_of
from harken.services.gcs import GcsAccount, Tokens
from harken.services.pubsub.api import PubSub, PubSubAccount
from harken.source import Host
from harken.testing import HandClock

SCOPE = "https://www.googleapis.com/auth/pubsub"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Google:
    """Google's servers for tokens and its metadata server; tokens last an hour, each is another one."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.given = 0
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.replaced: dict[str, Answer] = {}
        self.address = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        form = {str(name): str(value) for name, value in (await request.post()).items()}
        self.asked.append((request.path, form))
        if request.path in self.replaced:
            return await self.replaced[request.path](request)
        if request.path.startswith("/computeMetadata/"):
            return self._metadata(request)
        if request.path == "/impersonate":
            assert request.headers["Authorization"] == "Bearer token1"
            assert await request.json() == {"scope": [SCOPE]}
            ends = from_unix(self.clock.time() + 3_600).isoformat()
            return web.json_response({"accessToken": "of-the-account", "expireTime": ends})
        return self._token()

    def _token(self) -> web.Response:
        self.given += 1
        return web.json_response({"access_token": f"token{self.given}", "expires_in": 3_600, "token_type": "Bearer"})

    def _metadata(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=403)
        if request.path.endswith("/project-id"):
            answer = web.Response(text="harken-test")
        else:
            assert request.query["scopes"].startswith("https://www.googleapis.com/auth/")
            answer = self._token()
        answer.headers["Metadata-Flavor"] = "Google"
        return answer

    def url(self, path: str) -> str:
        return f"http://{self.address}{path}"

    def user(self) -> bytes:
        fields = {"client_id": "c", "client_secret": "cs", "refresh_token": "r", "token_uri": self.url("/token")}
        return json.dumps({"type": "authorized_user", "quota_project_id": "p", **fields}).encode()

    def workload(self, **changed: Any) -> bytes:
        fields = {
            "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": self.url("/sts"),
            "credential_source": {"file": "subject"},
        }
        return json.dumps(
            {"type": "external_account", "universe_domain": "googleapis.com", **fields, **changed}
        ).encode()


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def google(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Google]:
    found = Google(clock)
    async with served(found.answer) as address:
        found.address = address
        monkeypatch.setitem(ADDRESSES, "instance", address)
        yield found


@pytest.fixture
async def host(clock: HandClock, tmp_path: Path) -> AsyncIterator[Host]:
    client = Client(clock)
    yield Host(http=client, clock=clock, random=Random(1), allow_private=True, directory=str(tmp_path))
    await client.close()


async def test_a_user_gets_a_token_once_and_again_before_it_ends(google: Google, host: Host, clock: HandClock) -> None:
    user = read_credentials(google.user())
    assert "cs" not in repr(user)
    assert [(await token_of(user, SCOPE, host)).value for _ in range(2)] == ["token1", "token1"]
    assert google.asked == [
        ("/token", {"grant_type": "refresh_token", "client_id": "c", "client_secret": "cs", "refresh_token": "r"})
    ]
    clock.advance(3_301)
    assert (await token_of(user, SCOPE, host)).value == "token2"


async def test_a_workload_exchanges_the_token_in_its_file(google: Google, host: Host, tmp_path: Path) -> None:
    (tmp_path / "subject").write_text("jwt-of-the-cluster\n")
    assert (await token_of(read_credentials(google.workload()), SCOPE, host)).value == "token1"
    [(path, form)] = google.asked
    assert path == "/sts"
    assert (form["subject_token"], form["scope"]) == ("jwt-of-the-cluster", SCOPE)
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"


async def test_a_workload_acts_as_a_service_account(google: Google, host: Host, tmp_path: Path) -> None:
    (tmp_path / "subject").write_text('{"data": {"id_token": "jwt"}}')
    source = {"file": "subject", "format": {"type": "json", "subject_token_field_name": "data.id_token"}}
    workload = google.workload(credential_source=source, service_account_impersonation_url=google.url("/impersonate"))
    assert (await token_of(read_credentials(workload), SCOPE, host)).value == "of-the-account"
    assert [path for path, _ in google.asked] == ["/sts", "/impersonate"]


@pytest.mark.parametrize("content", [None, "", "[]", '{"id_token": 7}', '{"data": {}}', "x" * 30_000])
async def test_a_workload_without_a_token_says_so(
    content: str | None, google: Google, host: Host, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "subject").write_text(content)
    source = {"file": "subject", "format": {"type": "json", "subject_token_field_name": "data.id_token"}}
    with pytest.raises(NeedsAttention) as caught:
        await token_of(read_credentials(google.workload(credential_source=source)), SCOPE, host)
    assert "subject" in str(caught.value)
    assert google.asked == []


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"type": "service_account"}',
        b'{"type": "authorized_user", "client_id": "secret-of-mine"}',
        b'{"type": "external_account", "audience": "a", "subject_token_type": "t", "token_url": "u",'
        b' "credential_source": {"url": "http://169.254.169.254/"}}',
        b'{"type": "external_account", "audience": "a", "subject_token_type": "t", "token_url": "u",'
        b' "credential_source": {"executable": {"command": "rm -rf /"}}}',
    ],
)
def test_what_is_no_credential_that_is_used_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match="none of Google's credentials") as caught:
        read_credentials(document)
    assert "secret-of-mine" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/token",
        "http://oauth2.googleapis.com/token",
        "https://oauth2.googleapis.com.evil.example/token",
        "https://oauth2.googleapis.com@evil.example/token",
        "https://googleapis.com.evil/token",
        "http://169.254.169.254/token",
        "ftp://oauth2.googleapis.com/",
        "nonsense",
        "http://[bad",
    ],
)
async def test_a_file_of_somebody_else_sends_nothing_to_their_server(
    url: str, google: Google, clock: HandClock
) -> None:
    client = Client(clock)
    strict = Host(http=client, clock=clock, random=Random(1))
    user = json.loads(google.user()) | {"token_uri": url}
    with pytest.raises(NeedsAttention, match="not Google's"):
        await token_of(read_credentials(json.dumps(user).encode()), SCOPE, strict)
    await client.close()


def replying(status: int, text: str, **headers: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text, headers=headers)

    return answer


@pytest.mark.parametrize(
    "answer, error",
    [
        (replying(400, '{"error": "invalid_grant", "error_description": "private words"}'), NeedsAttention),
        (replying(401, "private words"), NeedsAttention),
        (replying(500, "private words"), RetryLater),
        (replying(307, "", Location="https://evil.example/"), RetryLater),
        (replying(200, "<html>private words"), Garbled),
        (replying(200, "{}"), Garbled),
    ],
    ids=["over", "refused", "broken", "redirected", "html", "empty"],
)
async def test_a_refusal_is_said_in_words(answer: Answer, error: type[HarkenError], google: Google, host: Host) -> None:
    google.replaced["/token"] = answer
    with pytest.raises(error) as caught:
        await token_of(read_credentials(google.user()), SCOPE, host)
    assert "private words" not in str(caught.value)
    assert len(google.asked) == 1


async def test_a_machine_has_a_token_and_a_project(google: Google, host: Host, clock: HandClock) -> None:
    assert [(await machine_token(SCOPE, host)).value for _ in range(2)] == ["token1", "token1"]
    assert await machine_project() == "harken-test"
    clock.advance(3_301)
    assert (await machine_token(SCOPE, host)).value == "token2"


TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"
FLAVOR = {"Metadata-Flavor": "Google"}


@pytest.mark.parametrize(
    "answer, error",
    [
        (replying(200, '{"access_token": "t", "expires_in": 9}'), RetryLater),
        (replying(200, "<html>", **FLAVOR), RetryLater),
        (replying(200, '{"access_token": "a\\nb"}', **FLAVOR), RetryLater),
        (replying(200, "x" * 100_000, **FLAVOR), RetryLater),
        (replying(302, "", Location="http://127.0.0.1:1/", **FLAVOR), NeedsAttention),
        (replying(404, "", **FLAVOR), NeedsAttention),
        (replying(503, "", **FLAVOR), RetryLater),
    ],
    ids=["not google", "html", "two lines", "too large", "redirect", "no account", "busy"],
)
async def test_a_wrong_answer_is_no_token(answer: Answer, error: type[HarkenError], google: Google, host: Host) -> None:
    google.replaced[TOKEN] = answer
    with pytest.raises(error, match="metadata server"):
        await machine_token(SCOPE, host)


async def test_a_slow_metadata_server_is_not_waited_for(
    google: Google, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_metadata_client, "SECONDS", 0.2)
    never = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        await never.wait()
        return web.Response()

    google.replaced[TOKEN] = hang
    with pytest.raises(RetryLater, match="did not answer"):
        await machine_token(SCOPE, host)
    never.set()


async def test_buckets_are_read_with_each_of_them(google: Google, host: Host, tmp_path: Path) -> None:
    (tmp_path / "adc.json").write_bytes(google.user())
    assert await Tokens(GcsAccount(credentials_file="adc.json"), host).headers() == {"Authorization": "Bearer token1"}
    assert await Tokens(GcsAccount(metadata=True), host).headers() == {"Authorization": "Bearer token2"}
    assert await Tokens(GcsAccount(), host).headers() == {}
    (tmp_path / "adc.json").write_bytes(b"{}")
    with pytest.raises(NeedsAttention, match="no credentials of Google"):
        await Tokens(GcsAccount(credentials_file="adc.json"), host).headers()
    with pytest.raises(NeedsAttention, match="cannot be read"):
        await Tokens(GcsAccount(credentials_file="nothing.json"), host).headers()


async def test_subscriptions_are_read_with_each_of_them(google: Google, host: Host, tmp_path: Path) -> None:
    (tmp_path / "adc.json").write_bytes(google.user())
    signed: list[str] = []

    async def pubsub(request: web.Request) -> web.StreamResponse:
        signed.append(request.headers["Authorization"])
        return web.json_response({})

    async with served(pubsub) as address:
        for fields in ({"key_file": "adc.json"}, {"key": google.user().decode()}, {"metadata": True}):
            account = PubSubAccount.model_validate({"endpoint": address, **fields})
            assert (await PubSub(account, host).send("GET", "projects/p/topics/t")).status == 200
    assert signed == ["Bearer token1", "Bearer token1", "Bearer token2"]
    assert await PubSub(PubSubAccount(metadata=True), host).path("topics", "t") == "projects/harken-test/topics/t"
    with pytest.raises(NeedsAttention, match="project"):
        await PubSub(PubSubAccount(key_file="adc.json"), host).path("topics", "t")
