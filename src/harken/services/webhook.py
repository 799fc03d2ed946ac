"""Webhooks both ways: incoming requests are verified with a shared secret, outgoing messages are signed with one.

Incoming is the hot path: the signature is computed in C over the raw bytes, the body is decoded once, and the bytes
are stored as received. A missing signature counts as a wrong one.
"""

from __future__ import annotations

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import blake2b, sha1, sha256, sha512
from typing import Any, Literal
from urllib.parse import parse_qs
from uuid import uuid4

import msgspec
from pydantic import Field, HttpUrl, SecretStr, ValidationError, model_validator

from harken.errors import Malformed, NeedsAttention, Refused, Unauthorized
from harken.event import Event
from harken.http import mended, raise_for
from harken.kit import AccountModel
from harken.kit.cloud_events import STRUCTURED, cloud_events
from harken.kit.standard_webhooks import StandardWebhooks, sign_message, signed_headers
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_receiver import LimitedQuery, schema_check
from harken.kit.webhook_signatures import check_any, check_basic
from harken.language.dotted_paths import lookup
from harken.source import Host, Message, Plugin, Request, Sample

__all__ = ["Incoming", "IncomingQuery", "Outgoing", "OutgoingQuery", "plugin"]

_HEX, _BASE64 = 64, 44
_HASHES = {"sha256": sha256, "sha512": sha512, "sha1": sha1}
_HEADERS = {"api_key": "X-Api-Key", "basic": "Authorization", "standard_webhooks": "webhook-signature"}
_FIELDS = {"id_header", "id_field", "type", "type_header", "type_field", "subject_field", "time_field"}
_SIGNED = "{timestamp}.{body}"
_BEARER = re.compile("^bearer +", re.IGNORECASE)
_decode = msgspec.json.Decoder().decode
_Secrets = SecretStr | list[SecretStr]


class IncomingQuery(LimitedQuery):
    """How a sender proves who it is, and where its events have their id, type, subject and time."""

    scheme: Literal["hmac", "api_key", "basic", "standard_webhooks", "none"] = Field(
        "hmac", description="how requests prove where they come from"
    )
    secret: _Secrets = Field(default_factory=list, description="shared secret; a list while it is being rotated")
    allow_unsigned: bool = Field(False, description="needed for scheme: none, since anybody can then send events")
    header: str = Field("", description="header of the signature (X-Signature-256) or of the key (X-Api-Key)")
    algorithm: Literal["sha256", "sha512", "sha1"] = Field("sha256", description="hash of the signature (hmac)")
    encoding: Literal["auto", "hex", "base64"] = Field("auto", description="how the signature is written (hmac)")
    prefix: str | None = Field(
        None, description="what stands before the signature, such as `v1=`; else `sha256=`, if any"
    )
    timestamp_header: str = Field("", description="header with the time, which is signed with the body")
    signed: str = Field(_SIGNED, description="what is signed where there is a time: text with {timestamp} and {body}")
    tolerance: float = Field(300.0, gt=0, description="seconds that a signed time may be off")
    id_header: str = Field("X-Event-Id", description="header that names the event; the same id is the same event")
    id_field: str = Field("", description="dotted path of the id in the body; wins over the header")
    type: str = Field("webhook.received", min_length=1, description="type of events that do not name one")
    type_header: str = Field("", description="header that names the type")
    type_field: str = Field("", description="dotted path of the type in the body")
    subject_field: str = Field("", description="dotted path of what the event is about; else its id")
    time_field: str = Field("", description="dotted path of when it happened: RFC 3339, or epoch seconds or ms")
    format: Literal["json", "cloudevents"] = Field("json", description="what is sent: any JSON or form, or CloudEvents")
    max_bytes: int = Field(1_000_000, gt=0, description="largest body that is accepted")

    @model_validator(mode="after")
    def _can_be_verified(self) -> IncomingQuery:
        if self.scheme == "none":
            if not self.allow_unsigned:
                raise ValueError("scheme: none lets anybody send events; set allow_unsigned: true if that is meant")
        elif not (_keys(self.secret) and all(key.strip() for key in _keys(self.secret))):
            unsigned = ", or write scheme: none to take unsigned ones" if self.allow_unsigned else ""
            raise ValueError(f"scheme: {self.scheme} needs a secret that is not empty{unsigned}")
        if self.scheme == "standard_webhooks":
            StandardWebhooks([key.decode() for key in _keys(self.secret)])
        self._check_form()
        said = self._changed(_FIELDS) if self.format == "cloudevents" else ()
        if said:
            raise ValueError(f"{', '.join(sorted(said))}: a CloudEvent says itself where this is")
        return self

    def _changed(self, names: set[str]) -> set[str]:
        """Which of the fields are not at their default; a query that was stored has all of them."""
        return {name for name in names if getattr(self, name) != type(self).model_fields[name].default}

    def _check_form(self) -> None:
        wanted = self._changed({"timestamp_header", "algorithm", "encoding", "prefix", "signed"})
        if self.scheme != "hmac" and wanted:
            raise ValueError(f"{', '.join(sorted(wanted))}: only scheme: hmac has this")
        if "signed" in wanted and not self.timestamp_header:
            raise ValueError("signed needs timestamp_header")
        if any(self.signed.count(part) != 1 for part in ("{timestamp}", "{body}")):
            raise ValueError("signed must contain {timestamp} and {body}, each once")


