"""An account of Amazon Web Services, signed requests in its name, and what their errors mean.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-making-api-requests-json.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from pydantic import Field, SecretStr, field_validator, model_validator
from yarl import URL

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.http import Reply, raise_for
from harken.kit.aws_role_keys import ROLE_ENVIRONMENT, AwsRoleAccount, current_key, key_fields
from harken.kit.credential_field_validation import check_word, split_server_address
from harken.kit.values_from_payload import text_of
from harken.services.aws.signature import Credential, sign
from harken.source import Host

__all__ = ["ENVIRONMENT", "Aws", "AwsAccount", "AwsError"]

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_DEFAULT_REGION": "region",
    "AWS_REGION": "region",
    "AWS_ENDPOINT_URL": "endpoint",
    **ROLE_ENVIRONMENT,
}
"""As Amazon's own tools read them."""

ANSWER_SECONDS = 10.0
_CODE = re.compile(r"[A-Za-z0-9.]{1,100}")
_XML_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,100})</Code>")
_MISSING = frozenset({"QueueDoesNotExist", "NonExistentQueue", "NotFound", "NotFoundException"})
_LIMITED = frozenset({"RequestThrottled", "ThrottlingException", "Throttling", "KmsThrottled", "OverLimit"})
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "AuthorizationError", "KmsAccessDenied"})
_UNKNOWN_KEY = frozenset(
    {
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "InvalidAccessKeyId",
        "MissingAuthenticationToken",
        "InvalidSecurity",
        "AuthFailure",
        "OptInRequired",
    }
)
_WRONG_SECRET = frozenset({"SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature"})
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})


class AwsAccount(AwsRoleAccount):
    """The key of a user or role, or where it comes from, and the region of its queues and topics."""

    access_key_id: str = Field("", description="id of the access key, such as AKIAIOSFODNN7EXAMPLE")
    secret_access_key: SecretStr = Field(SecretStr(""), description="secret of this key")
    session_token: SecretStr | None = Field(None, description="comes with temporary keys (optional)")
    region: str = Field(pattern=r"^[a-z0-9-]{1,40}$", description="such as eu-central-1")
    endpoint: str = Field("", description="address of a server to use instead of Amazon's (optional)")

    @field_validator("access_key_id")
    @classmethod
    def _key(cls, value: str) -> str:
        return check_word(value, "the id of an access key") if value else ""

    @field_validator("secret_access_key")
    @classmethod
    def _secret(cls, value: SecretStr) -> SecretStr:
        return _secret_word(value) if value.get_secret_value() else value

    @field_validator("session_token")
    @classmethod
    def _token(cls, value: SecretStr | None) -> SecretStr | None:
        return _secret_word(value) if value is not None and value.get_secret_value() else None

    @field_validator("endpoint")
    @classmethod
    def _address(cls, value: str) -> str:
        if value:
            split_server_address(value, "an address, such as http://127.0.0.1:4566")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _signs_in(self) -> AwsAccount:
        if bool(self.access_key_id) != bool(self.secret_access_key.get_secret_value()):
            raise ValueError("access_key_id and secret_access_key belong together")
        if bool(self.role_arn) != bool(self.token_file):
            raise ValueError("role_arn and token_file belong together")
        if not (self.access_key_id or self.profile or self.role_arn or self.metadata):
            raise ValueError(
                "needs access_key_id and secret_access_key, a profile, role_arn and token_file, or metadata: true"
            )
        return self

    @property
    def credential(self) -> Credential:
        return Credential(
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key.get_secret_value(),
            session_token=self.session_token.get_secret_value() if self.session_token else "",
        )


def _secret_word(value: SecretStr) -> SecretStr:
    return SecretStr(check_word(value.get_secret_value(), "a secret of Amazon, which is one word without spaces"))


class AwsError(NeedsAttention):
    """A request was refused; `name` is Amazon's name for the reason."""

    def __init__(self, message: str, *, name: str, fix: str) -> None:
        super().__init__(message, fix=fix)
        self.name = name


