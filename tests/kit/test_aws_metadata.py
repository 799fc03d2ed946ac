"""Keys of a machine's or container's role, from a server that answers like Amazon's metadata, and from hostile ones."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

import harken
from harken.clock import from_unix
from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.http import Client, cloud_metadata_client
from harken.http.cloud_metadata_client import ADDRESSES, ask_metadata
from harken.kit.aws_role_keys import AwsKey, AwsRoleAccount, current_key
from harken.services.aws.api import AwsAccount
from harken.services.aws.s3 import S3Account
from harken.source import Host
from harken.testing import HandClock

SECRET = "never-shown/+="
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Metadata:
    """Amazon's metadata of a machine with the role `reader`, of a container and of a pod; keys last six hours."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.seconds = 6 * 3_600.0
        self.given = 0
        self.asked: list[tuple[str, str]] = []
        self.replaced: dict[str, Answer] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        if request.path in self.replaced:
            return await self.replaced[request.path](request)
        if request.path == "/latest/api/token":
            right = request.method == "PUT" and int(request.headers["X-aws-ec2-metadata-token-ttl-seconds"]) > 0
            return web.Response(text="session==") if right else web.Response(status=405)
        if request.path.startswith("/latest/"):
            if request.headers.get("X-aws-ec2-metadata-token") != "session==":
                return web.Response(status=401)
            role = request.path.removeprefix("/latest/meta-data/iam/security-credentials/")
            return web.Response(text="reader") if not role else self.key() if role == "reader" else self.missing()
        if request.path == "/v1/credentials":
            return self.key() if request.headers.get("Authorization") == "of-the-pod" else web.Response(status=401)
        return self.key() if request.path == "/v2/credentials/7" else self.missing()

    def key(self, **changed: Any) -> web.Response:
        self.given += 1
        ends = from_unix(self.clock.time() + self.seconds).strftime("%Y-%m-%dT%H:%M:%SZ")
        fields = {"AccessKeyId": f"ASIA{self.given}", "SecretAccessKey": SECRET, "Token": "t", "Expiration": ends}
        return web.json_response({"Code": "Success", "Type": "AWS-HMAC", **fields, **changed})

    def missing(self) -> web.Response:
        return web.Response(status=404, text="<html>not found</html>")


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


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
async def amazon(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Metadata]:
    found = Metadata(clock)
    async with served(found.answer) as address:
        for server in ADDRESSES:
            monkeypatch.setitem(ADDRESSES, server, address)
        yield found


@pytest.fixture
async def host(clock: HandClock, tmp_path: Path) -> AsyncIterator[Host]:
    client = Client(clock)
    yield Host(http=client, clock=clock, random=Random(1), directory=str(tmp_path))
    await client.close()


async def key_of(host: Host, **fields: Any) -> AwsKey | None:
    return await current_key(AwsRoleAccount(**{"metadata": True, **fields}), "eu-central-1", "", host)


async def test_the_key_of_a_machine_is_asked_for_once_and_again_before_it_ends(
    amazon: Metadata, host: Host, clock: HandClock
) -> None:
    key = await key_of(host)
    assert key is not None
    assert (key.id, key.secret, key.token) == ("ASIA1", SECRET, "t")
    assert SECRET not in repr(key)
    assert await key_of(host) is key
    clock.advance(amazon.seconds - 600)
    assert await key_of(host) is key
    clock.advance(301)
    renewed = await key_of(host)
    assert renewed is not None and renewed.id == "ASIA2"
    assert amazon.asked[0] == ("PUT", "/latest/api/token")


async def test_without_the_setting_nobody_is_asked(amazon: Metadata, host: Host) -> None:
    assert await key_of(host, metadata=False) is None
    assert await key_of(host, metadata=False, container_uri="/v2/credentials/7") is None
    assert amazon.asked == []


async def test_a_container_and_a_pod_get_their_own(amazon: Metadata, host: Host, tmp_path: Path) -> None:
    key = await key_of(host, container_uri="/v2/credentials/7")
    assert key is not None and key.id == "ASIA1"
    host.shared.clear()
    (tmp_path / "token").write_text("of-the-pod\n")
    pod = {"container_uri": "http://169.254.170.23/v1/credentials", "container_token_file": "token"}
    key = await key_of(host, **pod)
    assert key is not None and key.id == "ASIA2"
    assert [path for _, path in amazon.asked] == ["/v2/credentials/7", "/v1/credentials"]


async def test_a_key_that_is_about_to_end_is_used_and_asked_for_again_soon(
    amazon: Metadata, host: Host, clock: HandClock
) -> None:
    amazon.seconds = 120.0
    first = await key_of(host)
    assert await key_of(host) is first
    clock.advance(61)
    second = await key_of(host)
    assert second is not first
    amazon.seconds = -1.0
    clock.advance(61)
    with pytest.raises(RetryLater, match="has ended"):
        await key_of(host)


@pytest.mark.parametrize(
    "uri",
    [
        "http://169.254.169.254/latest/api/token",
        "http://169.254.170.2.evil.example/x",
        "http://169.254.170.2@evil.example/x",
        "http://169.254.170.2:8080/x",
        "https://evil.example/x",
        "http://127.0.0.1/x",
        "file:///etc/passwd",
        "v2/credentials",
    ],
)
def test_a_container_is_sent_nowhere_else(uri: str) -> None:
    with pytest.raises(ValidationError, match="container_uri"):
        AwsRoleAccount(metadata=True, container_uri=uri)


