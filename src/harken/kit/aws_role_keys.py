"""Keys of an Amazon account that are not written down: of a profile of its tools, of a role by web identity, and of the
role of the machine or container.

Temporary keys are asked for once and renewed before they end:
https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
"""

from __future__ import annotations

import asyncio
import configparser
import re
from pathlib import Path
from urllib.parse import urlencode

import msgspec
from pydantic import Field, SecretStr, field_validator

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.http import Reply, raise_for
from harken.kit.aws_metadata import container_key, instance_key, parse_container_uri
from harken.kit.models import AccountModel
from harken.kit.values_from_payload import instant
from harken.source import Host

__all__ = ["ROLE_ENVIRONMENT", "AwsKey", "AwsRoleAccount", "current_key", "key_fields"]

ROLE_ENVIRONMENT = {
    "AWS_PROFILE": "profile",
    "AWS_SHARED_CREDENTIALS_FILE": "credentials_file",
    "AWS_ROLE_ARN": "role_arn",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "token_file",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "container_uri",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "container_uri",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "container_token_file",
}
"""As Amazon's own tools read them."""

EARLY_SECONDS = 300.0
"""So long before its end a key is renewed."""
READ_AGAIN_SECONDS = 60.0
"""How often a profile is read: other tools may renew it."""
MAX_TOKEN = 20_000
_ARN = r"^(arn:[a-z-]{1,20}:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]{1,576})?$"
_PARTS = {
    name: re.compile(rb"<%b>([^<\s]{1,8000})</%b>" % (name.encode(), name.encode()))
    for name in ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
}
_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,100})</Code>")


class AwsRoleAccount(AccountModel):
    """What an account may have in place of a key."""

    profile: str = Field("", max_length=200, description="profile of the credentials file to take the key from")
    credentials_file: str = Field("~/.aws/credentials", description="the file with the profiles")
    role_arn: str = Field("", pattern=_ARN, description="role to act as by web identity, arn:aws:iam::…:role/NAME")
    token_file: str = Field("", description="file with the web identity token, which Kubernetes keeps up to date")
    metadata: bool = Field(False, description="take the key of the role of this machine or container from Amazon")
    container_uri: str = Field("", max_length=2_000, description="where a container gets its key with metadata: true")
    container_token_file: str = Field("", description="file with the token that container_uri wants")

    @field_validator("container_uri")
    @classmethod
    def _is_of_a_container(cls, value: str) -> str:
        if value:
            parse_container_uri(value)
        return value


class AwsKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that can be used until then, in seconds since 1970."""

    id: str
    secret: str
    token: str = ""
    until: float

    def __repr__(self) -> str:
        return f"<AwsKey {self.id}>"


async def current_key(account: AwsRoleAccount, region: str, endpoint: str, host: Host) -> AwsKey | None:
    """The key of the account's profile or role; None if it has neither. All users of the credential share it."""
    if not account.profile and not account.role_arn and not account.metadata:
        return None
    lock = host.shared.setdefault("aws_key_lock", asyncio.Lock())
    async with lock:
        found: AwsKey | None = host.shared.get("aws_key")
        if found is None or host.clock.time() >= found.until:
            if account.profile:
                found = await _profile_key(account, host)
            elif account.role_arn:
                found = await _role_key(account, region, endpoint, host)
            else:
                found = await _metadata_key(account, host)
            host.shared["aws_key"] = found
        return found


async def _profile_key(account: AwsRoleAccount, host: Host) -> AwsKey:
    path = Path(host.directory, Path(account.credentials_file).expanduser())
    parser = configparser.RawConfigParser()
    text = (await _read(path, "credentials_file")).decode("utf-8", "replace")
    try:
        parser.read_string(text)
    except configparser.Error:
        # its own message quotes the line
        raise NeedsAttention(f"{path} is not a file of profiles", fix="Check credentials_file") from None
    if not parser.has_section(account.profile):
        fix = f"Write one of {', '.join(sorted(parser.sections()))}" if parser.sections() else "Check credentials_file"
        raise NeedsAttention(f"{path} has no profile {account.profile}", fix=fix)
    found = dict(parser.items(account.profile))
    id, secret = found.get("aws_access_key_id", ""), found.get("aws_secret_access_key", "")
    if not id or not secret:
        fix = "Give it aws_access_key_id and aws_secret_access_key: sign-on, programs and other profiles are not used"
        raise NeedsAttention(f"the profile {account.profile} in {path} has no key", fix=fix)
    until = host.clock.time() + READ_AGAIN_SECONDS
    return AwsKey(id=id, secret=secret, token=found.get("aws_session_token", ""), until=until)


