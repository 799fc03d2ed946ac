"""Steps that call something outside: http, notify and the services' actions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harken.errors import Misconfigured, NeedsAttention
from harken.http import Reply, raise_for
from harken.language.go_template import Template, compile_template
from harken.language.message_placeholders import fill
from harken.run.compiler import Compiler, Strict, Use
from harken.run.execute import Frame
from harken.run.plan import CompiledAct, DetailedOutput, StepKind
from harken.run.scope import Resolve
from harken.run.url_template import UNNAMED_HOST, UNNAMED_HOST_FIX, compile_url, has_credentials
from harken.source import Act, Call, Message

__all__ = ["ACTION", "HTTP", "NOTIFY"]

Status = int | Literal["2xx", "3xx", "4xx", "5xx"]
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_GO_ACTION = re.compile(r"\{\{-?\s*(?:[.$(]|/\*|(?:if|range|with)\s|[A-Za-z]+\s+[.$(\"`])")
_KEPT_HEADERS = ("content-type", "location", "etag", "retry-after", "x-request-id")


class HttpBlock(Strict):
    url: str
    method: str = ""
    headers: dict[str, str] = Field(default_factory=dict)
    query: dict[str, Any] = Field(default_factory=dict)
    json_body: Any = Field(default=None, alias="json")
    body: str | None = None
    expect: Status | list[Status] | None = None
    allow_private_networks: bool = False

    @model_validator(mode="after")
    def _one_body(self) -> HttpBlock:
        if self.body is not None and self.json_body is not None:
            raise ValueError("takes either json: or body:, not both")
        return self


class NotifyBlock(Strict):
    channel: str
    to: str = ""
    text: str
    title: str = ""
    data: dict[str, Any] = Field(default_factory=dict)
    placeholders: Literal["template", "fields"] = "template"


class ActionBlock(BaseModel):
    """The parameters of a service's action belong to the service."""

    model_config = ConfigDict(extra="allow", frozen=True)


def _http(params: HttpBlock, compiler: Compiler) -> CompiledAct:
    url, headers = compile_url(params.url, compiler, "url"), compiler.value(params.headers, "headers")
    if not url.literal_host and has_credentials(params.url, params.headers, params.query):
        compiler.problem(UNNAMED_HOST, "url", suggestion=UNNAMED_HOST_FIX)
    query, json = compiler.value(params.query, "query"), compiler.value(params.json_body, "json")
    body = compiler.value(params.body, "body")
    has_body = params.json_body is not None or params.body is not None
    method = (params.method or ("POST" if has_body else "GET")).upper()
    expected = params.expect if isinstance(params.expect, list) else [params.expect or "2xx"]

    async def act(frame: Frame) -> DetailedOutput:
        names = frame.names
        sent = {name: str(value) for name, value in headers(names).items()}
        if method not in _SAFE and not any(name.lower() == "idempotency-key" for name in sent):
            sent["Idempotency-Key"] = frame.key
        text, address, sent_json = body(names), url.render(names), json(names)
        asked = {name: value if isinstance(value, int) else str(value) for name, value in query(names).items()}
        # without the values of headers, which are where credentials are
        given = {
            "method": method,
            "url": str(address),
            "headers": list(sent),
            "query": asked,
            "json": sent_json,
            "body": text,
        }
        frame.input = {name: value for name, value in given.items() if value not in (None, {}, [])}
        reply = await frame.environment.http.request(
            method,
            address,
            headers=sent,
            params=asked,
            json=sent_json,
            data=None if text is None else _encode(text),
            timeout=frame.step.timeout,
            allow_private=params.allow_private_networks,
        )
        _check_status(reply, expected)
        kept = {name: reply.headers[name] for name in _KEPT_HEADERS if name in reply.headers}
        return DetailedOutput(_parse_body(reply), {"status_code": reply.status, "headers": kept})

    return CompiledAct(act=act)


