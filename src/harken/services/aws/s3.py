"""Objects of an S3 bucket, at Amazon or at a server that speaks like it.

ListObjectsV2: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html, requests are signed as
https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html says.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from yarl import URL

from harken.errors import Garbled, NeedsAttention
from harken.http import Reply, raise_for
from harken.kit import configure_hint
from harken.kit.aws_role_keys import ROLE_ENVIRONMENT, AwsRoleAccount, current_key, key_fields
from harken.kit.credential_field_validation import check_word, split_server_address
from harken.kit.object_listing import VERSION_BYTES, BucketListing, BucketQuery, ListedObject, ListedPage
from harken.services.aws.api import Aws, AwsAccount
from harken.services.aws.bucket_poll_wakeups import RingingListing
from harken.services.aws.sqs import QUEUE_NAME, Queue
from harken.source import Host, Plugin, PollSource

__all__ = ["S3Account", "S3Query", "list_page", "plugin", "signed_headers"]

PAGE_KEYS = 1000
LARGEST = 16_000_000
EMPTY = hashlib.sha256(b"").hexdigest()
_ETAG = re.compile(r"([0-9a-f]{32})(?:-(\d{1,5}))?")
_CODE = re.compile(rb"<Code>([A-Za-z]{1,64})</Code>")
_REGION = re.compile(r"[a-z0-9-]{1,40}")
# the last two bytes of a version whose ETag is no MD5, of which only a digest is kept
_DIGEST = b"\xff\xff"


class S3Account(AwsRoleAccount):
    """How to sign requests. Without keys they are not signed, which is enough for public buckets."""

    access_key_id: str = Field("", description="access key; it needs s3:ListBucket and nothing else")
    secret_access_key: SecretStr = Field(SecretStr(""), description="its secret")
    session_token: SecretStr = Field(SecretStr(""), description="token of temporary credentials")
    region: str = Field("us-east-1", pattern=r"^[a-z0-9-]{1,40}$", description="region of the bucket")
    endpoint: str = Field("", description="address of a server other than Amazon's, such as https://minio.example")

    @field_validator("access_key_id")
    @classmethod
    def _is_key(cls, value: str) -> str:
        return check_word(value, "an access key") if value else ""

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if value:
            split_server_address(value, "the address of a server")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _has_both(self) -> S3Account:
        if bool(self.access_key_id) != bool(self.secret_access_key.get_secret_value()):
            raise ValueError("access_key_id and secret_access_key belong together")
        if bool(self.role_arn) != bool(self.token_file):
            raise ValueError("role_arn and token_file belong together")
        return self


class S3Query(BucketQuery):
    """Which objects to look at, and which queue tells that there is something to see."""

    doorbell: str = Field(
        "",
        pattern=rf"^$|{QUEUE_NAME}",
        description="name or address of an SQS queue of its own that gets the bucket's notifications (optional)",
    )


def bucket_url(account: S3Account, bucket: str) -> str:
    """Return the address of a bucket, without a slash at its end."""
    if account.endpoint:
        return f"{account.endpoint}/{bucket}"
    domain = "amazonaws.com.cn" if account.region.startswith("cn-") else "amazonaws.com"
    # the certificate of Amazon does not cover names with dots
    if "." in bucket:
        return f"https://s3.{account.region}.{domain}/{bucket}"
    return f"https://{bucket}.s3.{account.region}.{domain}"


def canonical_query(params: Mapping[str, str]) -> str:
    return "&".join(f"{quote(name, safe='-_.~')}={quote(params[name], safe='-_.~')}" for name in sorted(params))


def signed_headers(account: S3Account, url: str, query: str, now: float) -> dict[str, str]:
    """Return the headers of a GET without a body, signed with the account's key if it has one."""
    if not account.access_key_id:
        return {}
    parts = urlsplit(url)
    at = datetime.fromtimestamp(now, UTC)
    stamp, day = at.strftime("%Y%m%dT%H%M%SZ"), at.strftime("%Y%m%d")
    headers = {"host": parts.netloc, "x-amz-content-sha256": EMPTY, "x-amz-date": stamp}
    if token := account.session_token.get_secret_value():
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join(("GET", quote(parts.path or "/", safe="/-_.~%"), query, lines, names, EMPTY))
    scope = f"{day}/{account.region}/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    signature = hmac.new(_signing_key(account, day), f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}".encode(), "sha256")
    credential = f"Credential={account.access_key_id}/{scope}, SignedHeaders={names}, Signature={signature.hexdigest()}"
    del headers["host"]
    return {**headers, "Authorization": f"AWS4-HMAC-SHA256 {credential}"}


