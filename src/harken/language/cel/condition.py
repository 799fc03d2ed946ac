"""CEL conditions: compile once, evaluate for every event, and tell false from an error.

The CEL library returns errors as values that are true in Python, cuts text at a NUL, and crashes on deep nesting: this
file hides that. Only the parts of an event that conditions read are converted, because converting costs more than
evaluating; what is plain is decided without CEL (see fast_path.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

from harken.errors import Misconfigured, Refused
from harken.language.cel import explain
from harken.language.cel.compile_errors import to_misconfigured
from harken.language.cel.cost import ITERATIONS, Cost
from harken.language.cel.fast_path import Convertibles, Plain, PlainValues, compile_plain
from harken.language.cel.parser import Node, Path, parse, paths
from harken.language.cel.python_to_cel_values import clean, is_plain
from harken.language.json_kinds import kind_of

__all__ = [
    "Bound",
    "Clause",
    "Condition",
    "Decision",
    "Key",
    "Needs",
    "Outcome",
    "bind",
    "compile_condition",
    "compile_key",
    "needs_of",
]

LONGEST = 4096
COMMON = ("event", "meta", "trigger", "inputs", "steps", "run")
VARIABLES = (*COMMON, "item", "index")
OCCURRED_AT = "meta.occurred_at"
# errors of converting a value to CEL, not of the condition
_UNCONVERTED = ("Non-CEL value type", "out of range for '", "Invalid map key type")
Outcome = Literal["true", "false", "error"]
# the fields to select below each field; None selects everything
_Tree = dict[str, "_Tree | None"]
_environment = cel.NewEnv(
    variables={**dict.fromkeys(VARIABLES, cel.Type.DYN), OCCURRED_AT: cel.Type.TIMESTAMP},
    extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a condition for an event; `reason` is empty when it is true."""

    outcome: Outcome
    reason: str = ""


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a condition, evaluated alone, with the values it read; None for a missing one."""

    source: str
    outcome: Outcome
    reason: str
    values: dict[str, str | None]


TRUE = Decision(outcome="true")
_OUTCOMES: Mapping[bool, tuple[Outcome, str]] = {True: ("true", ""), False: ("false", "")}


def compile_condition(source: str) -> Condition:
    """Return the condition, or raise Misconfigured with the position and what to write instead."""
    return _compile(source, "condition", _check_bool)


def compile_key(source: str) -> Key:
    """Return the expression whose value is a key, or raise Misconfigured as `compile_condition` does."""
    expression = _compile(source, "expression", _check_scalar)
    if not expression.reads:
        raise Misconfigured("it is the same for every event", fix="Read a field of the event, such as event.id")
    return Key(expression)


def _compile(source: str, what: str, check_type: Callable[[Any], None]) -> Condition:
    if len(source) > LONGEST:
        raise Misconfigured(f"the {what} is {len(source)} characters long; at most {LONGEST} are allowed")
    if not source.strip():
        raise Misconfigured(f"the {what} is empty")
    if not is_plain(source):
        raise Misconfigured(f"the {what} holds characters that are not text")
    try:
        expression = _environment.compile(source)
    except (RuntimeError, ValueError) as error:
        raise to_misconfigured(source, str(error), COMMON) from error
    check_type(expression.return_type())
    tree = parse(source)
    cost = Cost(tree)
    if cost.impossible:
        raise Misconfigured(
            f"the {what} can read or build too much text",
            fix=f"Loops run {ITERATIONS} times at most: move replace, join, format and + out of them",
        )
    condition = Condition(source, expression, tree, cost)
    explain.check_patterns(condition)
    return condition


def _check_scalar(result: Any) -> None:
    if result not in (cel.Type.BOOL, cel.Type.DYN, cel.Type.STRING, cel.Type.INT, cel.Type.UINT, cel.Type.DOUBLE):
        kind = explain.with_article(str(result.name()).lower())
        raise Misconfigured(f"the expression gives {kind}, not a text or a number", fix="Join several texts with +")


def _check_bool(result: Any) -> None:
    if result not in (cel.Type.BOOL, cel.Type.DYN):
        kind = explain.with_article(str(result.name()).lower())
        raise Misconfigured(f"the condition gives {kind}, not true or false", fix="Compare it with something")


def needs_of(conditions: Iterable[Condition]) -> Needs:
    """Return what several conditions read, so that an event is converted once for all of them."""
    members = frozenset(conditions)
    return Needs(_read_tree(path for condition in members for _, path in condition.reads), members)


def bind(variables: Mapping[str, Any], needs: Needs | None = None) -> Bound:
    """Return an event that conditions can be evaluated on. `trigger.event` is the event when no trigger is given."""
    if "trigger" not in variables and "event" in variables:
        variables = {**variables, "trigger": {"event": variables["event"]}}
    return Bound(variables, needs)


class Condition:
    """A compiled condition. `decide` never raises because of an event: the decision is then an `error`."""

    __slots__ = ("_clauses", "_cost", "_expression", "_plain", "label", "needs", "reads", "source", "tree", "whole")

    def __init__(self, source: str, expression: Any, tree: Node, cost: Cost, whole: Condition | None = None) -> None:
        self.source = source
        self.tree = tree
        self._expression = expression
        self._cost = cost
        self._clauses: dict[tuple[int, int], Condition] = {}
        found = dict.fromkeys(paths(tree))
        self.reads = tuple((explain.format_path(path), path) for path in found)
        self.label = explain.shorten(" ".join(source.split()))
        # a clause is refused the events that the whole condition is refused
        self.whole: Condition = whole or self
        self.needs: Needs = whole.needs if whole else Needs(_read_tree(found))
        given = tuple(path for _, path in self.whole.reads)
        self._plain: Plain | None = compile_plain(source, tree, given) if cost.unlimited else None

    def decide(self, bound: Bound) -> Decision:
        """Return whether the condition is true for the event, and if not, which clause decided with which values."""
        decided = self._plain(bound) if self._plain is not None else None
        if decided is None:
            outcome, message = self.evaluate(bound)
        else:
            outcome, message = _OUTCOMES[decided]
        if outcome == "true":
            return TRUE
        return Decision(outcome=outcome, reason=explain.explain_outcome(self, bound, outcome, message))

    def explain(self, bound: Bound) -> list[Clause]:
        """Return each clause of the condition, evaluated alone, in the order of the source."""
        return [clause.judge(bound) for clause in explain.clauses(self)]

    def judge(self, bound: Bound) -> Clause:
        outcome, value = self.outcome(bound)
        reason = "" if outcome == "true" else explain.explain_outcome(self, bound, outcome, value)
        return Clause(source=self.source, outcome=outcome, reason=reason, values=explain.values(self, bound.variables))

    def outcome(self, bound: Bound) -> tuple[Outcome, str]:
        """Return the outcome, with CEL's message if it is an error."""
        if self._plain is not None:
            decided = self._plain(bound)
            if decided is not None:
                return _OUTCOMES[decided]
        return self.evaluate(bound)

    def evaluate(self, bound: Bound) -> tuple[Outcome, str]:
        """As `outcome`, always by CEL."""
        try:
            if not self._cost.unlimited and not self._cost.allows(bound.select(self.needs)):
                return "error", "REFUSED: the event holds too much for the work that this condition does on it"
            result = self._expression.eval(bound.activation(self))
            value = result.value()
        except (Refused, RecursionError) as error:
            return (
                "error",
                f"REFUSED: {error.message if isinstance(error, Refused) else 'the event is nested too deep'}",
            )
        except RuntimeError as error:
            return self._retry_converted(bound, str(error))
        if value is True or value is False:
            return ("true" if value else "false"), ""
        if result.type() == cel.Type.ERROR:
            return self._retry_converted(bound, str(value))
        return "error", f"NOT_BOOL: {kind_of(value)}"

    def scalar(self, bound: Bound) -> Any:
        """The value of an expression that is no condition. Raise Refused if it has none, or one that is no scalar."""
        message = ""
        try:
            if not self._cost.unlimited and not self._cost.allows(bound.select(self.needs)):
                message = "REFUSED: the event holds too much for the work that this expression does on it"
            else:
                result = self._expression.eval(bound.activation(self))
                value = result.value()
                if result.type() != cel.Type.ERROR:
                    return _scalar(self, value)
                message = str(value)
        except RecursionError:
            message = "REFUSED: the event is nested too deep"
        except RuntimeError as error:
            message = str(error)
        if _is_unconverted(message) and bound.convert_all():
            return self.scalar(bound)
        raise Refused(explain.explain_outcome(self, bound, "error", message))

    def _retry_converted(self, bound: Bound, message: str) -> tuple[Outcome, str]:
        return self.evaluate(bound) if _is_unconverted(message) and bound.convert_all() else ("error", message)

    def evaluate_constant(self, source: str) -> str:
        """Evaluate an expression without variables, and return CEL's error message or an empty text."""
        result = _environment.compile(source).eval(_environment.Activation({}))
        return str(result.value()) if result.type() == cel.Type.ERROR else ""

    def clause(self, node: Node) -> Condition:
        """Return a part of this condition as a condition of its own, compiled at its first use."""
        found = self._clauses.get((node.start, node.end))
        if found is None:
            source = self.source[node.start : node.end]
            found = Condition(source, _environment.compile(source), parse(source), self._cost, self.whole)
            self._clauses[node.start, node.end] = found
        return found