async def _role_key(account: AwsRoleAccount, region: str, endpoint: str, host: Host) -> AwsKey:
    path = Path(host.directory, Path(account.token_file).expanduser())
    token = (await _read(path, "token_file")).decode("ascii", "replace").strip()
    if not token or len(token) > MAX_TOKEN:
        raise NeedsAttention(f"{path} is not a web identity token", fix="Check token_file")
    form = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": account.role_arn,
        "RoleSessionName": "harken",
        "WebIdentityToken": token,
    }
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    reply = await host.request(
        "POST",
        endpoint or f"https://sts.{region}.{domain}/",
        data=urlencode(form).encode(),
        headers={"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
        # the token is for this server alone
        follow_redirects=False,
    )
    if reply.status >= 300:
        raise _refusal(reply, account.role_arn)
    parts = {name: found[1].decode() for name, pattern in _PARTS.items() if (found := pattern.search(reply.body))}
    ends = instant(parts.get("Expiration", ""))
    if len(parts) < len(_PARTS) or ends is None:
        raise RetryLater(f"{reply.url.host} did not answer like STS", fix="Check region and endpoint")
    return AwsKey(
        id=parts["AccessKeyId"],
        secret=parts["SecretAccessKey"],
        token=parts["SessionToken"],
        until=ends.timestamp() - EARLY_SECONDS,
    )


async def _metadata_key(account: AwsRoleAccount, host: Host) -> AwsKey:
    """The key that Amazon gives to this machine, or to this container if it was told where."""
    if account.container_uri:
        token = ""
        if account.container_token_file:
            path = Path(host.directory, Path(account.container_token_file).expanduser())
            token = (await _read(path, "container_token_file")).decode("ascii", "replace").strip()
        given = await container_key(account.container_uri, token)
    else:
        given = await instance_key()
    now, ends = host.clock.time(), given.expiration.timestamp()
    if ends <= now:
        fix = "Check that the clock of this machine is right"
        raise RetryLater("the metadata server gave a key that has ended", fix=fix)
    return AwsKey(
        id=given.access_key_id,
        secret=given.secret_access_key,
        token=given.token,
        # Amazon has a new one some minutes before the end, and until then gives the old one again
        until=max(ends - EARLY_SECONDS, min(now + READ_AGAIN_SECONDS, ends)),
    )


def _refusal(reply: Reply, role: str) -> HarkenError:
    """What an error means. Amazon's own text is not repeated."""
    found = _CODE.search(reply.body)
    code = found[1].decode() if found else ""
    name = role.rpartition("/")[2]
    if code in ("AccessDenied", "InvalidIdentityToken", "IDPRejectedClaim", "ExpiredTokenException"):
        fix = f"Let the trust policy of {name} accept this token, and see that token_file is kept up to date"
        return NeedsAttention(f"STS answered {reply.status} for the role {name} ({code})", fix=fix)
    try:
        raise_for(reply, f"the role {name}" + (f" ({code})" if code else ""), fix="Check role_arn and token_file")
    except HarkenError as error:
        return error
    return RetryLater(f"{reply.url.host} redirected a request for the role {name}", fix="Check endpoint")


async def _read(path: Path, field: str) -> bytes:
    try:
        return await asyncio.to_thread(path.read_bytes)
    except OSError as error:
        raise NeedsAttention(
            f"{path} cannot be read: {error.strerror}", fix=f"Check {field} and who may read it"
        ) from None


def key_fields(key: AwsKey | None) -> dict[str, str | SecretStr]:
    """The fields of an account that signs with this key; none without a key."""
    if key is None:
        return {}
    return {
        "access_key_id": key.id,
        "secret_access_key": SecretStr(key.secret),
        "session_token": SecretStr(key.token),
    }