def _encode(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else msgspec.json.encode(text)


def _check_status(reply: Reply, expected: list[Status]) -> None:
    if reply.status in expected or f"{reply.status // 100}xx" in expected:
        return
    raise_for(reply)
    raise NeedsAttention(f"the answer had status {reply.status}", fix="List it under expect: if it is fine")


def _parse_body(reply: Reply) -> Any:
    kind = reply.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if reply.body and (kind == "application/json" or kind.endswith("+json")):
        return reply.json()
    return reply.text()


def _notify(params: NotifyBlock, compiler: Compiler) -> CompiledAct:
    compiler.uses.add(Use("channel", params.channel))
    channel, to = compiler.value(params.channel, "channel"), _compile_to(params.to, compiler)
    text = (
        _fields_text(params.text, compiler) if params.placeholders == "fields" else compiler.text(params.text, "text")
    )
    title = compiler.text(params.title, "title")
    data = compiler.value(params.data, "data")

    async def act(frame: Frame) -> Any:
        names = frame.names
        message = Message(
            to=str(to(names)),
            text=text(names, frame.warnings),
            title=title(names, frame.warnings),
            data=data(names),
            idempotency_key=frame.key,
        )
        where = str(channel(names))
        given = {"channel": where, "to": message.to, "title": message.title, "text": message.text, "data": message.data}
        frame.input = {name: value for name, value in given.items() if value not in ("", None, {})}
        return dict(await frame.environment.destination(where).deliver(message))

    return CompiledAct(act=act)


def _compile_to(to: str, compiler: Compiler) -> Resolve:
    """A recipient that is written as a web address is treated as that of an http step."""
    address = to.lower().startswith(("http://", "https://"))
    return compile_url(to, compiler, "to").render if address else compiler.value(to, "to")


def _fields_text(source: str, compiler: Compiler) -> Callable[[Mapping[str, Any], list[str]], str]:
    """Compile text with `{field}` placeholders: fields of the event, or the response of an earlier step by its id.

    Templates such as `{{.trigger.event.title}}` may stand beside them. Neither looks at the values of the other.
    """
    template = compiler.or_problem(lambda: _template_in(source), None, "text")

    def render(names: Mapping[str, Any], warnings: list[str]) -> str:
        answers = {step: known["response"] for step, known in names["steps"].items()}
        event = names["event"] if isinstance(names["event"], Mapping) else {}
        values = {**answers, **event}

        def fill_literal(text: str) -> str:
            filled = fill(text, values)
            warnings.extend(f"the message has no value for {{{name}}}" for name in filled.unknown)
            return filled.text

        if template is None:
            return fill_literal(source)
        rendered = template.render(names, fill_literal)
        warnings.extend(rendered.warnings)
        return rendered.text

    return render


def _template_in(source: str) -> Template | None:
    # {{title}} was a {field} between braces before there were templates here, and stays one
    return compile_template(source) if _GO_ACTION.search(source) else None


def _action(params: ActionBlock, compiler: Compiler) -> CompiledAct:
    name = compiler.action
    compiler.uses.add(Use("action", name))
    given = {key: compiler.value(value, key) for key, value in (params.model_extra or {}).items()}

    async def act(frame: Frame) -> Any:
        action, account, host = frame.environment.action(name)
        frame.input = values = {key: value(frame.names) for key, value in given.items()}
        params = _validate(action, values, name)
        call = Call(params=params, account=account, host=host, idempotency_key=frame.key)
        return _expect_json(await action.run(call), name)

    return CompiledAct(act=act)


def _validate(action: Act, values: Mapping[str, Any], name: str) -> BaseModel:
    try:
        return action.params.model_validate(values)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False)]
        raise Misconfigured(f"{name} cannot be called like that: {'; '.join(wrong)}") from None


def _expect_json(value: Any, name: str) -> Any:
    """Return the value as plain JSON, because it is stored in the journal; raises Misconfigured."""
    if isinstance(value, Mapping | list | str | int | float | None):
        try:
            return msgspec.json.decode(msgspec.json.encode(value))
        except (TypeError, ValueError, msgspec.MsgspecError):
            pass
    raise Misconfigured(f"{name} returned something that cannot be written down as JSON")


HTTP = StepKind(name="http", params=HttpBlock, build=_http, timeout=30.0, detailed=True)
NOTIFY = StepKind(name="notify", params=NotifyBlock, build=_notify, timeout=30.0)
ACTION = StepKind(name="", params=ActionBlock, build=_action, timeout=60.0)
