"""Compile the steps that a person wrote into a plan, and collect every problem with its place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harken.durations import parse_duration
from harken.errors import HarkenError, Misconfigured
from harken.language.cel import Condition, compile_condition
from harken.run.plan import Block, Kind, OnError, Problem, Step
from harken.run.retry import Retry
from harken.run.scope import Names, Resolve, compile_value, prose
from harken.suggest import suggest_quoted

__all__ = ["Actions", "Compiler", "Strict", "declared_inputs", "given_inputs"]


_KEYS = ("type", "default", "required", "description")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
    "any": lambda value: True,
}


def declared_inputs(declared: Any) -> tuple[dict[str, Mapping[str, Any]], list[Problem]]:
    """Read `inputs:` as a list of required names, a mapping of declarations, or a mapping of defaults."""
    if declared is None:
        return {}, []
    if isinstance(declared, list):
        names = {str(name): {"required": True} for name in declared if isinstance(name, str)}
        wrong = [at for at, name in enumerate(declared) if not isinstance(name, str)]
        return dict(names), [Problem(path=("inputs", at), message="an input's name must be text") for at in wrong]
    if not isinstance(declared, Mapping):
        return {}, [Problem(path=("inputs",), message="inputs must be a list of names or a mapping")]
    found = {str(name): _declaration(given) for name, given in declared.items()}
    return found, [problem for name, given in found.items() for problem in _check(name, given)]


def _declaration(given: Any) -> Mapping[str, Any]:
    is_declaration = isinstance(given, Mapping) and given and (set(given) <= set(_KEYS) or "type" in given)
    return given if is_declaration else {"default": given}


def _check(name: str, given: Mapping[str, Any]) -> list[Problem]:
    problems = [
        Problem(path=("inputs", name, key), message=f"unknown key {key!r}", suggestion=suggest_quoted(str(key), _KEYS))
        for key in given
        if key not in _KEYS
    ]
    kind = given.get("type", "any")
    if kind not in _TYPES:
        message = f"there is no input type {kind!r}"
        problems.append(
            Problem(path=("inputs", name, "type"), message=message, suggestion=suggest_quoted(str(kind), _TYPES))
        )
    elif given.get("default") is not None and not _TYPES[kind](given["default"]):
        problems.append(Problem(path=("inputs", name, "default"), message=f"the default must be of type {kind}"))
    return problems


def given_inputs(declared: Mapping[str, Mapping[str, Any]], given: Any) -> Mapping[str, Any]:
    """The inputs of a run with defaults filled in; raises Misconfigured for one that is missing or of another type."""
    if given is not None and not isinstance(given, Mapping):
        raise Misconfigured("the input of a run must be a mapping of names to values")
    known: Mapping[str, Any] = given or {}
    if not declared:
        return known
    filled = dict(known)
    for name, declaration in declared.items():
        if filled.get(name) is None:
            filled[name] = _default(name, declaration)
        elif not _TYPES[declaration.get("type", "any")](filled[name]):
            kind = declaration["type"]
            raise Misconfigured(f"input {name!r} must be of type {kind}, not {type(filled[name]).__name__}")
    return filled


def _default(name: str, declaration: Mapping[str, Any]) -> Any:
    if declaration.get("required") and declaration.get("default") is None:
        raise Misconfigured(
            f"input {name!r} is required", fix="Map it in the trigger's input_mapping, or give it a default"
        )
    return declaration.get("default")


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


class Compiler:
    """Builds at one place of a definition. Every `problem` of all places lands in one list."""

    def __init__(self, kinds: Mapping[str, Kind], actions: Actions | None, path: tuple[str | int, ...] = ()) -> None:
        self.kinds = kinds
        self.actions = actions
        self.path = path
        self.problems: list[Problem] = []
        self.action = ""
        self.timeout: float | None = None

    def at(self, *more: str | int) -> Compiler:
        deeper = Compiler(self.kinds, self.actions, (*self.path, *more))
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
        self.problem(f"there is no action {action!r}", key, suggestion=suggest_quoted(action, known))
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
                self.problem(f"unknown key {key!r}", key, suggestion=suggest_quoted(key, [*known, *_WORDS]))
        for name, required in known.items():
            if required and name not in given:
                self.problem("is missing", name)

    def _told(self, found: Mapping[str, Any], known: Collection[str]) -> None:
        place = tuple(part for part in found["loc"] if isinstance(part, int) or not part.startswith(_INNER_TAGS))
        if found["type"] == "extra_forbidden":
            name = str(place[-1])
            self.problem(
                f"unknown key {name!r}", *place, suggestion=suggest_quoted(name, known) if len(place) == 1 else ""
            )
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
