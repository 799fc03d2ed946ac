"""Build a plan from what a person wrote, and gather everything that is wrong with it on the way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harken.durations import parse_duration
from harken.errors import HarkenError, Misconfigured
from harken.language.cel.condition import Condition, compile_condition
from harken.run.plan import Block, Kind, OnError, Problem, Step
from harken.run.retry import Retry
from harken.run.scope import Names, Resolve, compile_value, prose
from harken.suggest import nearest

__all__ = ["Actions", "Builder", "Strict"]

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Actions = Mapping[str, type[BaseModel]]
"""What each action of a service takes, by its full name."""

_INNER_TAGS = ("list[", "dict[", "str", "int", "float", "bool", "function-", "constrained-", "json-or", "Mapping[")


def _seconds(value: object) -> float:
    if isinstance(value, float):
        return value
    try:
        return parse_duration(value)
    except Misconfigured as error:
        raise ValueError(str(error)) from None


Duration = Annotated[float, BeforeValidator(_seconds)]


class Strict(BaseModel):
    """What a person writes: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class RetryWords(Strict):
    max_attempts: int = Field(default=3, ge=1, le=20)
    backoff: Duration = 1.0


class Words(Strict):
    """What every step takes."""

    id: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")
    description: str | None = None
    when: str | bool | None = Field(default=None, alias="if")
    timeout: Duration | None = None
    retry: RetryWords | None = None
    on_error: OnError = "fail"
    fallback: Any = None


_WORDS = tuple(field.alias or name for name, field in Words.model_fields.items())


