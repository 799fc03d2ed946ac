"""Stand-ins of everything that steps do outside: each call is written down, and answered as the case says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from harken.clock import Clock
from harken.config.loaded import Loaded
from harken.errors import NeedsAttention, NotFound, RetryLater
from harken.http import Reply
from harken.http.known_secret_redaction import scrub
from harken.operate.language_models import models_of
from harken.run.execute import Frame
from harken.run.language_models import ECHO, Models
from harken.run.language_models import Answer as ModelAnswer
from harken.run.plan import CompiledAct, DetailedOutput, StepKind
from harken.run.services_given_to_steps import Environment
from harken.run.steps import KINDS
from harken.source import Act, Call, Destination, Host, Message, Plugin

__all__ = ["Answer", "Effect", "Effects", "stand_in_kinds"]

_PROGRAMS = ("agent", "python", "shell")
_step_key: ContextVar[str] = ContextVar("step_key", default="")
"""The key of the step whose act is under way: models and the http client are not told it."""
_SHELL = {"exit_code": 0, "stderr": "", "truncated": False}


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a step would have done outside. `key` is the idempotency key: run and place of the step."""

    action: str
    given: Mapping[str, Any]
    key: str

    @property
    def step(self) -> str:
        return self.key.partition(":")[2]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a stand-in answers to the calls of an action or of a step: a value or an error, so many times."""

    action: str = ""
    step: str = ""
    answer: Any = msgspec.UNSET
    status: int = 200
    error: str = ""
    retry_after: float | None = None
    times: int = 0


@dataclass
class Effects:
    """Everything outside. `did` has each call in its order; `secrets` are kept out of it."""

    clock: Clock
    answers: Sequence[Answer] = ()
    secrets: frozenset[str] = frozenset()
    did: list[Effect] = field(default_factory=list)
    _used: Counter[int] = field(default_factory=Counter)

    def call(self, action: str, given: Mapping[str, Any], key: str) -> Answer | None:
        """Write the call down. Return the answer that was scripted for it, if there is one; raise if it is an error."""
        effect = Effect(action=action, given=scrub(dict(given), self.secrets), key=key)
        self.did.append(effect)
        for number, answer in enumerate(self.answers):
            fits = answer.action in ("", action) and answer.step in ("", effect.step)
            if fits and (not answer.times or self._used[number] < answer.times):
                self._used[number] += 1
                _raise_scripted(answer, action)
                return answer
        return None

    def environment(self, loaded: Loaded, plugins: Mapping[str, Plugin], random: Random) -> Environment:
        """What steps may touch: nothing but these stand-ins. What the configuration does not have is not found."""
        outside = _Outside(self, loaded, plugins)
        http: Any = outside
        models: Any = _StandInModels(self, models_of(loaded))
        return Environment(
            http=http,
            clock=self.clock,
            random=random,
            models=models,
            destination=outside.destination,
            action=outside.action,
            workflow_rev=lambda name: flow.rev if (flow := loaded.workflows.get(name)) else None,
            allow_shell=loaded.settings.steps.allow_shell,
            redact=lambda value: scrub(value, self.secrets),
        )


def _raise_scripted(answer: Answer, action: str) -> None:
    if not answer.error:
        return
    if answer.error == "429":
        raise RetryLater(f"{action} answered 429", after=answer.retry_after, reason="rate_limited")
    if answer.error in ("401", "403"):
        raise NeedsAttention(f"{action} answered {answer.error}", fix="Check the token")
    raise RetryLater(f"{action} answered {answer.error}", after=answer.retry_after)


class _Outside:
    def __init__(self, effects: Effects, loaded: Loaded, plugins: Mapping[str, Plugin]) -> None:
        self._effects = effects
        self._loaded = loaded
        self._plugins = plugins

    async def request(self, method: str, url: URL, **options: Any) -> Reply:
        """Answer the request of an http step."""
        names = ("params", "json", "data")
        given = {"method": method, "url": str(url)} | {name: options[name] for name in names if options.get(name)}
        if isinstance(data := given.pop("data", None), bytes):
            given["body"] = data.decode("utf-8", "replace")
        scripted = self._effects.call("http", given, _step_key.get())
        value: Any = {} if scripted is None or scripted.answer is msgspec.UNSET else scripted.answer
        text = isinstance(value, str)
        headers = CIMultiDictProxy(CIMultiDict({"Content-Type": "text/plain" if text else "application/json"}))
        body = value.encode() if text else msgspec.json.encode(value)
        return Reply(method, url, scripted.status if scripted else 200, headers, body, self._effects.clock.time())

    def destination(self, channel: str) -> Destination:
        plugin = self._plugin(channel)
        if plugin.destination is None:
            raise NotFound(f"{channel} cannot deliver messages", fix="Use a channel such as webhook")
        return _StandInDestination(self._effects, channel)

    def action(self, name: str) -> tuple[Act, Any, Host]:
        channel, _, verb = name.rpartition(".")
        plugin = self._plugin(channel)
        if verb not in plugin.actions:
            known = ", ".join(plugin.actions) or "none"
            raise NotFound(f"{channel} has no action {verb!r}", fix=f"It has: {known}")

        async def run(call: Call) -> Any:
            given = call.params.model_dump(mode="json", exclude_none=True)
            return _value(self._effects.call(name, given, call.idempotency_key))

        nothing: Any = None
        return replace(plugin.actions[verb], run=run), None, nothing

    def _plugin(self, name: str) -> Plugin:
        account = self._loaded.integrations.get(name)
        plugin = self._plugins.get(account.kind if account else name)
        if plugin is None:
            raise NotFound(f"there is no integration {name!r}", fix="See: harken integrations list")
        return plugin


def _value(scripted: Answer | None) -> Any:
    return {"ok": True} if scripted is None or scripted.answer is msgspec.UNSET else scripted.answer


class _StandInDestination:
    def __init__(self, effects: Effects, channel: str) -> None:
        self._effects = effects
        self._channel = channel

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        given: dict[str, Any] = {
            "channel": self._channel,
            "to": message.to,
            "title": message.title,
            "text": message.text,
        }
        given |= {"data": dict(message.data)} if message.data else {}
        shown = {name: value for name, value in given.items() if value}
        answer = _value(self._effects.call("notify", shown, message.idempotency_key))
        return answer if isinstance(answer, Mapping) else {"response": answer}


class _StandInModels:
    """Models that are never asked: they answer as scripted, or with the prompt in the form of the schema."""

    def __init__(self, effects: Effects, real: Models) -> None:
        self._effects = effects
        self._real = real
        self.cost, self.has_usd_limit = real.cost, real.has_usd_limit

    async def ask(
        self, name: str, prompt: str, *, schema: Mapping[str, Any] | None = None, **limits: Any
    ) -> ModelAnswer:
        model = self._real.resolve(name)
        scripted = self._effects.call("llm", {"prompt": prompt}, _step_key.get())
        echo = await self._real.ask(ECHO, prompt, schema=schema)
        if scripted is None or scripted.answer is msgspec.UNSET:
            return msgspec.structs.replace(echo, model=model)
        text = scripted.answer if isinstance(scripted.answer, str) else msgspec.json.encode(scripted.answer).decode()
        return ModelAnswer(model=model, text=text, data=scripted.answer if schema else None, usage=echo.usage)


def stand_in_kinds(effects: Callable[[], Effects]) -> Mapping[str, StepKind]:
    """The kinds of steps, with stand-ins for those that start programs or write on tickets."""
    replaced = {
        name: _stand_in(kind, effects)
        for name, kind in KINDS.items()
        if name in _PROGRAMS or name.startswith("ticket.")
    }
    return {**KINDS, **{name: _keyed(KINDS[name]) for name in ("http", "llm")}, **replaced}


def _keyed(kind: StepKind) -> StepKind:
    """The same kind; what it calls outside can be told by the step."""

    def build(params: Any, compiler: Any) -> CompiledAct:
        inner = kind.build(params, compiler)

        async def act(frame: Frame) -> Any:
            before = _step_key.set(frame.key)
            try:
                return await inner.act(frame)
            finally:
                _step_key.reset(before)

        return replace(inner, act=act)

    return replace(kind, build=build)


def _stand_in(kind: StepKind, effects: Callable[[], Effects]) -> StepKind:
    def build(params: Any, compiler: Any) -> CompiledAct:
        # problems in the parameters are found as always
        kind.build(params, compiler)
        written = params.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        # code is no template
        code = {name: written.pop(name) for name in ("code",) if kind.name == "python"}
        resolve = compiler.value(written)

        async def act(frame: Frame) -> Any:
            frame.input = given = {**code, **resolve(frame.names)}
            scripted = effects().call(kind.name, given, frame.key)
            if not kind.detailed:
                return _value(scripted)
            answer = "" if scripted is None or scripted.answer is msgspec.UNSET else scripted.answer
            return DetailedOutput(answer, _SHELL if kind.name == "shell" else {})

        return CompiledAct(act=act)

    return replace(kind, build=build)
