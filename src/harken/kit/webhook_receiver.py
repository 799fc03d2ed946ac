"""Webhooks of a known sender: its proof is checked over the raw bytes, then its message is translated into events.

A service writes two functions: `verify(request, secret)`, which raises Unauthorized, and `translate(sent)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec
from pydantic import AliasChoices, Field, SecretStr, field_validator

from harken.errors import Malformed
from harken.event import Event
from harken.kit.json_schema import JsonSchema
from harken.kit.models import QueryModel
from harken.kit.webhook_body import MAX_BYTES, json_in, object_in
from harken.kit.webhook_signatures import check_any
from harken.source import Host, Request, Sample

__all__ = [
    "LimitedQuery",
    "Receiver",
    "ReceiverQuery",
    "Sent",
    "Signer",
    "Verify",
    "make_receiver",
    "make_sample",
    "schema_check",
]

# longer names are shortened, so that they fit into an index
LONGEST_NAME = 400

Verify = Callable[[Request, str], None]
Signer = Callable[[str, bytes, datetime], Mapping[str, str]]
"""The headers that prove a body, with this secret and at this time."""


class LimitedQuery(QueryModel):
    """How much of a webhook is taken, whoever sends it, and what its payload must look like."""

    max_per_minute: int = Field(0, ge=0, description="most requests a minute that are taken; 0 for any number")
    payload_schema: dict[str, Any] | None = Field(
        None,
        validation_alias=AliasChoices("schema", "payload_schema"),
        description="JSON Schema of the payload; one that does not fit is refused",
    )

    @field_validator("payload_schema")
    @classmethod
    def _is_schema(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        schema_check(value)
        return value


class ReceiverQuery(LimitedQuery):
    """What a webhook of a known sender needs: the secret that it proves itself with."""

    secret: SecretStr | list[SecretStr] = Field(description="shared secret; a list while it is being changed")
    max_bytes: int = Field(MAX_BYTES, gt=0, description="largest body that is accepted")

    @field_validator("secret")
    @classmethod
    def _is_one(cls, value: SecretStr | list[SecretStr]) -> SecretStr | list[SecretStr]:
        given = value if isinstance(value, list) else [value]
        if not given or not all(one.get_secret_value().strip() for one in given):
            raise ValueError("the secret is empty, so anybody could send events")
        return value

    @property
    def secrets(self) -> list[str]:
        given = self.secret if isinstance(self.secret, list) else [self.secret]
        # a secret that was read from a file often ends with a line end
        return [one.get_secret_value().rstrip("\r\n") for one in given]


class Sent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request whose sender has proven itself. `raw` is the JSON of `data` if it can be stored as it came."""

    request: Request
    data: Mapping[str, Any]
    raw: bytes = b""

    def header(self, name: str) -> str:
        return self.request.headers.get(name, "")

    @property
    def digest(self) -> str:
        """Names a message without an id: whoever sends it again sends the same bytes."""
        return blake2b(self.request.body, digest_size=16).hexdigest()

    def event(self, *, type: str, key: str, subject: str = "", at: datetime | None = None) -> Event:
        """The event that this message is. `key` names it, `subject` what it is about."""
        key, subject = short_name(key), short_name(subject)
        return Event(
            subject=subject or key,
            # several events may be about one subject: their keys tell them apart
            state=key if subject else None,
            type=short_name(type),
            data=self.data,
            key=key,
            occurred_at=at,
            raw=self.raw,
        )


class Receiver:
    """Verifies a request with each secret, then translates it. Unauthorized means 401, Malformed 400."""

    def __init__(
        self,
        query: ReceiverQuery,
        verify: Verify,
        translate: Callable[[Sent], list[Event]],
        *,
        form_field: str = "",
    ) -> None:
        self._secrets = query.secrets
        self._verify = verify
        self._translate = translate
        self._form_field = form_field
        self.max_bytes = query.max_bytes
        self.max_per_minute = query.max_per_minute
        self._check_schema = schema_check(query.payload_schema)

    async def receive(self, request: Request) -> list[Event]:
        if len(request.body) > self.max_bytes:
            raise Malformed(f"the body is larger than {self.max_bytes:,} bytes")
        check_any(lambda secret: self._verify(request, secret), self._secrets)
        events = self._translate(self._sent(request))
        if self._check_schema is not None:
            self._check_schema(events)
        return events

    def _sent(self, request: Request) -> Sent:
        data, raw = json_in(request.body)
        if not isinstance(data, dict) and self._form_field:
            data, raw = object_in(request, form_field=self._form_field), b""
        if not isinstance(data, dict):
            raise Malformed("the body is not a JSON object")
        return Sent(request=request, data=data, raw=raw)


def schema_check(schema: Mapping[str, Any] | None) -> Callable[[Sequence[Event]], None] | None:
    """What raises Malformed unless the data of each event fits the schema; None without one."""
    if schema is None:
        return None
    compiled = JsonSchema(schema)

    def check(events: Sequence[Event]) -> None:
        for event in events:
            if problem := compiled.problem(event.data):
                raise Malformed(f"it does not fit its schema: {problem}")

    return check


def make_receiver(
    verify: Verify, translate: Callable[[Sent], list[Event]], *, form_field: str = ""
) -> Callable[[ReceiverQuery, object, Host], Receiver]:
    """What a plugin has as its `webhook`."""
    return lambda query, account, host: Receiver(query, verify, translate, form_field=form_field)


def make_sample(message: Mapping[str, Any], sign: Signer) -> Callable[[ReceiverQuery, datetime], Sample]:
    """What a plugin has as its `webhook_sample`: `$ID` in the message is another one each time."""

    def sample(query: ReceiverQuery, now: datetime) -> Sample:
        id = f"sample-{int(now.timestamp() * 1e6)}"
        body = msgspec.json.encode(message).replace(b"$ID", id.encode())
        headers = {"Content-Type": "application/json", **sign(query.secrets[0], body, now)}
        return Sample(headers={name: text.replace("$ID", id) for name, text in headers.items()}, body=body)

    return sample


def short_name(text: str) -> str:
    """A name that fits into an index; of a longer one the beginning and a digest."""
    if len(text) <= LONGEST_NAME:
        return text
    return f"{text[:LONGEST_NAME]}…{blake2b(text.encode(), digest_size=8).hexdigest()}"
