"""Compile the tree of a template to closures that count their work.

Not built on another template engine, because types, paths of missing fields, the scope of the dot and limits need
access to the evaluation (measured in docs/decisions/0004-template-engine.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harken.errors import Refused
from harken.language.dotted_paths import MISSING
from harken.language.go_template import parser as go
from harken.language.go_template.format import LONGEST, NO_VALUE, to_text
from harken.language.go_template.functions import FUNCTIONS, UNESCAPED, Absent, Function, sorted_keys, truth
from harken.language.go_template.lexer import Text, error_at
from harken.language.json_kinds import kind_of
from harken.suggest import suggest_clause

__all__ = ["Rendering", "compile_block", "compile_single"]

FUEL = 300_000
_CHARACTERS_PER_FUEL = 64
_ITEMS_PER_FUEL = 8
_MOST_WARNINGS = 20
_SIZED = (list, dict, tuple)
Eval = Callable[["Rendering"], Any]
Run = Callable[["Rendering"], str | None]


class Rendering:
    """The state of rendering a template once."""

    __slots__ = ("dot", "escape", "fill", "fuel", "out", "room", "root", "slots", "strict", "warnings")

    def __init__(
        self, root: Mapping[str, Any], slots: int, strict: bool, escape: Callable[[str], str] | None = None
    ) -> None:
        self.root = self.dot = root
        self.escape = escape
        self.fill: Callable[[str], str] | None = None
        self.slots: list[Any] = [None] * slots
        self.strict = strict
        self.out: list[str] = []
        self.room = LONGEST
        self.fuel = FUEL
        self.warnings: dict[str, None] = {}

    def burn(self, amount: int) -> None:
        self.fuel -= amount
        if self.fuel < 0:
            raise Refused("the template takes too many steps", fix="Loop over fewer items")

    def emit(self, text: str) -> None:
        self.room -= len(text)
        if self.room < 0:
            raise Refused(f"the template makes more than {LONGEST} characters")
        self.out.append(text)

    def note(self, absent: Absent) -> None:
        """Report a missing field: Refused in a mapping (strict), a warning in a text."""
        text = f"{absent.path} is not there{_hint(absent)}"
        if self.strict:
            raise Refused(text)
        if len(self.warnings) < _MOST_WARNINGS:
            self.warnings[text] = None

    def text(self) -> str:
        text = "".join(self.out)
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-8", "replace").decode()
        return text


def _hint(absent: Absent) -> str:
    if isinstance(absent.among, Mapping):
        return suggest_clause(absent.name, absent.among)
    if isinstance(absent.among, list | tuple):
        number = len(absent.among)
        return f": the list has {number} item{'' if number == 1 else 's'}"
    return f": it would be in a {kind_of(absent.among)}" if absent.among is not None else ""


def compile_single(source: str, nodes: tuple[go.Node, ...]) -> Eval | None:
    """Return the expression of a template that consists of one; None for any other template."""
    if len(nodes) == 1 and isinstance(nodes[0], go.Show) and not nodes[0].pipe.slots:
        return _compile_operand(source, nodes[0].pipe.value)
    return None


def compile_block(source: str, nodes: tuple[go.Node, ...]) -> Run:
    """Return a function that renders the nodes, and returns `break` or `continue` if one was reached."""
    runs = [_compile_node(source, node) for node in nodes]

    def run(rendering: Rendering) -> str | None:
        for each in runs:
            jump = each(rendering)
            if jump is not None:
                return jump
        return None

    return run


def _compile_node(source: str, node: go.Node) -> Run:
    if isinstance(node, Text):
        return _compile_text(node.text)
    if isinstance(node, go.Jump):
        return lambda rendering: node.word
    if isinstance(node, go.Show):
        marked = isinstance(node.pipe.value, go.Call) and node.pipe.value.function == UNESCAPED
        return _compile_show(_compile_pipe(source, node.pipe), silent=bool(node.pipe.slots), marked=marked)
    if node.word == "range":
        return _compile_range(source, node)
    return _compile_choice(source, node)


def _compile_text(text: str) -> Run:
    def run(rendering: Rendering) -> None:
        rendering.burn(1)
        rendering.emit(text if rendering.fill is None else rendering.fill(text))

    return run


def _compile_show(value: Eval, silent: bool, marked: bool) -> Run:
    def run(rendering: Rendering) -> None:
        found = value(rendering)
        if silent:
            return
        if isinstance(found, Absent):
            rendering.note(found)
            rendering.emit(NO_VALUE)
        else:
            text = found if type(found) is str else to_text(found)
            # a value that begins the text has nothing before it that it could break out of
            if rendering.escape is not None and not marked and rendering.out:
                text = rendering.escape(text)
            rendering.burn(len(text) // _CHARACTERS_PER_FUEL)
            rendering.emit(text)

    return run


def _compile_choice(source: str, node: go.Block) -> Run:
    value = _compile_pipe(source, node.pipe)
    body, otherwise = compile_block(source, node.body), compile_block(source, node.otherwise)
    moves_dot = node.word == "with"

    def run(rendering: Rendering) -> str | None:
        found = value(rendering)
        if not _is_true(rendering, found):
            return otherwise(rendering)
        if not moves_dot:
            return body(rendering)
        outer, rendering.dot = rendering.dot, found
        jump = body(rendering)
        rendering.dot = outer
        return jump

    return run


def _is_true(rendering: Rendering, found: Any) -> bool:
    # testing a missing field is fine; testing what a function returned for one is reported
    if isinstance(found, Absent) and found.used:
        rendering.note(found)
    return truth(found)


def _compile_range(source: str, node: go.Block) -> Run:
    value = _compile_operand(source, node.pipe.value)
    slots = node.pipe.slots
    body, otherwise = compile_block(source, node.body), compile_block(source, node.otherwise)

    def run(rendering: Rendering) -> str | None:
        found = value(rendering)
        if isinstance(found, Absent):
            rendering.note(found)
        if not truth(found):
            return otherwise(rendering)
        outer = rendering.dot
        for key, item in _pairs(rendering, source, node, found):
            rendering.burn(1)
            rendering.dot = item
            _store(rendering, slots, key, item)
            if body(rendering) == "break":
                break
        rendering.dot = outer
        return None

    return run


def _store(rendering: Rendering, slots: tuple[int, ...], key: Any, item: Any) -> None:
    if slots:
        rendering.slots[slots[-1]] = item
    if len(slots) > 1:
        rendering.slots[slots[0]] = key


def _pairs(rendering: Rendering, source: str, node: go.Block, found: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(found, list | tuple):
        return iter(enumerate(found))
    if isinstance(found, Mapping):
        rendering.burn(len(found) // _ITEMS_PER_FUEL)
        return ((key, found[key]) for key in sorted_keys(found))
    if isinstance(found, int) and not isinstance(found, bool):
        return ((number, number) for number in range(found))
    raise Refused(
        f"{_position(source, node.at)}: range goes over a list, an object or a number, not a {kind_of(found)}"
    )


def _compile_pipe(source: str, pipe: go.Pipe) -> Eval:
    value = _compile_operand(source, pipe.value)
    slots = pipe.slots
    if not slots:
        return value

    def run(rendering: Rendering) -> Any:
        found = value(rendering)
        rendering.slots[slots[0]] = found
        return found

    return run


def _compile_operand(source: str, operand: go.Operand) -> Eval:
    if isinstance(operand, go.Constant):
        constant = operand.value
        return lambda rendering: constant
    if isinstance(operand, go.Pipe):
        return _compile_pipe(source, operand)
    if isinstance(operand, go.Path):
        return _compile_path(source, operand)
    return _compile_call(source, operand)


def _compile_path(source: str, path: go.Path) -> Eval:
    start, names, written = _compile_start(source, path), path.names, path.written

    def run(rendering: Rendering) -> Any:
        rendering.burn(1)
        value = start(rendering)
        for at, name in enumerate(names):
            # the first test is a hundred times cheaper than the second, and nearly always true
            keyed = type(value) is dict or isinstance(value, Mapping)
            inner = value.get(name, MISSING) if keyed else MISSING
            if inner is MISSING:
                return _absent(value, written, names, at)
            value = inner
        return value

    return run


def _absent(value: Any, written: str, names: tuple[str, ...], at: int) -> Absent:
    if isinstance(value, Absent):
        return value
    missing = written if at == len(names) - 1 else ".".join(written.split(".")[: at + 1 - len(names)])
    return Absent(missing, names[at], value)


def _compile_start(source: str, path: go.Path) -> Eval:
    start = path.start
    if isinstance(start, go.Pipe):
        return _compile_pipe(source, start)
    if isinstance(start, int):
        return lambda rendering: rendering.slots[start]
    if start == "$":
        return lambda rendering: rendering.root
    return _compile_bare_name(path.names[0]) if start == "?" else lambda rendering: rendering.dot


def _compile_bare_name(name: str) -> Eval:
    """A name without a leading dot is a field of the dot or, inside of range and with, of the root."""

    def run(rendering: Rendering) -> Any:
        dot = rendering.dot
        return dot if isinstance(dot, Mapping) and name in dot else rendering.root

    return run


def _compile_call(source: str, call: go.Call) -> Eval:
    arguments = [_compile_operand(source, argument) for argument in call.arguments]
    if call.function in ("and", "or"):
        return _short_circuit(arguments, stops_at=call.function == "or")
    function, place = FUNCTIONS[call.function], _position(source, call.at)

    def run(rendering: Rendering) -> Any:
        given = [argument(rendering) for argument in arguments]
        for at, value in enumerate(given):
            rendering.burn(1 + _cost(value))
            if isinstance(value, Absent) and function.absent != "given":
                if function.absent == "returned":
                    return Absent(value.path, value.name, value.among, used=True)
                rendering.note(value)
                given[at] = None
        result = _apply(function, given, place)
        rendering.burn(_cost(result))
        return result

    return run


def _apply(function: Function, given: list[Any], place: str) -> Any:
    try:
        return function.call(*given)
    except Refused as error:
        raise Refused(f"{place}: {error.message}", fix=error.fix) from error


def _short_circuit(arguments: list[Eval], stops_at: bool) -> Eval:
    def run(rendering: Rendering) -> Any:
        rendering.burn(1)
        found = None
        for argument in arguments:
            found = argument(rendering)
            if truth(found) == stops_at:
                break
        return found

    return run


def _cost(value: Any) -> int:
    if type(value) is str:
        return len(value) // _CHARACTERS_PER_FUEL
    return len(value) // _ITEMS_PER_FUEL if isinstance(value, _SIZED) else 0


def _position(source: str, at: int) -> str:
    return error_at(source, at, "").message.rstrip(": ")
