"""Compiles the YAML steps of a workflow into a plan and collects every problem with its place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harken.durations import parse_duration
from harken.errors import HarkenError, Misconfigured
from harken.language.cel import Condition, InvalidCondition, compile_condition
from harken.run.plan import OnError, Problem, Step, StepKind, Steps
from harken.run.retry import Retry
from harken.run.scope import Names, Resolve, compile_text, compile_value, reads_name, template_reads
from harken.suggest import suggest_quoted

__all__ = ["Actions", "Compiler", "Strict", "Use", "fill_inputs", "parse_inputs"]

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

Actions = Mapping[str, type[BaseModel]]
"""The parameters of each service action, by its full name."""


def _seconds(value: object) -> float:
    if isinstance(value, float):
        return value
    try:
        return parse_duration(value)
    except Misconfigured as error:
        raise ValueError(str(error)) from None


Duration = Annotated[float, BeforeValidator(_seconds)]


class Strict(BaseModel):
    """Base of what a person writes: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class RetryBlock(Strict):
    max_attempts: int = Field(default=3, ge=1, le=20)
    backoff: Duration = 1.0


class StepBlock(Strict):
    """The keys that every step takes beside those of its kind."""

    id: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")
    description: str | None = None
    when: str | bool | None = Field(default=None, alias="if")
    timeout: Duration | None = None
    retry: RetryBlock | None = None
    on_error: OnError = "fail"
    fallback: Any = None


_STEP_KEYS = tuple(field.alias or name for name, field in StepBlock.model_fields.items())

_TYPE_TAGS = ("list[", "dict[", "str", "int", "float", "bool", "function-", "constrained-", "json-or", "Mapping[")
"""How parts of a pydantic error's place begin that name a type instead of a key."""

_ALWAYS = compile_condition("true")

REPLAY = ("event", "replay")


class Use(NamedTuple):
    """What a step reaches beyond itself, by its name: one with a template is only known when the step runs."""

    kind: Literal["workflow", "channel", "action"]
    name: str