def _signing_key(account: S3Account, day: str) -> bytes:
    key = b"AWS4" + account.secret_access_key.get_secret_value().encode()
    for part in (day, account.region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


async def list_page(query: S3Query, account: S3Account, host: Host, token: str, *, keys: int = PAGE_KEYS) -> ListedPage:
    """List the objects after a token, or the first ones."""
    if not account.access_key_id:
        key = await current_key(account, account.region, "", host)
        account = account.model_copy(update=key_fields(key))
    url = bucket_url(account, query.bucket)
    params = {"list-type": "2", "encoding-type": "url", "max-keys": str(keys), "prefix": query.prefix}
    if token:
        params["continuation-token"] = token
    asked = canonical_query(params)
    headers = signed_headers(account, url, asked, host.clock.time())
    address = URL(f"{url}{'' if urlsplit(url).path else '/'}?{asked}", encoded=True)
    reply = await host.request("GET", address, headers=headers, max_bytes=LARGEST, follow_redirects=False)
    _refuse(reply, query.bucket)
    return _parse(reply, query.bucket)


def _refuse(reply: Reply, bucket: str) -> None:
    """Raise unless the bucket was listed. The code that S3 gives is said, and no other text of the answer."""
    if reply.status < 300:
        return
    found = _CODE.search(reply.body[:4096])
    code = found[1].decode() if found else ""
    region = reply.headers.get("x-amz-bucket-region", "")
    if reply.status in (301, 307, 400) and _REGION.fullmatch(region):
        raise NeedsAttention(f"the bucket {bucket} is in another region", fix=f"Write region: {region}")
    what = f"the list of {bucket}" + (f" ({code})" if code else "")
    raise_for(reply, what, fix=_advice(reply.status, code))


def _advice(status: int, code: str) -> str:
    if code == "NoSuchBucket" or status == 404:
        return "Check the name of the bucket and the endpoint"
    if code == "RequestTimeTooSkewed":
        return "Set the clock of this machine"
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"):
        return f"Make a new access key, then: {configure_hint('s3')}"
    return "Let the access key have s3:ListBucket for the bucket" if status in (401, 403) else ""


def _parse(reply: Reply, bucket: str) -> ListedPage:
    from lxml import etree  # type: ignore[import-untyped]

    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True)
    try:
        root = etree.fromstring(reply.body, parser)
        if etree.QName(root).localname != "ListBucketResult":
            raise ValueError("another document")
        space = root.tag[: root.tag.index("}") + 1] if "}" in root.tag else ""
        encoded = root.findtext(f"{space}EncodingType") == "url"
        objects = [_object(item, space, encoded) for item in root.iterfind(f"{space}Contents")]
        more = root.findtext(f"{space}IsTruncated") == "true"
        return ListedPage(objects, (root.findtext(f"{space}NextContinuationToken") or "") if more else "")
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Garbled(f"the answer to the list of {bucket} is not one of S3", fix="Check the endpoint") from error


def _object(item: Any, space: str, encoded: bool) -> ListedObject:
    # walking over the children once takes half the time of looking for each by its name
    fields = {child.tag: child.text for child in item}
    key, modified = fields.get(f"{space}Key"), fields.get(f"{space}LastModified")
    if not key or not modified:
        raise ValueError("an object without key or time")
    raw = unquote_to_bytes(key.replace("+", " ")) if encoded else key.encode()
    at = datetime.fromisoformat(modified).timestamp()
    etag = (fields.get(f"{space}ETag") or "").strip('"')
    return ListedObject(raw, int(fields.get(f"{space}Size") or 0), at, pack_etag(etag))


def pack_etag(etag: str) -> bytes:
    found = _ETAG.fullmatch(etag)
    if found is None or int(found[2] or 0) >= 0xFFFF:
        return hashlib.blake2b(etag.encode(), digest_size=VERSION_BYTES - 2).digest() + _DIGEST
    return bytes.fromhex(found[1]) + int(found[2] or 0).to_bytes(2, "big")


def show_etag(version: bytes) -> dict[str, Any]:
    if version.endswith(_DIGEST):
        return {"etag": None}
    parts = int.from_bytes(version[-2:], "big")
    return {"etag": version[:-2].hex() + (f"-{parts}" if parts else "")}


def _source(query: S3Query, account: S3Account, host: Host) -> PollSource:
    listing = BucketListing(query, host, lambda token: list_page(query, account, host, token), show_etag, kind="s3")
    if not query.doorbell:
        return listing
    return RingingListing(listing, query.bucket, lambda: _doorbell(query, account, host), host)


def _doorbell(query: S3Query, account: S3Account, host: Host) -> Queue:
    """The queue, in the name of the account that lists the bucket."""
    fields = account.model_dump(exclude={"allow_private_networks"} - set(AwsAccount.model_fields))
    try:
        signing = AwsAccount.model_validate(fields)
    except ValidationError:
        raise NeedsAttention(
            "a doorbell needs a key, and the account of the bucket has none", fix="Give it one that may read the queue"
        ) from None
    return Queue(Aws(signing, host, "sqs"), query.doorbell)


plugin = Plugin(
    kind="s3",
    summary="Objects of an S3 bucket: created, changed, deleted",
    docs="reference/services/s3.md",
    account=S3Account,
    query=S3Query,
    source=_source,
    identity="change",
    lookback_seconds=0.0,
    environment={
        "AWS_ACCESS_KEY_ID": "access_key_id",
        "AWS_SECRET_ACCESS_KEY": "secret_access_key",
        "AWS_SESSION_TOKEN": "session_token",
        "AWS_REGION": "region",
        "AWS_ENDPOINT_URL_S3": "endpoint",
        **ROLE_ENVIRONMENT,
    },
)
