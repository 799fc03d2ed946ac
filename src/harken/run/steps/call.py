"""Steps that reach out: http, notify and the services' own actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harken.errors import Misconfigured, NeedsAttention
from harken.http import Reply, raise_for
from harken.language.fields import fill
from harken.run.compiler import Compiler, Strict
from harken.run.execute import Frame
from harken.run.plan import Kind, Made, Shaped
from harken.source import Act, Call, Message

__all__ = ["ACTION", "HTTP", "NOTIFY"]

Status = int | Literal["2xx", "3xx", "4xx", "5xx"]
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_KEPT_HEADERS = ("content-type", "location", "etag", "retry-after", "x-request-id")


class HttpWords(Strict):
    url: str
    method: str = ""
    headers: dict[str, str] = Field(default_factory=dict)
    query: dict[str, Any] = Field(default_factory=dict)
    json_body: Any = Field(default=None, alias="json")
    body: str | None = None
    expect: Status | list[Status] | None = None
    allow_private_networks: bool = False

    @model_validator(mode="after")
    def _one_body(self) -> HttpWords:
        if self.body is not None and self.json_body is not None:
            raise ValueError("takes either json: or body:, not both")
        return self


class NotifyWords(Strict):
    channel: str
    to: str = ""
    text: str
    title: str = ""
    data: dict[str, Any] = Field(default_factory=dict)
    placeholders: Literal["template", "fields"] = "template"


class ActionWords(BaseModel):
    """The parameters of a service's action belong to the service."""

    model_config = ConfigDict(extra="allow", frozen=True)


def _http(params: HttpWords, builder: Compiler) -> Made:
    url, headers = builder.value(params.url, "url"), builder.value(params.headers, "headers")
    query, json = builder.value(params.query, "query"), builder.value(params.json_body, "json")
    body = builder.value(params.body, "body")
    has_body = params.json_body is not None or params.body is not None
    method = (params.method or ("POST" if has_body else "GET")).upper()
    expected = params.expect if isinstance(params.expect, list) else [params.expect or "2xx"]

    async def act(frame: Frame) -> Shaped:
        names = frame.names
        sent = {name: str(value) for name, value in headers(names).items()}
        if method not in _SAFE and not any(name.lower() == "idempotency-key" for name in sent):
            sent["Idempotency-Key"] = frame.key
        text = body(names)
        reply = await frame.reach.http.request(
            method,
            str(url(names)),
            headers=sent,
            params={name: value if isinstance(value, int) else str(value) for name, value in query(names).items()},
            json=json(names),
            data=None if text is None else _encoded(text),
            timeout=frame.step.timeout,
            allow_private=params.allow_private_networks,
        )
        _check(reply, expected)
        kept = {name: reply.headers[name] for name in _KEPT_HEADERS if name in reply.headers}
        return Shaped(_content(reply), {"status_code": reply.status, "headers": kept})

    return Made(act=act)


def _encoded(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else msgspec.json.encode(text)


def _check(reply: Reply, expected: list[Status]) -> None:
    if reply.status in expected or f"{reply.status // 100}xx" in expected:
        return
    raise_for(reply)
    raise NeedsAttention(f"the answer had status {reply.status}", fix="List it under expect: if it is fine")


def _content(reply: Reply) -> Any:
    kind = reply.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if reply.body and (kind == "application/json" or kind.endswith("+json")):
        return reply.json()
    return reply.text()


def _notify(params: NotifyWords, builder: Compiler) -> Made:
    channel, to = builder.value(params.channel, "channel"), builder.value(params.to, "to")
    text = _fields(params.text) if params.placeholders == "fields" else builder.prose(params.text, "text")
    title = builder.prose(params.title, "title")
    data = builder.value(params.data, "data")

    async def act(frame: Frame) -> Any:
        names = frame.names
        message = Message(
            to=str(to(names)),
            text=text(names, frame.warnings),
            title=title(names, frame.warnings),
            data=data(names),
            idempotency_key=frame.key,
        )
        return dict(await frame.reach.destination(str(channel(names))).deliver(message))

    return Made(act=act)


def _fields(template: str) -> Callable[[Mapping[str, Any], list[str]], str]:
    """Text with `{field}` placeholders over the event, and over the answers of the steps before by their ids."""

    def render(names: Mapping[str, Any], warnings: list[str]) -> str:
        answers = {step: known["response"] for step, known in names["steps"].items()}
        event = names["event"] if isinstance(names["event"], Mapping) else {}
        filled = fill(template, {**answers, **event})
        warnings.extend(f"the message has no value for {{{name}}}" for name in filled.unknown)
        return filled.text

    return render


def _action(params: ActionWords, builder: Compiler) -> Made:
    name = builder.action
    given = {key: builder.value(value, key) for key, value in (params.model_extra or {}).items()}

    async def act(frame: Frame) -> Any:
        verb, account, host = frame.reach.action(name)
        params = _fitting(verb, {key: value(frame.names) for key, value in given.items()}, name)
        call = Call(params=params, account=account, host=host, idempotency_key=frame.key)
        return _plain(await verb.run(call), name)

    return Made(act=act)


def _fitting(verb: Act, values: Mapping[str, Any], name: str) -> BaseModel:
    try:
        return verb.params.model_validate(values)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False)]
        raise Misconfigured(f"{name} cannot be called like that: {'; '.join(wrong)}") from None


def _plain(value: Any, name: str) -> Any:
    """What an action returns goes into the journal, so it must be JSON."""
    if isinstance(value, Mapping | list | str | int | float | None):
        try:
            return msgspec.json.decode(msgspec.json.encode(value))
        except (TypeError, ValueError, msgspec.MsgspecError):
            pass
    raise Misconfigured(f"{name} returned something that cannot be written down as JSON")


HTTP = Kind(name="http", params=HttpWords, build=_http, timeout=30.0, shaped=True)
NOTIFY = Kind(name="notify", params=NotifyWords, build=_notify, timeout=30.0)
ACTION = Kind(name="", params=ActionWords, build=_action, timeout=60.0)