class Compiler:
    """Compiles at one `path` of a definition. Compilers made by `at` add to the same list of `problems`.

    `known_steps` are the ids of all steps, `step_reads` the ids that conditions and templates read, with their paths.
    `replay_reads` is empty if none of them reads `event.replay`.
    `uses` has the workflows, channels and actions of services that the steps name, at any depth.
    `needs_run`: something that was compiled depends on the run itself, and not only on its event and its steps.

    `action` and `timeout` are those of the step being compiled, for kinds that need them.
    """

    def __init__(
        self, kinds: Mapping[str, StepKind], actions: Actions | None, path: tuple[str | int, ...] = ()
    ) -> None:
        self.kinds = kinds
        self.actions = actions
        self.path = path
        self.problems: list[Problem] = []
        self.known_steps: set[str] = set()
        self.step_reads: list[tuple[tuple[str | int, ...], str]] = []
        self.replay_reads: list[tuple[str | int, ...]] = []
        self.uses: set[Use] = set()
        self._needs_run: list[tuple[str | int, ...]] = []
        self.action = ""
        self.timeout: float | None = None

    def at(self, *more: str | int) -> Compiler:
        """A compiler for a place below this one."""
        deeper = Compiler(self.kinds, self.actions, (*self.path, *more))
        deeper.problems, deeper.known_steps, deeper.step_reads = self.problems, self.known_steps, self.step_reads
        deeper.replay_reads, deeper.uses = self.replay_reads, self.uses
        deeper._needs_run = self._needs_run
        return deeper

    @property
    def needs_run(self) -> bool:
        return bool(self._needs_run)

    def note_run_needed(self) -> None:
        """What is compiled here depends on the run: on its id, or that it is committed."""
        self._needs_run.append(self.path)

    def problem(self, message: str, *more: str | int, suggestion: str = "", excerpt: str = "") -> None:
        """Note a problem here, or at the place below that `more` names."""
        found = Problem(path=(*self.path, *more), message=message, suggestion=suggestion, excerpt=excerpt)
        self.problems.append(found)

    def condition(self, source: str | bool, *more: str | int) -> Condition:
        text = source if isinstance(source, str) else str(source).lower()
        condition = self.or_problem(lambda: compile_condition(text), _ALWAYS, *more)
        self._note_reads((path for _, path in condition.reads), *more)
        if any(path[0] == "run" for _, path in condition.reads):
            self.note_run_needed()
        return condition

    def value(self, value: Any, *more: str | int) -> Resolve:
        """Compile a value with templates anywhere inside; types are kept, missing fields are errors."""
        otherwise: Resolve = _none
        compiled = self.or_problem(lambda: compile_value(value), otherwise, *more)
        if compiled is not otherwise:
            self._note_reads(template_reads(value), *more)
            if reads_name(value, "run"):
                self.note_run_needed()
        return compiled

    def text(self, source: str, *more: str | int) -> Callable[[Names, list[str]], str]:
        """Compile text for people and models; missing fields stay visible and add a warning."""
        known = len(self.problems)
        compiled = self.or_problem(lambda: compile_text(source), lambda names, warnings: "", *more)
        if len(self.problems) == known:
            self._note_reads(template_reads(source), *more)
            if reads_name(source, "run"):
                self.note_run_needed()
        return compiled

    def steps(self, steps: Any, *more: str | int) -> Steps:
        """Compile a list of steps, whose ids must be unique within it. Steps with problems are left out."""
        if not isinstance(steps, list):
            self.problem("must be a list of steps", *more)
            return ()
        compiled = [self.at(*more, position)._step(step, position + 1) for position, step in enumerate(steps)]
        seen: set[str] = set()
        for position, step in enumerate(compiled):
            if step is not None and step.id in seen:
                self.problem(f"a step before this one is called {step.id!r} too", *more, position, "id")
            if step is not None:
                seen.add(step.id)
        return tuple(step for step in compiled if step is not None)

    def note_unknown_steps(self) -> None:
        """Note a problem for each `steps.ID` that is read and that no step of the workflow has."""
        for path, name in dict.fromkeys(self.step_reads):
            if name not in self.known_steps:
                suggestion = suggest_quoted(name, self.known_steps)
                self.problems.append(Problem(path=path, message=f"there is no step {name!r}", suggestion=suggestion))

    def _note_reads(self, paths: Iterable[tuple[str | int, ...]], *more: str | int) -> None:
        paths = list(paths)
        self.replay_reads += [path for path in paths if path[:2] == REPLAY or path[:3] == ("trigger", *REPLAY)]
        read = [path[1] for path in paths if path[0] == "steps" and len(path) > 1]
        self.step_reads += [((*self.path, *more), name) for name in read if isinstance(name, str)]

    def or_problem(self, compile: Callable[[], T], otherwise: T, *more: str | int) -> T:
        """Return what `compile` returns, or note its error as a problem here and return `otherwise`."""
        try:
            return compile()
        except HarkenError as error:
            excerpt = error.excerpt if isinstance(error, InvalidCondition) else ""
            self.problem(error.message, *more, suggestion=error.fix, excerpt=excerpt)
            return otherwise

    def _step(self, given: Any, number: int) -> Step | None:
        if not isinstance(given, Mapping):
            self.problem("a step must be a mapping such as {action: http, url: …}")
            return None
        keys = _expand_if({str(key): value for key, value in given.items()})
        action = keys.get("action", keys.get("type"))
        self.known_steps.add(str(keys.get("id") or _default_id(str(action), number)))
        kind = self._kind(action, keys)
        if kind is None:
            return None
        common = {key: value for key, value in keys.items() if key in _STEP_KEYS}
        own = {key: value for key, value in keys.items() if key not in common and key not in _selectors(keys, kind)}
        block, params = self._validate(StepBlock, common), self._validate(kind.params, own, hint=_STEP_KEYS)
        self.action = str(action)
        if kind.name == "" and self.actions is not None:
            self._check_service_action(self.actions[self.action], own)
        if block is None or params is None:
            return None
        if block.on_error == "fallback" and "fallback" not in keys:
            self.problem("on_error: fallback needs a fallback: value", "on_error")
        return self._assemble(block, params, kind, number)

    def _assemble(self, block: StepBlock, params: BaseModel, kind: StepKind, number: int) -> Step:
        self.timeout = block.timeout
        compiled = kind.build(params, self)
        retry = Retry(max_attempts=block.retry.max_attempts, backoff=block.retry.backoff) if block.retry else Retry()
        return Step(
            id=block.id or _default_id(self.action, number),
            action=self.action,
            act=compiled.act,
            when=None if block.when is None else self.condition(block.when, "if"),
            timeout=None if kind.own_timeout else block.timeout or kind.timeout,
            retry=retry,
            on_error=block.on_error,
            fallback=self.value(block.fallback, "fallback") if block.on_error == "fallback" else None,
            pure=kind.pure,
            replays=kind.replays,
            instant=compiled.instant,
            detailed=kind.detailed,
        )

    def _kind(self, action: Any, keys: Mapping[str, Any]) -> StepKind | None:
        if not isinstance(action, str):
            named = ", ".join(sorted(name for name in self.kinds if name))
            self.problem("a step needs an action", suggestion=f"Add one of {named}, or KIND.ACTION")
            return None
        if action and action in self.kinds:
            return self.kinds[action]
        if "." in action and (self.actions is None or action in self.actions):
            return self.kinds[""]
        known = [*(name for name in self.kinds if name), *(self.actions or ())]
        key = "action" if "action" in keys else "type"
        self.problem(f"there is no action {action!r}", key, suggestion=suggest_quoted(action, known))
        return None

    def _validate(self, model: type[M], given: Mapping[str, Any], hint: Collection[str] = ()) -> M | None:
        try:
            return model.model_validate(given)
        except ValidationError as error:
            known = [field.alias or name for name, field in model.model_fields.items()]
            for found in error.errors(include_url=False, include_context=False):
                self._add_error(dict(found), [*known, *hint])
            return None

    def _add_error(self, found: Mapping[str, Any], known: Collection[str]) -> None:
        """Note one error of pydantic in our words."""
        place = tuple(part for part in found["loc"] if isinstance(part, int) or not part.startswith(_TYPE_TAGS))
        if found["type"] == "extra_forbidden":
            name = str(place[-1])
            self.problem(
                f"unknown key {name!r}", *place, suggestion=suggest_quoted(name, known) if len(place) == 1 else ""
            )
        elif found["type"] == "missing":
            self.problem("is missing", *place)
        else:
            self.problem(str(found["msg"]).removeprefix("Value error, "), *place)

    def _check_service_action(self, model: type[BaseModel], given: Mapping[str, Any]) -> None:
        """Check the parameters of a service's action. Values with templates are known only when the step runs."""
        if not _has_template(given):
            self._validate(model, given, hint=_STEP_KEYS)
            return
        known = {field.alias or name: field.is_required() for name, field in model.model_fields.items()}
        for key in given:
            if key not in known:
                self.problem(f"unknown key {key!r}", key, suggestion=suggest_quoted(key, [*known, *_STEP_KEYS]))
        for name, required in known.items():
            if required and name not in given:
                self.problem("is missing", name)