def _is_unconverted(message: str) -> bool:
    return message.startswith("basic_string") or any(sign in message for sign in _UNCONVERTED)


def _scalar(expression: Condition, value: Any) -> Any:
    if value is None or not isinstance(value, str | int | float):
        message = f"{expression.label} gives {explain.with_article(kind_of(value))}, not a text or a number"
        raise Refused(message, fix="Name a field that every event has")
    return value


class Key:
    """A compiled expression whose value, as text, says which events belong together."""

    __slots__ = ("expression",)

    def __init__(self, expression: Condition) -> None:
        self.expression = expression

    def text(self, bound: Bound) -> str:
        """Raise Refused, with what the expression read, if the event has no such value."""
        value = self.expression.scalar(bound)
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class Bound:
    """An event for any number of conditions, converted to CEL as needed. Its mapping must not change meanwhile."""

    __slots__ = ("_activations", "_clean", "_convertible", "_shared", "described", "values", "variables")

    def __init__(self, variables: Mapping[str, Any], shared: Needs | None) -> None:
        self.variables = variables
        self._shared = shared
        self._activations: dict[Needs, Any] = {}
        self._clean = False
        self.values = PlainValues(variables)
        self._convertible: Convertibles | None = None
        # the values that clauses read, as the reasons of all of them show these
        self.described: dict[tuple[tuple[str, Path], ...], str] = {}

    @property
    def convertible(self) -> Convertibles:
        # a condition that reads a single value does not ask, and most are like that
        if self._convertible is None:
            self._convertible = Convertibles(self.variables)
        return self._convertible

    def activation(self, condition: Condition) -> Any:
        """Return the CEL activation with the parts that the condition reads, converted at most once."""
        needs = condition.needs
        if self._shared is not None and condition.whole in self._shared.members:
            needs = self._shared
        found = self._activations.get(needs)
        if found is None:
            found = self._activations[needs] = _environment.Activation(self.select(needs))
        return found

    def select(self, needs: Needs) -> dict[str, Any]:
        """Return only the needed parts of the variables, in types that CEL accepts."""
        chosen: dict[str, Any] = {}
        for root, tree in needs.tree.items():
            if root in self.variables:
                value = _select(self.variables[root], tree)
                chosen[root] = value if not self._clean and root != "meta" and is_plain(value) else clean(value)
        if "meta" in chosen:
            _add_occurred_at(chosen, self.variables["meta"])
        return chosen

    def convert_all(self) -> bool:
        """Convert all values to types that CEL accepts from now on; return False if they are already."""
        if self._clean:
            return False
        self._clean = True
        self._activations.clear()
        return True


class Needs:
    """The parts of an event that some conditions read. Made once by `needs_of`, and used for many events."""

    __slots__ = ("members", "tree")

    def __init__(self, tree: _Tree, members: frozenset[Condition] = frozenset()) -> None:
        self.tree = tree
        self.members = members


def _read_tree(found: Iterable[Path]) -> _Tree:
    tree: _Tree = {}
    for path in found:
        _add_path(tree, path)
    return tree


def _add_path(tree: _Tree, path: Path) -> None:
    for at, name in enumerate(path):
        if not isinstance(name, str) or (name in tree and tree[name] is None):
            return
        below = path[at + 1] if at + 1 < len(path) else None
        if not isinstance(below, str):
            tree[name] = None
            return
        inner = tree.setdefault(name, {})
        assert inner is not None
        tree = inner


def _select(value: Any, tree: _Tree | None) -> Any:
    if tree is None or type(value) is not dict:
        return value
    return {name: _select(value[name], below) for name, below in tree.items() if name in value}


def _add_occurred_at(chosen: dict[str, Any], meta: Any) -> None:
    moment = meta.get("occurred_at") if isinstance(meta, Mapping) else None
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return
    if isinstance(moment, datetime):
        chosen[OCCURRED_AT] = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