class Incoming:
    """Verifies one request and makes an event of it. Unauthorized means 401, Malformed 400."""

    def __init__(self, query: IncomingQuery) -> None:
        self._query = query
        self._keys = _keys(query.secret)
        self._texts = [key.decode() for key in self._keys]
        self._signers = [_signer(key, query.algorithm) for key in self._keys]
        self._header = (query.header or _HEADERS.get(query.scheme, "X-Signature-256")).lower()
        self._timestamp_header = query.timestamp_header.lower()
        self._id_header, self._type_header = query.id_header.lower(), query.type_header.lower()
        self._parse = _parser(query)
        self._around = _pieces(query.signed)
        self._check = self._proof(query)
        self.max_bytes = query.max_bytes
        self.max_per_minute = query.max_per_minute
        standard = query.scheme == "standard_webhooks"
        self._id_header = "webhook-id" if standard else self._id_header
        self._type_field = query.type_field or ("type" if standard else "")
        self._time_field = query.time_field or ("timestamp" if standard else "")
        self._has_default_fields = not (
            query.subject_field or self._time_field or query.type_header or self._type_field
        )
        self._type = query.type
        self._sends_cloud_events = query.format == "cloudevents"

    def _proof(self, query: IncomingQuery) -> Callable[[Request], None]:
        if query.scheme == "standard_webhooks":
            standard = StandardWebhooks(self._texts, query.tolerance)
            return lambda request: standard.check(request, request.received_at)
        checks = {
            "hmac": self._check_hmac,
            "api_key": self._check_key,
            "basic": self._check_basic,
            "none": _accept_unsigned,
        }
        return checks[query.scheme]

    async def receive(self, request: Request) -> list[Event]:
        body = request.body
        if len(body) > self.max_bytes:
            raise Malformed(f"the body is larger than {self.max_bytes:,} bytes")
        self._check(request)
        if self._sends_cloud_events:
            return cloud_events(request)
        try:
            data = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            data, body = _decode_leniently(request), b""
        if type(data) is not dict:
            data, body = {"value": data}, b""
        key = self._id(request, data)
        if self._has_default_fields:
            return [Event(subject=key, type=self._type, data=data, key=key, raw=body)]
        return [self._event(key, request, data, body)]

    def _event(self, key: str, request: Request, data: Mapping[str, Any], raw: bytes) -> Event:
        query = self._query
        kind = request.headers.get(self._type_header) if self._type_header else None
        about = text_of(data, query.subject_field) if query.subject_field else None
        return Event(
            subject=about or key,
            # several events may have the same subject: their ids tell them apart
            state=key if about else None,
            type=kind or (text_of(data, self._type_field) if self._type_field else None) or query.type,
            data=data,
            key=key,
            occurred_at=instant(lookup(data, self._time_field)) if self._time_field else None,
            raw=raw,
        )

    def _id(self, request: Request, data: Mapping[str, Any]) -> str:
        if self._query.id_field:
            found = text_of(data, self._query.id_field)
            if found is None:
                raise Malformed(f"the body has no id at {self._query.id_field!r}")
            return found
        # a sender that retries sends the same bytes, so their hash can be the id
        return request.headers.get(self._id_header) or blake2b(request.body, digest_size=16).hexdigest()

    def _check_hmac(self, request: Request) -> None:
        given = self._parse(request.headers.get(self._header, ""))
        signed = request.body
        if self._timestamp_header:
            stamp = request.headers.get(self._timestamp_header, "")
            self._check_age(stamp, request.received_at)
            signed = self._around(stamp.encode("latin-1", "backslashreplace"), signed)
        for sign in self._signers:
            if hmac.compare_digest(sign(signed), given):
                return
        raise Unauthorized(f"the signature in {self._header} is {'wrong' if given else 'missing or not one'}")

    def _check_age(self, stamp: str, now: datetime) -> None:
        at = instant(stamp)
        if at is None or abs(now.timestamp() - at.timestamp()) > self._query.tolerance:
            raise Unauthorized(f"the time in {self._timestamp_header} is missing or too far from now")

    def _check_key(self, request: Request) -> None:
        sent = request.headers.get(self._header, "")
        if not sent and not self._query.header:
            # the usual other place of a key, where no header was chosen
            sent = request.headers.get("authorization", "")
        given = _BEARER.sub("", sent).encode()
        if not any([hmac.compare_digest(key, given) for key in self._keys]):
            raise Unauthorized(f"the key in {self._header} is {'wrong' if given else 'missing'}")

    def _check_basic(self, request: Request) -> None:
        check_any(lambda key: check_basic(request, key, self._header), self._texts)