class Aws:
    """One of Amazon's services, `sqs` or `sns`, in the name of one account."""

    def __init__(self, account: AwsAccount, host: Host, service: str) -> None:
        self._account = account
        self._host = host
        self._service = service
        domain = "amazonaws.com.cn" if account.region.startswith("cn-") else "amazonaws.com"
        self._url = URL(f"{account.endpoint or f'https://{service}.{account.region}.{domain}'}/", encoded=True)

    async def call(self, action: str, params: Mapping[str, Any], *, about: str, wait: float = 0.0) -> dict[str, Any]:
        """Send a request of the JSON protocol and return the object in the answer, or raise.

        `about` names the queue in messages; `wait` is how many seconds the server may take on purpose.
        """
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{action}"}
        reply = await self._send(headers, msgspec.json.encode(params), wait)
        if reply.status >= 300:
            raise self._refusal(reply, _code(reply), action, about)
        document = reply.json() if reply.body else {}
        if not isinstance(document, dict):
            raise RetryLater(f"{self._url.host} did not answer like {self._service.upper()}", fix="Check endpoint")
        return document

    async def call_query(self, action: str, params: Mapping[str, str], *, about: str) -> bytes:
        """Send a request of the older protocol, a form that is answered with XML, and return the answer, or raise."""
        headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
        reply = await self._send(headers, urlencode({"Action": action, **params}).encode(), 0.0)
        if reply.status >= 300:
            raise self._refusal(reply, _code(reply), action, about)
        return reply.body

    async def _signing(self) -> AwsAccount:
        """The account with the key that is valid now; one that is written down comes first."""
        account = self._account
        if account.access_key_id:
            return account
        key = await current_key(account, account.region, account.endpoint, self._host)
        return account.model_copy(update=key_fields(key))

    async def _send(self, headers: Mapping[str, str], body: bytes, wait: float) -> Reply:
        account = await self._signing()
        signed = sign(
            account.credential, account.region, self._service, self._url, headers, body, self._host.clock.now()
        )
        return await self._host.request(
            "POST",
            self._url,
            headers=signed,
            data=body,
            timeout=wait + ANSWER_SECONDS,
            # a signature is for one address only
            follow_redirects=False,
        )

    def _refusal(self, reply: Reply, code: str, action: str, about: str) -> HarkenError:
        """What an error means. Amazon's own text is not repeated: it can hold what a stranger wrote."""
        where = f"{self._service.upper()} in {self._account.region}"
        if code in _LIMITED:
            return RetryLater(f"{where} has had too many requests ({code})", reason="rate_limited")
        fix = self._fix(code, action, about)
        if fix:
            return AwsError(f"{where} answered {reply.status} to {action} of {about} ({code})", name=code, fix=fix)
        try:
            raise_for(reply, f"{action} of {about}" + (f" ({code})" if code else ""))
        except NeedsAttention as error:
            what = "the key and its rights" if reply.status in (401, 403) else "the settings of the step or stream"
            return AwsError(error.message, name=code, fix=f"Check {what}")
        except HarkenError as error:
            return error
        return RetryLater(f"{where} redirected {action} of {about}", fix="Check endpoint")

    def _fix(self, code: str, action: str, about: str) -> str:
        if code in _MISSING:
            return f"Check the name {about}, the region {self._account.region} and the account of the key"
        if code in _DENIED:
            return f"Allow {self._service}:{action} on {about} to this user or role"
        if code in _UNKNOWN_KEY:
            return "Check access_key_id; a temporary key needs its session_token"
        if code in _WRONG_SECRET:
            return "Check secret_access_key, and that the clock of this machine is right"
        if code in _EXPIRED:
            return "Make a new session_token, and check that the clock of this machine is right"
        return ""


def _code(reply: Reply) -> str:
    """Amazon's name for an error, without what stands before it: `com.amazonaws.sqs#QueueDoesNotExist`.

    What checks signatures in front of a service may answer with XML where the service would with JSON.
    """
    found = _XML_CODE.search(reply.body)
    if found:
        return found[1].decode().rpartition(".")[2]
    try:
        name = (text_of(reply.json(), "__type") or "").rpartition("#")[2]
    except RetryLater:
        return ""
    return name.rpartition(".")[2] if _CODE.fullmatch(name) else ""
