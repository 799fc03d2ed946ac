"""Conditions in CEL: compiled once, evaluated on the hot path, false only when they are truly false.

CEL returns errors as values that are true in Python, cuts text at a NUL, and crashes on deep nesting; nothing outside
this file needs to know. An event is converted lazily and only as far as its conditions look into it, because the
conversion costs more than the evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

from harken.errors import Misconfigured, Refused
from harken.language.cel import explain
from harken.language.cel.ast import Node, Path, literal_text, parse, paths, static_path
from harken.language.cel.cost import ITERATIONS, Effort
from harken.language.cel.values import clean, is_plain, kind_of

__all__ = [
    "Bound",
    "Clause",
    "Condition",
    "Decision",
    "Needs",
    "Outcome",
    "Text",
    "all_equal",
    "bind",
    "compile_condition",
    "needs_of",
    "texts_of",
]


Text = tuple[Path, str]

"""A path, and the text that stands there."""


def texts_of(tree: Node) -> tuple[Text, ...]:
    """The paths and texts of such a condition; empty for every other."""
    parts = tree.parts if tree.kind == "and" else (tree,)
    found = [_text_of(part) for part in parts]
    return tuple(one for one in found if one is not None) if None not in found else ()


def _text_of(node: Node) -> Text | None:
    if node.kind != "binary" or node.text != "==" or len(node.parts) != 2:
        return None
    path, text = static_path(node.parts[0]), literal_text(node.parts[1])
    if path is None or text is None or "meta" in path[:1] or not text.isascii():
        return None
    return (path, text) if all(isinstance(step, str) for step in path) else None


def all_equal(texts: tuple[Text, ...], variables: Mapping[str, Any]) -> bool:
    """Whether each text stands at its path. False says nothing: a value may be equal in ways that only CEL knows."""
    for path, text in texts:
        value: Any = variables
        for name in path:
            if type(value) is not dict or name not in value:
                return False
            value = value[name]
        if type(value) is not str or value != text:
            return False
    return True


LONGEST = 4096

COMMON = ("event", "meta", "trigger", "inputs", "steps", "run")

VARIABLES = (*COMMON, "item", "index")

OCCURRED_AT = "meta.occurred_at"

Outcome = Literal["true", "false", "error"]

# the fields to keep below each field; None keeps everything
_Tree = dict[str, "_Tree | None"]

_environment = cel.NewEnv(
    variables={**dict.fromkeys(VARIABLES, cel.Type.DYN), OCCURRED_AT: cel.Type.TIMESTAMP},
    extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
)

# these say that a value could not be handed over, not that the condition is wrong
_UNCONVERTED = ("Non-CEL value type", "out of range for '", "Invalid map key type")


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a condition says about an event; `reason` is empty when it is true."""

    outcome: Outcome
    reason: str = ""


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a condition on its own, with the values it looked at; a value is None when it is not there."""

    source: str
    outcome: Outcome
    reason: str
    values: dict[str, str | None]


TRUE = Decision(outcome="true")


class Needs:
    """The parts of an event that some conditions read; make it once with `needs_of`, bind many events with it."""

    __slots__ = ("members", "tree")

    def __init__(self, tree: _Tree, members: frozenset[Condition] = frozenset()) -> None:
        self.tree = tree
        self.members = members


class Bound:
    """An event ready for any number of conditions. The mapping it was made from must not change meanwhile."""

    __slots__ = ("_activations", "_clean", "_shared", "variables")

    def __init__(self, variables: Mapping[str, Any], shared: Needs | None) -> None:
        self.variables = variables
        self._shared = shared
        self._activations: dict[Needs, Any] = {}
        self._clean = False

    def activation(self, condition: Condition) -> Any:
        """Return CEL's view of the parts that the condition reads, converted at most once."""
        needs = condition.needs
        if self._shared is not None and condition.whole in self._shared.members:
            needs = self._shared
        found = self._activations.get(needs)
        if found is None:
            found = self._activations[needs] = _environment.Activation(self.selected(needs))
        return found

    def selected(self, needs: Needs) -> dict[str, Any]:
        """Return only the needed parts of the variables, in types that CEL takes."""
        chosen: dict[str, Any] = {}
        for root, tree in needs.tree.items():
            if root in self.variables:
                value = _select(self.variables[root], tree)
                chosen[root] = value if not self._clean and root != "meta" and is_plain(value) else clean(value)
        if "meta" in chosen:
            _add_moment(chosen, self.variables["meta"])
        return chosen

    def convert(self) -> bool:
        """Copy all values into types that CEL knows; False if that was done before."""
        if self._clean:
            return False
        self._clean = True
        self._activations.clear()
        return True