class CheckedIncoming(Incoming):
    """Takes only what fits the schema of the query; apart, as most webhooks have none."""

    def __init__(self, query: IncomingQuery) -> None:
        super().__init__(query)
        self._check_schema = schema_check(query.payload_schema)

    async def receive(self, request: Request) -> list[Event]:
        events = await super().receive(request)
        if self._check_schema is not None:
            self._check_schema(events)
        return events


def _signer(key: bytes, algorithm: str) -> Callable[[bytes], bytes]:
    """HMAC with the key's blocks hashed in advance; hmac.digest would repeat that, and release the GIL."""
    hashed = _HASHES[algorithm]
    size = hashed().block_size
    block = (hashed(key).digest() if len(key) > size else key).ljust(size, b"\0")
    inner = hashed(bytes(byte ^ 0x36 for byte in block))
    outer = hashed(bytes(byte ^ 0x5C for byte in block))

    def sign(message: bytes) -> bytes:
        first, second = inner.copy(), outer.copy()
        first.update(message)
        second.update(first.digest())
        return second.digest()

    return sign


def sample(query: IncomingQuery, now: datetime) -> Sample:
    """A request that the query accepts."""
    id = f"sample-{int(now.timestamp() * 1e6)}"
    if query.format == "cloudevents":
        kind, content = STRUCTURED, {"specversion": "1.0", "id": id, "source": "/harken", "type": "sample"}
    else:
        kind, content = "application/json", _nested(query.id_field, id) if query.id_field else {"sample": id}
    body = msgspec.json.encode(content)
    named = {} if query.id_field or query.format == "cloudevents" else {query.id_header: id}
    return Sample(headers={"Content-Type": kind, **named, **_sign(query, body, now)}, body=body)