class Builder:
    """Builds at one place of a definition. Every `problem` of all places lands in one list."""

    def __init__(self, kinds: Mapping[str, Kind], actions: Actions | None, path: tuple[str | int, ...] = ()) -> None:
        self.kinds = kinds
        self.actions = actions
        self.path = path
        self.problems: list[Problem] = []
        self.action = ""
        self.timeout: float | None = None

    def at(self, *more: str | int) -> Builder:
        deeper = Builder(self.kinds, self.actions, (*self.path, *more))
        deeper.problems = self.problems
        return deeper

    def problem(self, message: str, *more: str | int, suggestion: str = "") -> None:
        self.problems.append(Problem(path=(*self.path, *more), message=message, suggestion=suggestion))

    def condition(self, source: str | bool, *more: str | int) -> Condition:
        text = source if isinstance(source, str) else str(source).lower()
        return self._tried(lambda: compile_condition(text), _ALWAYS, *more)

    def value(self, value: Any, *more: str | int) -> Resolve:
        """A value with templates anywhere inside; types are kept, missing fields are errors."""
        otherwise: Resolve = _nothing
        return self._tried(lambda: compile_value(value), otherwise, *more)

    def prose(self, source: str, *more: str | int) -> Callable[[Names, list[str]], str]:
        """Text for people and models; missing fields stay visible and warn."""
        return self._tried(lambda: prose(source), lambda names, warnings: "", *more)

    def block(self, steps: Any, *more: str | int) -> Block:
        """The steps of a list; ids are unique within it."""
        if not isinstance(steps, list):
            self.problem("must be a list of steps", *more)
            return ()
        built = [self.at(*more, position)._step(step, position + 1) for position, step in enumerate(steps)]
        found = [step for step in built if step is not None]
        seen: set[str] = set()
        for position, step in enumerate(built):
            if step is not None and step.id in seen:
                self.problem(f"a step before this one is called {step.id!r} too", *more, position, "id")
            if step is not None:
                seen.add(step.id)
        return tuple(found)

    def _tried(self, make: Callable[[], T], otherwise: T, *more: str | int) -> T:
        try:
            return make()
        except HarkenError as error:
            self.problem(error.message, *more, suggestion=error.fix)
            return otherwise

    def _step(self, given: Any, number: int) -> Step | None:
        if not isinstance(given, Mapping):
            self.problem("a step must be a mapping such as {action: http, url: …}")
            return None
        named = _shorthand({str(key): value for key, value in given.items()})
        action = named.get("action", named.get("type"))
        kind = self._kind(action, named)
        if kind is None:
            return None
        common = {key: value for key, value in named.items() if key in _WORDS}
        own = {key: value for key, value in named.items() if key not in common and key not in _selectors(named, kind)}
        words, params = self._validated(Words, common), self._validated(kind.params, own, hint=_WORDS)
        self.action = str(action)
        if kind.name == "" and self.actions is not None:
            self._check_act(self.actions[self.action], own)
        if words is None or params is None:
            return None
        if words.on_error == "fallback" and "fallback" not in named:
            self.problem("on_error: fallback needs a fallback: value", "on_error")
        return self._assembled(words, params, kind, number)

    def _assembled(self, words: Words, params: BaseModel, kind: Kind, number: int) -> Step:
        self.timeout = words.timeout
        made = kind.build(params, self)
        retry = Retry(max_attempts=words.retry.max_attempts, backoff=words.retry.backoff) if words.retry else Retry()
        return Step(
            id=words.id or f"{self.action.replace('.', '_')}_{number}",
            action=self.action,
            act=made.act,
            when=None if words.when is None else self.condition(words.when, "if"),
            timeout=None if kind.own_timeout else words.timeout or kind.timeout,
            retry=retry,
            on_error=words.on_error,
            fallback=self.value(words.fallback, "fallback") if words.on_error == "fallback" else None,
            pure=kind.pure,
            replays=kind.replays,
            instant=made.instant,
            shaped=kind.shaped,
        )

    def _kind(self, action: Any, named: Mapping[str, Any]) -> Kind | None:
        if not isinstance(action, str):
            self.problem("a step needs an action", suggestion=f"one of {', '.join(sorted(self.kinds))}, or KIND.ACTION")
            return None
        if action in self.kinds:
            return self.kinds[action]
        service = "." in action
        if service and (self.actions is None or action in self.actions):
            return self.kinds[""]
        known = [*(name for name in self.kinds if name), *(self.actions or ())]
        key = "action" if "action" in named else "type"
        self.problem(f"there is no action {action!r}", key, suggestion=nearest(action, known))
        return None

    def _validated(self, model: type[M], given: Mapping[str, Any], hint: Collection[str] = ()) -> M | None:
        try:
            return model.model_validate(given)
        except ValidationError as error:
            known = [field.alias or name for name, field in model.model_fields.items()]
            for found in error.errors(include_url=False, include_context=False):
                self._told(dict(found), [*known, *hint])
            return None

    def _check_act(self, model: type[BaseModel], given: Mapping[str, Any]) -> None:
        """What a service's action takes. Values that templates make are known only when the step runs."""
        if not _has_template(given):
            self._validated(model, given, hint=_WORDS)
            return
        known = {field.alias or name: field.is_required() for name, field in model.model_fields.items()}
        for key in given:
            if key not in known:
                self.problem(f"unknown key {key!r}", key, suggestion=nearest(key, [*known, *_WORDS]))
        for name, required in known.items():
            if required and name not in given:
                self.problem("is missing", name)

    def _told(self, found: Mapping[str, Any], known: Collection[str]) -> None:
        place = tuple(part for part in found["loc"] if isinstance(part, int) or not part.startswith(_INNER_TAGS))
        if found["type"] == "extra_forbidden":
            name = str(place[-1])
            self.problem(f"unknown key {name!r}", *place, suggestion=nearest(name, known) if len(place) == 1 else "")
        elif found["type"] == "missing":
            self.problem("is missing", *place)
        else:
            self.problem(str(found["msg"]).removeprefix("Value error, "), *place)


def _has_template(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_has_template(inner) for inner in value.values())
    return any(map(_has_template, value)) if isinstance(value, list) else isinstance(value, str) and "{{" in value


def _shorthand(given: dict[str, Any]) -> dict[str, Any]:
    """`{if: …, then: …, else: …}` without an action is an if step."""
    if "then" in given and "if" in given and not {"action", "type", "condition"} & set(given):
        return {"action": "if", "condition": given["if"], **{k: v for k, v in given.items() if k != "if"}}
    return given


def _selectors(named: Mapping[str, Any], kind: Kind) -> tuple[str, ...]:
    """The keys that name the action; beside action:, a kind may have a type: of its own."""
    own_type = "type" in kind.params.model_fields or kind.name == ""
    return ("action",) if "action" in named and own_type else ("action", "type")


def _nothing(names: Names) -> Any:
    return None


_ALWAYS = compile_condition("true")