@pytest.mark.parametrize("path", ["//evil.example/x", "/a/../b", "/a b", "/a\r\nX: y", "no-slash", "/#x", ""])
async def test_a_path_that_is_none_is_not_asked_for(path: str, amazon: Metadata) -> None:
    with pytest.raises(NeedsAttention):
        await ask_metadata("container", path)
    assert amazon.asked == []


PATHS = [
    "/latest/api/token",
    "/latest/meta-data/iam/security-credentials/",
    "/latest/meta-data/iam/security-credentials/reader",
]


@pytest.mark.parametrize("path", PATHS)
async def test_a_redirect_is_not_followed(path: str, amazon: Metadata, host: Host) -> None:
    followed: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        followed.append(request.path)
        return amazon.key()

    async with served(elsewhere) as other:

        async def redirect(request: web.Request) -> web.StreamResponse:
            return web.Response(status=307, headers={"Location": f"http://{other}/stolen"})

        amazon.replaced[path] = redirect
        with pytest.raises(NeedsAttention, match="redirect"):
            await key_of(host)
    assert followed == []


def key_text(**changed: str) -> str:
    fields = {"AccessKeyId": "a", "SecretAccessKey": "b", "Token": "c", "Expiration": "2099-01-01T00:00:00Z"}
    return json.dumps({**fields, **changed})


def body(text: str | bytes) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=text.encode() if isinstance(text, str) else text)

    return answer


@pytest.mark.parametrize(
    "path, text",
    [
        (PATHS[0], "<html>\nhello</html>"),
        (PATHS[0], ""),
        (PATHS[0], "a\r\nX-Injected: yes"),
        (PATHS[0], b"\xff\xfe"),
        (PATHS[1], "../../user-data"),
        (PATHS[1], "a\nb"),
        (PATHS[1], "a?b"),
        (PATHS[1], ""),
        (PATHS[2], "<html>"),
        (PATHS[2], "null"),
        (PATHS[2], "[" * 50_000),
        (PATHS[2], '{"Code": "Success"}'),
        (PATHS[2], key_text(Expiration="soon")),
        (PATHS[2], key_text(Expiration="2099-01-01T00:00:00")),
        (PATHS[2], key_text(AccessKeyId="a\nb")),
        (PATHS[2], key_text(SecretAccessKey="")),
        (PATHS[2], key_text(Code="Failed")),
        (PATHS[2], "x" * 100_000),
    ],
)
async def test_a_wrong_answer_is_no_key(path: str, text: str | bytes, amazon: Metadata, host: Host) -> None:
    amazon.replaced[path] = body(text)
    with pytest.raises(RetryLater) as caught:
        await key_of(host)
    assert "metadata server" in str(caught.value)
    assert "html" not in str(caught.value)
    assert "aws_key" not in host.shared


@pytest.mark.parametrize(
    "status, error", [(401, NeedsAttention), (403, NeedsAttention), (404, NeedsAttention), (500, RetryLater)]
)
async def test_a_refusal_is_said_in_words(status: int, error: type[HarkenError], amazon: Metadata, host: Host) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text="a secret of the server")

    amazon.replaced[PATHS[1]] = refuse
    with pytest.raises(RetryLater if status == 500 else NeedsAttention) as caught:
        await key_of(host)
    assert "secret of" not in str(caught.value)


async def test_a_server_that_does_not_answer_is_not_waited_for(
    amazon: Metadata, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_metadata_client, "SECONDS", 0.2)
    never = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        await never.wait()
        return web.Response()

    amazon.replaced[PATHS[0]] = hang
    with pytest.raises(RetryLater, match="did not answer"):
        await key_of(host)
    never.set()


async def test_where_there_is_no_metadata_server_that_is_said(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ADDRESSES, "instance", "127.0.0.1:1")
    with pytest.raises(RetryLater, match="did not answer") as caught:
        await key_of(host)
    assert "machines of the cloud" in caught.value.fix


@pytest.mark.parametrize("address", ["169.254.169.254", "169.254.170.2", "169.254.170.23"])
async def test_no_other_request_reaches_these_addresses(address: str, host: Host) -> None:
    assert address in ADDRESSES.values()
    with pytest.raises(Refused, match="never allowed"):
        await host.http.request("GET", f"http://{address}/latest/meta-data/", allow_private=True)


def test_only_what_gets_credentials_asks_these_servers() -> None:
    source = Path(harken.__file__).parent
    users = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"http\.cloud_metadata|http import .*metadata|ask_metadata", path.read_text())
    }
    assert users == {"http/cloud_metadata_client.py", "kit/aws_metadata.py", "kit/google_default_credentials.py"}


def test_an_account_may_rely_on_its_machine_alone() -> None:
    assert AwsAccount(region="eu-central-1", metadata=True).metadata
    assert S3Account(metadata=True).metadata
    with pytest.raises(ValidationError, match="metadata: true"):
        AwsAccount(region="eu-central-1")
