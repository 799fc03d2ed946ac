"""Keys that are not written down: from a profile, and of a role by web identity."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from pydantic import ValidationError

from harken.clock import from_unix
from harken.errors import HarkenError, NeedsAttention
from harken.http import Client
from harken.kit.aws_role_keys import AwsKey, AwsRoleAccount, current_key, key_fields
from harken.services.aws.api import AwsAccount
from harken.services.aws.s3 import S3Account
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.server import Answer, FakeServer, Handler

ROLE = "arn:aws:iam::123456789012:role/reader"
PROFILES = """
[default]
aws_access_key_id = AKDEFAULT
aws_secret_access_key = s1

[work]
aws_access_key_id = AKWORK
aws_secret_access_key = s2
aws_session_token = t2

[signs-on]
sso_session = corp
"""


class Sts(FakeServer):
    """Gives keys that last an hour, each another one."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.given = 0

    def routes(self) -> Mapping[str, Handler]:
        return {"/": self._assume}

    async def _assume(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs(await request.text()).items()}
        assert (form["Action"], form["RoleArn"], form["WebIdentityToken"]) == (
            "AssumeRoleWithWebIdentity",
            ROLE,
            "jwt",
        )
        self.given += 1
        ends = from_unix(self.clock.time() + 3_600).isoformat()
        parts = {"AccessKeyId": f"AS{self.given}", "SecretAccessKey": "s/+=", "SessionToken": "t", "Expiration": ends}
        body = "".join(f"<{name}>{value}</{name}>" for name, value in parts.items())
        return web.Response(text=f"<R><Credentials>{body}</Credentials></R>", content_type="text/xml")


@asynccontextmanager
async def hosted(directory: Path, clock: HandClock) -> AsyncIterator[Host]:
    client = Client(clock)
    try:
        yield Host(http=client, clock=clock, random=Random(1), allow_private=True, directory=str(directory))
    finally:
        await client.close()


async def key_of(host: Host, endpoint: str = "", **fields: str) -> AwsKey | None:
    return await current_key(AwsRoleAccount(**fields), "eu-central-1", endpoint, host)


async def test_the_key_of_a_profile_is_read_again_after_a_minute(tmp_path: Path) -> None:
    clock = HandClock()
    file = tmp_path / "credentials"
    file.write_text(PROFILES)
    async with hosted(tmp_path, clock) as host:
        found = await key_of(host, profile="work", credentials_file="credentials")
        assert found == AwsKey(id="AKWORK", secret="s2", token="t2", until=clock.time() + 60)
        assert "s2" not in repr(found)
        file.write_text(PROFILES.replace("AKWORK", "AKNEXT"))
        clock.advance(59)
        assert await key_of(host, profile="work", credentials_file="credentials") == found
        clock.advance(1)
        again = await key_of(host, profile="work", credentials_file="credentials")
        assert again is not None and again.id == "AKNEXT"


@pytest.mark.parametrize(
    ("profile", "text", "said"),
    [
        ("home", PROFILES, "has no profile home.*Write one of default, signs-on, work"),
        ("signs-on", PROFILES, "the profile signs-on in .* has no key.*Give it aws_access_key_id"),
        ("work", "aws_secret_access_key = s3cret", "is not a file of profiles"),
        ("work", "", "has no profile work.*Check credentials_file"),
    ],
)
async def test_a_profile_that_cannot_be_used_is_said_in_words(
    tmp_path: Path, profile: str, text: str, said: str
) -> None:
    (tmp_path / "credentials").write_text(text)
    async with hosted(tmp_path, HandClock()) as host:
        with pytest.raises(NeedsAttention, match=said) as caught:
            await key_of(host, profile=profile, credentials_file="credentials")
        assert "s3cret" not in str(caught.value)
        with pytest.raises(NeedsAttention, match=r"none cannot be read: No such file.*Check credentials_file"):
            await key_of(host, profile=profile, credentials_file="none")


async def test_the_key_of_a_role_is_asked_for_once_and_renewed_before_its_end(tmp_path: Path) -> None:
    clock = HandClock()
    (tmp_path / "token").write_text("jwt\n")
    sts = Sts(clock)
    async with sts.serve(), hosted(tmp_path, clock) as host:
        fields = {"role_arn": ROLE, "token_file": "token"}
        found = [await key_of(host, sts.url, **fields) for _ in range(3)]
        assert found == [AwsKey(id="AS1", secret="s/+=", token="t", until=clock.time() + 3_300)] * 3
        clock.advance(3_299)
        assert await key_of(host, sts.url, **fields) == found[0]
        clock.advance(1)
        renewed = await key_of(host, sts.url, **fields)
        assert renewed is not None and (renewed.id, sts.given) == ("AS2", 2)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(status=403, body=b"<Code>AccessDenied</Code>"), "STS answered 403 for the role reader .AccessDenied"),
        (Answer(status=400, body=b"<Code>InvalidIdentityToken</Code>jwt"), "Let the trust policy of reader accept"),
        (Answer(status=500), "500"),
        (Answer(status=200, body=b"<html>"), "did not answer like STS"),
        (Answer(status=302, headers={"Location": "/other"}), "answered 302 to the role reader"),
    ],
)
async def test_a_role_that_is_refused_is_said_in_words(tmp_path: Path, answer: Answer, said: str) -> None:
    clock = HandClock()
    (tmp_path / "token").write_text("jwt")
    sts = Sts(clock)
    sts.answers.append(answer)
    async with sts.serve(), hosted(tmp_path, clock) as host:
        with pytest.raises(HarkenError, match=said) as caught:
            await key_of(host, sts.url, role_arn=ROLE, token_file="token")
        assert "jwt" not in str(caught.value)
        # the next try gets its key
        assert await key_of(host, sts.url, role_arn=ROLE, token_file="token") is not None


async def test_without_profile_and_role_there_is_no_key(tmp_path: Path) -> None:
    async with hosted(tmp_path, HandClock()) as host:
        assert await key_of(host) is None
    assert key_fields(None) == {}


@pytest.mark.parametrize("account", [AwsAccount, S3Account])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"access_key_id": "AK"}, "access_key_id and secret_access_key belong together"),
        ({"role_arn": ROLE}, "role_arn and token_file belong together"),
        ({"role_arn": "reader", "token_file": "t"}, "role_arn"),
    ],
)
def test_half_a_credential_is_refused(
    account: type[AwsAccount] | type[S3Account], fields: dict[str, str], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        account.model_validate({"region": "eu-central-1", **fields})


def test_a_queue_needs_some_credential_and_a_public_bucket_none() -> None:
    with pytest.raises(ValidationError, match="needs access_key_id and secret_access_key, a profile, role_arn"):
        AwsAccount.model_validate({"region": "eu-central-1"})
    assert S3Account.model_validate({"region": "eu-central-1"}).access_key_id == ""