def again(query: IncomingQuery, key: str, data: Any, now: datetime) -> Sample:
    """The request of an event that came before, signed now. It has the same id, so that it is known again."""
    if query.format == "cloudevents":
        raise Refused("CloudEvents are not sent again from here", fix="Try a sample: harken webhooks --curl ID")
    body = msgspec.json.encode(data)
    named = {} if query.id_field else {query.id_header: key}
    return Sample(headers={"Content-Type": "application/json", **named, **_sign(query, body, now)}, body=body)


def _nested(path: str, value: str) -> dict[str, Any]:
    found: Any = value
    for name in reversed(path.split(".")):
        found = {name: found}
    return dict(found)


def _sign(query: IncomingQuery, body: bytes, now: datetime) -> Mapping[str, str]:
    """The headers that prove a body. A secret that is sent itself is not shown."""
    if query.scheme == "none":
        return {}
    if query.scheme == "basic":
        return {query.header or "Authorization": "Basic $SECRET"}
    if query.scheme == "api_key":
        header = query.header or _HEADERS["api_key"]
        return {header: "Bearer $SECRET" if header.lower() == "authorization" else "$SECRET"}
    key = _keys(query.secret)[0]
    if query.scheme == "standard_webhooks":
        return signed_headers(key.decode(), body, now)
    stamp = str(int(now.timestamp()))
    timed = {query.timestamp_header: stamp} if query.timestamp_header else {}
    digest = _signer(key, query.algorithm)(_pieces(query.signed)(stamp.encode(), body) if timed else body)
    text = b64encode(digest).decode() if query.encoding == "base64" else digest.hex()
    prefix = f"{query.algorithm}=" if query.prefix is None else query.prefix
    return {**timed, query.header or "X-Signature-256": prefix + text}


class OutgoingQuery(AccountModel):
    """How messages are signed."""

    secret: _Secrets = Field(default_factory=list, description="signs messages; a list signs with each, for rotation")
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="headers to send along")
    allow_private_networks: bool = Field(False, description="allow addresses in private networks")
    format: Literal["harken", "standard_webhooks"] = Field(
        "harken", description="`standard_webhooks`: the body is `data`, signed as that specification says"
    )

    @model_validator(mode="after")
    def _has_keys(self) -> OutgoingQuery:
        if self.format == "standard_webhooks":
            keys = [key.decode() for key in _keys(self.secret)]
            if not keys or any(key.startswith(("whpk_", "whsk_")) for key in keys):
                raise ValueError("standard_webhooks needs a secret: whsec_ and the key in base64")
            StandardWebhooks(keys)
        if not all(key.strip() for key in _keys(self.secret)):
            raise ValueError("the secret is empty; leave it out to send messages unsigned")
        return self


class Outgoing:
    """Posts messages as JSON. A message that is sent twice carries the same Idempotency-Key."""

    def __init__(self, query: OutgoingQuery, host: Host) -> None:
        self._query = query
        self._host = host
        self._keys = _keys(query.secret)
        self._headers = {name: value.get_secret_value() for name, value in query.headers.items()}

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        if not (message.text.strip() or message.title.strip() or message.data):
            raise NeedsAttention("the message is empty", fix="Give the step a text:")
        content = {
            "text": _without_surrogates(message.text),
            "title": _without_surrogates(message.title),
            "data": message.data,
        }
        standard = self._query.format == "standard_webhooks"
        body = msgspec.json.encode(message.data if standard else content)
        headers = {"Content-Type": "application/json", **self._headers}
        if message.idempotency_key:
            headers["Idempotency-Key"] = message.idempotency_key
        if standard:
            secrets = [key.decode() for key in self._keys]
            headers |= sign_message(secrets, message.idempotency_key or _new_id(), body, self._host.clock.now())
        elif self._keys:
            headers["X-Harken-Signature"] = signature(self._keys, int(self._host.clock.time()), body)
        allowed = self._query.allow_private_networks or self._host.allow_private
        to = _address(message.to)
        reply = await self._host.request("POST", to, headers=headers, data=body, allow_private=allowed)
        # the address is not quoted: the path of a webhook is often a secret
        raise_for(reply, what="a message")
        return {"status": reply.status}