class Condition:
    """A compiled condition. `decide` never raises on account of an event: what goes wrong is an `error` decision."""

    __slots__ = ("_clauses", "_effort", "_expression", "_texts", "label", "needs", "reads", "source", "tree", "whole")

    def __init__(self, source: str, expression: Any, tree: Node, effort: Effort) -> None:
        self.source = source
        self.tree = tree
        self._expression = expression
        self._effort = effort
        self._clauses: dict[tuple[int, int], Condition] = {}
        found = dict.fromkeys(paths(tree))
        self.reads = tuple((explain.written(path), path) for path in found)
        self.label = explain.cut(" ".join(source.split()))
        self.needs = Needs(_tree_of(found))
        self.whole = self
        self._texts = texts_of(tree)

    def decide(self, bound: Bound) -> Decision:
        """Return whether the condition holds for the event, and if not, which clause decided with which values."""
        if self._texts and all_equal(self._texts, bound.variables):
            return TRUE
        outcome, value = self.outcome(bound)
        if outcome == "true":
            return TRUE
        return Decision(outcome=outcome, reason=explain.because(self, bound, outcome, value))

    def explain(self, bound: Bound) -> list[Clause]:
        """Return each clause of the condition judged on its own, in the order in which they were written."""
        return [clause.judged(bound) for clause in explain.clauses(self)]

    def judged(self, bound: Bound) -> Clause:
        outcome, value = self.outcome(bound)
        reason = "" if outcome == "true" else explain.because(self, bound, outcome, value)
        return Clause(source=self.source, outcome=outcome, reason=reason, values=explain.values(self, bound.variables))

    def outcome(self, bound: Bound) -> tuple[Outcome, str]:
        """Return the outcome, with CEL's own words if it is an error."""
        try:
            if not self._effort.unlimited and not self._effort.allows(bound.selected(self.needs)):
                return "error", "REFUSED: the event holds too much for the work that this condition does on it"
            result = self._expression.eval(bound.activation(self))
            value = result.value()
        except (Refused, RecursionError) as error:
            return (
                "error",
                f"REFUSED: {error.message if isinstance(error, Refused) else 'the event is nested too deep'}",
            )
        except RuntimeError as error:
            return self._again(bound, str(error))
        if value is True or value is False:
            return ("true" if value else "false"), ""
        if result.type() == cel.Type.ERROR:
            return self._again(bound, str(value))
        return "error", f"NOT_BOOL: {kind_of(value)}"

    def _again(self, bound: Bound, message: str) -> tuple[Outcome, str]:
        unconverted = message.startswith("basic_string") or any(sign in message for sign in _UNCONVERTED)
        return self.outcome(bound) if unconverted and bound.convert() else ("error", message)

    def tried(self, source: str) -> str:
        """Return CEL's complaint about an expression that reads no variables, or nothing."""
        result = _environment.compile(source).eval(_environment.Activation({}))
        return str(result.value()) if result.type() == cel.Type.ERROR else ""

    def clause(self, node: Node) -> Condition:
        """Return a part of this condition as a condition of its own, compiled at its first use."""
        found = self._clauses.get((node.start, node.end))
        if found is None:
            source = self.source[node.start : node.end]
            found = Condition(source, _environment.compile(source), parse(source), self._effort)
            found.needs, found.whole = self.needs, self.whole
            self._clauses[node.start, node.end] = found
        return found


def compile_condition(source: str) -> Condition:
    """Return the condition, or raise Misconfigured with the position and what to write instead."""
    if len(source) > LONGEST:
        raise Misconfigured(f"the condition is {len(source)} characters long; at most {LONGEST} are allowed")
    if not source.strip():
        raise Misconfigured("the condition is empty")
    if not is_plain(source):
        raise Misconfigured("the condition holds characters that are not text")
    try:
        expression = _environment.compile(source)
    except (RuntimeError, ValueError) as error:
        raise Misconfigured(explain.misconfigured(source, str(error), COMMON)) from error
    _check_type(expression.return_type())
    tree = parse(source)
    effort = Effort(tree)
    if effort.impossible:
        raise Misconfigured(
            "the condition can read or build too much text",
            fix=f"Loops run {ITERATIONS} times at most: move replace, join, format and + out of them",
        )
    condition = Condition(source, expression, tree, effort)
    explain.check_patterns(condition)
    return condition


def needs_of(conditions: Iterable[Condition]) -> Needs:
    """Return what several conditions read together, so that an event is converted once for all of them."""
    members = frozenset(conditions)
    return Needs(_tree_of(path for condition in members for _, path in condition.reads), members)


def bind(variables: Mapping[str, Any], needs: Needs | None = None) -> Bound:
    """Return an event ready to be judged. `trigger.event` is the event when no trigger is given."""
    if "trigger" not in variables and "event" in variables:
        variables = {**variables, "trigger": {"event": variables["event"]}}
    return Bound(variables, needs)


def _check_type(result: Any) -> None:
    if result not in (cel.Type.BOOL, cel.Type.DYN):
        kind = explain.a(str(result.name()).lower())
        raise Misconfigured(f"the condition gives {kind}, not true or false", fix="Compare it with something")


def _tree_of(found: Iterable[Path]) -> _Tree:
    tree: _Tree = {}
    for path in found:
        _grow(tree, path)
    return tree


def _grow(tree: _Tree, path: Path) -> None:
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


def _add_moment(chosen: dict[str, Any], meta: Any) -> None:
    moment = meta.get("occurred_at") if isinstance(meta, Mapping) else None
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return
    if isinstance(moment, datetime):
        chosen[OCCURRED_AT] = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
