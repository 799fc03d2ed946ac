"""CloudEvents 1.0 over HTTP: attributes in headers (binary), the event as JSON (structured), or a list (batch).

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from harken.errors import Malformed
from harken.event import Event
from harken.kit.values_from_payload import instant
from harken.kit.webhook_body import json_in, media_type
from harken.source import Request

__all__ = ["MAX_BATCH", "STRUCTURED", "cloud_events"]

STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
MAX_BATCH = 5_000
"""Most events in one request: they are committed together."""
_PREFIX = "ce-"
_REQUIRED = ("id", "source", "type")


def cloud_events(request: Request) -> list[Event]:
    """The events of a request. Malformed if one of them is none; then none of them counts."""
    kind = media_type(request)
    if kind == BATCH:
        return _batch(request)
    if kind == STRUCTURED:
        value, raw = json_in(request.body)
        return [_event(value, raw)]
    if kind.startswith("application/cloudevents"):
        raise Malformed(f"only JSON can be read: {STRUCTURED} or {BATCH}")
    return [_event(_from_headers(request), b"")]


def _batch(request: Request) -> list[Event]:
    value, _ = json_in(request.body)
    if not isinstance(value, list):
        raise Malformed("the body is not a list of events")
    if len(value) > MAX_BATCH:
        raise Malformed(f"there are more than {MAX_BATCH:,} events in one request")
    return [_event(one, b"", f"event {number} of the batch: ") for number, one in enumerate(value, 1)]


def _from_headers(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = {
        name.removeprefix(_PREFIX): _text(value) for name, value in request.headers.items() if name.startswith(_PREFIX)
    }
    if content_type := request.headers.get("content-type"):
        found["datacontenttype"] = content_type
    found.pop("data", None)
    return found | _data(media_type(request), request.body)


def _text(value: str) -> str:
    # headers are decoded as latin-1, so this gives their bytes back
    return unquote(value.encode("latin-1", "backslashreplace").decode("utf-8", "replace"))


def _data(kind: str, body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    if kind in ("", "application/json", "text/json") or kind.endswith("+json"):
        value, raw = json_in(body)
        if value is not None or raw:
            return {"data": value}
        if kind:
            raise Malformed("the body is not the JSON that its content-type promises")
    if kind.startswith("text/"):
        try:
            return {"data": body.decode()}
        except UnicodeDecodeError:
            pass
    return {"data_base64": b64encode(body).decode()}


def _event(value: Any, raw: bytes, where: str = "") -> Event:
    if not isinstance(value, dict):
        raise Malformed(f"{where}it is not a CloudEvent: not a JSON object")
    if value.get("specversion") != "1.0":
        raise Malformed(f"{where}it is not a CloudEvent of version 1.0")
    for name in _REQUIRED:
        if not (isinstance(value.get(name), str) and value[name]):
            raise Malformed(f"{where}the CloudEvent has no {name}")
    at = instant(value.get("time"))
    if at is None and value.get("time") is not None:
        raise Malformed(f"{where}the time of the CloudEvent is not one")
    key, about = _key(value), value.get("subject")
    named = isinstance(about, str) and bool(about)
    return Event(
        subject=about if isinstance(about, str) and about else key,
        # several events may be about one subject: their ids tell them apart
        state=key if named else None,
        type=value["type"],
        data=value,
        key=key,
        occurred_at=at,
        raw=raw,
    )


def _key(value: Mapping[str, Any]) -> str:
    """What makes the event unique: its source, in which an address has no spaces, and its id there."""
    return f"{value['source'].replace(' ', '%20')} {value['id']}"