def _new_id() -> str:
    return f"msg_{uuid4().hex}"


def _address(to: str) -> str:
    try:
        HttpUrl(to)
    except ValidationError:
        raise NeedsAttention("`to` is not a web address", fix="Write an http or https address in `to`") from None
    return to


def _without_surrogates(text: str) -> str:
    """Without lone surrogates, which JSON cannot contain."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def signature(keys: list[bytes], at: int, body: bytes) -> str:
    """The value of X-Harken-Signature: the time, and a signature of `<time>.<body>` for each key."""
    signed = b"%d." % at + body
    return ",".join([f"t={at}", *(f"v1={hmac.digest(key, signed, 'sha256').hex()}" for key in keys)])


def _accept_unsigned(request: Request) -> None:
    return None


def _keys(secret: _Secrets) -> list[bytes]:
    given = secret if isinstance(secret, list) else [secret]
    # a secret that was read from a file often ends with a line end
    return [one.get_secret_value().rstrip("\r\n").encode() for one in given]


def _pieces(signed: str) -> Callable[[bytes, bytes], bytes]:
    """What joins the time and the body to what is signed."""
    before, rest = signed.split("{timestamp}")
    if "{body}" in before:
        before, between = before.split("{body}")
        first, second, third = before.encode(), between.encode(), rest.encode()
        return lambda stamp, body: b"".join((first, body, second, stamp, third))
    between, after = rest.split("{body}")
    first, second, third = before.encode(), between.encode(), after.encode()
    return lambda stamp, body: b"".join((first, stamp, second, body, third))


def _parser(query: IncomingQuery) -> Callable[[str], bytes]:
    """What finds the bytes of a signature in its header; empty bytes if there is none."""
    if query.algorithm == "sha256" and query.encoding == "auto" and query.prefix is None:
        return _signature
    size = _HASHES[query.algorithm]().digest_size
    optional, required = (f"{query.algorithm}=", "") if query.prefix is None else ("", query.prefix)

    def parse(text: str) -> bytes:
        if not text.startswith(required):
            return b""
        return _decode_signature(text[len(required) :].removeprefix(optional), size, query.encoding)

    return parse


def _decode_signature(text: str, size: int, encoding: str) -> bytes:
    try:
        if encoding != "base64" and len(text) == 2 * size:
            return bytes.fromhex(text)
        found = b64decode(text, validate=True) if encoding != "hex" else b""
    except (ValueError, binascii.Error):
        return b""
    return found if len(found) == size else b""


def _signature(text: str) -> bytes:
    """The bytes of `sha256=<hex>`, plain hex or base64; empty if it is none of them."""
    text = text.removeprefix("sha256=")
    try:
        if len(text) == _HEX:
            return bytes.fromhex(text)
        return b64decode(text, validate=True) if len(text) == _BASE64 else b""
    except (ValueError, binascii.Error):
        return b""


def _decode_leniently(request: Request) -> Any:
    try:
        return mended(request.body)
    except (ValueError, RecursionError):
        return _form(request)


def _form(request: Request) -> Any:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise Malformed("the body is neither JSON nor a form")
    try:
        fields = parse_qs(request.body.decode(), keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        raise Malformed("the body is not a valid form") from None
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _webhook(query: IncomingQuery, account: object, host: Host) -> Incoming:
    return Incoming(query) if query.payload_schema is None else CheckedIncoming(query)


def _destination(query: object, account: OutgoingQuery | None, host: Host) -> Outgoing:
    return Outgoing(account or OutgoingQuery(), host)


plugin = Plugin(
    kind="webhook",
    summary="Signed webhooks, incoming and outgoing",
    docs="reference/services/webhook.md",
    account=OutgoingQuery,
    webhook_query=IncomingQuery,
    webhook=_webhook,
    webhook_sample=sample,
    webhook_again=again,
    destination=_destination,
    identity="change",
    first="deliver",
)