def _default_id(action: str, number: int) -> str:
    return f"{action.replace('.', '_')}_{number}"


def _has_template(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_has_template(inner) for inner in value.values())
    return any(map(_has_template, value)) if isinstance(value, list) else isinstance(value, str) and "{{" in value


def _expand_if(keys: dict[str, Any]) -> dict[str, Any]:
    """`{if: …, then: …, else: …}` without an action is an if step."""
    if "then" in keys and "if" in keys and not {"action", "type", "condition"} & set(keys):
        return {"action": "if", "condition": keys["if"], **{k: v for k, v in keys.items() if k != "if"}}
    return keys


def _selectors(keys: Mapping[str, Any], kind: StepKind) -> tuple[str, ...]:
    """The keys that name the action. Beside `action:`, a `type:` may be a parameter of the kind."""
    own_type = "type" in kind.params.model_fields or kind.name == ""
    return ("action",) if "action" in keys and own_type else ("action", "type")


def _none(names: Names) -> Any:
    return None


_INPUT_KEYS = ("type", "default", "required", "description")

_INPUT_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
    "any": lambda value: True,
}


def parse_inputs(declared: Any) -> tuple[dict[str, Mapping[str, Any]], list[Problem]]:
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
    return found, [problem for name, given in found.items() for problem in _check_input(name, given)]


def _declaration(given: Any) -> Mapping[str, Any]:
    is_declaration = isinstance(given, Mapping) and given and (set(given) <= set(_INPUT_KEYS) or "type" in given)
    return given if is_declaration else {"default": given}


def _check_input(name: str, given: Mapping[str, Any]) -> list[Problem]:
    problems = [
        Problem(
            path=("inputs", name, key), message=f"unknown key {key!r}", suggestion=suggest_quoted(str(key), _INPUT_KEYS)
        )
        for key in given
        if key not in _INPUT_KEYS
    ]
    kind = given.get("type", "any")
    if kind not in _INPUT_TYPES:
        message, suggestion = f"there is no input type {kind!r}", suggest_quoted(str(kind), _INPUT_TYPES)
        problems.append(Problem(path=("inputs", name, "type"), message=message, suggestion=suggestion))
    elif given.get("default") is not None and not _INPUT_TYPES[kind](given["default"]):
        problems.append(Problem(path=("inputs", name, "default"), message=f"the default must be of type {kind}"))
    return problems


def fill_inputs(declared: Mapping[str, Mapping[str, Any]], given: Any) -> Mapping[str, Any]:
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
        elif not _INPUT_TYPES[declaration.get("type", "any")](filled[name]):
            kind = declaration["type"]
            raise Misconfigured(f"input {name!r} must be of type {kind}, not {type(filled[name]).__name__}")
    return filled


def _default(name: str, declaration: Mapping[str, Any]) -> Any:
    if declaration.get("required") and declaration.get("default") is None:
        raise Misconfigured(
            f"input {name!r} is required", fix="Map it in the trigger's input_mapping, or give it a default"
        )
    return declaration.get("default")
