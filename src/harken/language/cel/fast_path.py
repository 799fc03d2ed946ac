"""Decides plain clauses in Python, exactly as CEL would: `event.status == "open"`, `event.text.contains("disk")`.

A thousand triggers on one feed are a thousand conditions for every event, nearly all of them false, and a call of CEL
costs more than such a comparison. Whatever is not certain here (a missing field, another type, a text that would be
converted, any other function) is left to CEL, so that it decides, and words the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any, Final

from harken.language.cel.parser import Node, Path, literal_text, loop_variable, static_path
from harken.language.cel.python_to_cel_values import is_plain

if TYPE_CHECKING:
    from harken.language.cel.condition import Bound

__all__ = ["Convertibles", "Plain", "PlainValues", "compile_plain"]

Plain = Callable[["Bound"], "bool | None"]
"""True or false if that is certain, None if CEL has to decide."""

UNREADABLE: Final = object()
"""There is no value, or none that Python and CEL see alike."""

LOWER: Final = "\0lowerAscii"
"""In front of a path: the text there in lower case. No variable has this name."""

_LONGEST_NUMBER = 15
_INT64 = 2**63
_SUBJECT_AND_ARGUMENT = 2
_SCALARS = (str, int, float, bool, type(None))
_READABLE = frozenset({*_SCALARS, list})
_NUMBERS = (int, float)
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_TEXT_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "contains": str.__contains__,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
}
_CONSTANTS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}


def compile_plain(source: str, tree: Node, given: Sequence[Path]) -> Plain | None:
    """Return a function that decides the condition for most events; None if only CEL can decide it.

    `given`: the paths of the values that CEL would get.
    """
    decide = _Compiler(source).compile(tree)
    if decide is None or any(len(path) < 2 or path[:2] == ("meta", "occurred_at") for path in given):
        return None
    # a clause that reads the only value finds out by itself whether it is plain
    alone = len(given) == 1 and (tree.kind == "binary" or (tree.kind == "call" and tree.text in _TEXT_TESTS))
    return decide if alone else _if_convertible(decide, given)


class PlainValues(dict[Path, Any]):
    """The number, text, list or constant at a path; UNREADABLE for anything that CEL could see otherwise."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables

    def __missing__(self, path: Path) -> Any:
        value = self[path] = _lower(self[path[1:]]) if path[0] == LOWER else _read(self._variables, path)
        return value


class Convertibles(dict[Path, bool]):
    """Whether CEL certainly takes the value at a path, and the values on the way there."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        super().__init__()
        self._variables = variables

    def __missing__(self, path: Path) -> bool:
        found = self[path] = _is_convertible(self._variables, path)
        return found


def _if_convertible(decide: Plain, given: Sequence[Path]) -> Plain:
    def decide_convertible(bound: Bound) -> bool | None:
        # CEL gets all values before it begins, and refuses the event if it cannot take one of them
        convertible = bound.convertible
        for path in given:
            if not convertible[path]:
                return None
        return decide(bound)

    return decide_convertible


def _lower(value: Any) -> Any:
    # of a text with other letters than those of ASCII, Python and CEL change different ones
    return value.lower() if type(value) is str and value.isascii() else UNREADABLE


def _read(variables: Mapping[str, Any], path: Path) -> Any:
    value: Any = variables
    for name in path:
        if type(value) is not dict or name not in value:
            return UNREADABLE
        value = value[name]
    kind = type(value)
    if kind is str:
        return value if is_plain(value) else UNREADABLE
    readable = kind in _READABLE and is_plain(value) and _fits(value) and value == value
    return value if readable else UNREADABLE


def _is_convertible(variables: Mapping[str, Any], path: Path) -> bool:
    value: Any = variables
    for name in path:
        if type(value) is not dict or not isinstance(name, str):
            # CEL gets all of it
            break
        if name not in value:
            return True
        value = value[name]
    return (type(value) in _SCALARS or (type(value) in (dict, list) and is_plain(value))) and _fits(value)


def _fits(value: Any) -> bool:
    """Whether all integers in it have 64 bits: CEL fails on others, and then gets them as doubles."""
    try:
        if type(value) is int:
            return -_INT64 <= value < _INT64
        if type(value) is list:
            return all(map(_fits, value))
        return all(map(_fits, value.values())) if type(value) is dict else True
    except RecursionError:
        return False


class _Compiler:
    def __init__(self, source: str) -> None:
        self._source = source

    def compile(self, node: Node) -> Plain | None:
        if node.kind == "and":
            return self._joined(node, decisive=False)
        if node.kind == "or":
            return self._joined(node, decisive=True)
        if node.kind == "unary":
            return self._negated(node)
        if node.kind == "binary":
            return self._one_of(node) if node.text == "in" else self._comparison(node)
        if node.kind == "call":
            return self._presence(node) if node.text == "has" else self._text_test(node)
        path = self._path(node)
        return None if path is None else _is_true(path)

    def _joined(self, node: Node, *, decisive: bool) -> Plain | None:
        """One false clause makes `&&` false, one true clause makes `||` true, even beside clauses that fail."""
        parts: list[Plain] = []
        complete = True
        for part in node.parts:
            compiled = self.compile(part)
            if compiled is not None:
                parts.append(compiled)
                continue
            complete = False
            if _has_loop(part):
                # too many turns end the whole evaluation, whatever comes after it
                break
        return _join(parts, decisive=decisive, complete=complete) if parts else None

    def _negated(self, node: Node) -> Plain | None:
        inner = self.compile(node.parts[0])
        signs = self._source[node.start : node.parts[0].start]
        if inner is None or signs.strip("!( \t\n"):
            return None
        return _negate(inner) if signs.count("!") % 2 else inner

    def _comparison(self, node: Node) -> Plain | None:
        left, right = node.parts
        path = self._value(left)
        if path is None or right.kind != "literal":
            return None
        text, number = literal_text(right), _number(right)
        if node.text in _COMPARISONS:
            return None if number is None else _compare(path, _COMPARISONS[node.text], number)
        if node.text not in ("==", "!="):
            return None
        unequal = node.text == "!="
        if text is not None:
            return _equal(path, text, (str,), unequal=unequal)
        if number is not None:
            return _equal(path, number, _NUMBERS, unequal=unequal)
        if right.text not in _CONSTANTS:
            return None
        constant = _CONSTANTS[right.text]
        return _equal(path, constant, (type(constant),), unequal=unequal)

    def _one_of(self, node: Node) -> Plain | None:
        """`event.status in ["open", "new"]`, or `"urgent" in event.labels`."""
        left, right = node.parts
        if right.kind != "list":
            text, path = literal_text(left), self._value(right)
            return None if text is None or path is None else _lists(path, text)
        texts, path = [literal_text(part) for part in right.parts], self._value(left)
        known = frozenset(text for text in texts if text is not None)
        return None if path is None or not texts or None in texts else _is_one_of(path, known)

    def _text_test(self, node: Node) -> Plain | None:
        if node.text not in _TEXT_TESTS or len(node.parts) != _SUBJECT_AND_ARGUMENT:
            return None
        path, text = self._value(node.parts[0]), literal_text(node.parts[1])
        return None if path is None or text is None else _test_text(path, _TEXT_TESTS[node.text], text)

    def _presence(self, node: Node) -> Plain | None:
        path = self._path(node.parts[0]) if len(node.parts) == 1 and node.parts[0].kind == "field" else None
        return None if path is None else _is_there(path)

    def _value(self, node: Node) -> Path | None:
        """Return the path of a value, also of one with `.lowerAscii()`."""
        if node.kind != "call" or node.text != "lowerAscii" or len(node.parts) != 1:
            return self._path(node)
        path = self._path(node.parts[0])
        return None if path is None else (LOWER, *path)

    def _path(self, node: Node) -> Path | None:
        path = static_path(node)
        if path is None or len(path) == 1 or not all(isinstance(name, str) for name in path):
            return None
        # an optional field, `event.?state`, is in the tree as a plain one, but its value is of another type
        return None if "?" in self._source[node.start : node.end] else path


def _join(parts: Sequence[Plain], *, decisive: bool, complete: bool) -> Plain:
    def decide(bound: Bound) -> bool | None:
        certain = complete
        for part in parts:
            found = part(bound)
            if found is decisive:
                return decisive
            if found is None:
                certain = False
        return not decisive if certain else None

    return decide


def _has_loop(node: Node) -> bool:
    return loop_variable(node) is not None or any(map(_has_loop, node.parts))


def _negate(inner: Plain) -> Plain:
    def decide(bound: Bound) -> bool | None:
        found = inner(bound)
        return None if found is None else not found

    return decide


def _compare(path: Path, compare: Callable[[Any, Any], bool], number: float) -> Plain:
    def decide(bound: Bound) -> bool | None:
        value = bound.values[path]
        return compare(value, number) if type(value) in _NUMBERS else None

    return decide


def _equal(path: Path, wanted: Any, kinds: tuple[type, ...], *, unequal: bool) -> Plain:
    def decide(bound: Bound) -> bool | None:
        value = bound.values[path]
        if value is UNREADABLE:
            return None
        # values of different kinds are not equal; to Python alone true is 1
        return (type(value) in kinds and value == wanted) is not unequal

    return decide


def _is_one_of(path: Path, texts: frozenset[str]) -> Plain:
    def decide(bound: Bound) -> bool | None:
        value = bound.values[path]
        return None if value is UNREADABLE else type(value) is str and value in texts

    return decide


def _lists(path: Path, text: str) -> Plain:
    def decide(bound: Bound) -> bool | None:
        value = bound.values[path]
        return text in value if type(value) is list and all(type(each) in _SCALARS for each in value) else None

    return decide


def _test_text(path: Path, test: Callable[[str, str], bool], text: str) -> Plain:
    def decide(bound: Bound) -> bool | None:
        value = bound.values[path]
        return test(value, text) if type(value) is str else None

    return decide


def _is_there(path: Path) -> Plain:
    *above, name = path

    def decide(bound: Bound) -> bool | None:
        value: Any = bound.variables
        for step in above:
            if type(value) is not dict or step not in value:
                return None
            value = value[step]
        return name in value if type(value) is dict else None

    return decide


def _is_true(path: Path) -> Plain:
    def decide(bound: Bound) -> bool | None:
        value = bound.values[path]
        return value if type(value) is bool else None

    return decide


def _number(node: Node) -> float | None:
    """Return the value of a number that is exact as a double; None for any other literal."""
    whole, _, rest = node.text.partition(".")
    plain = whole.isascii() and whole.isdigit() and (not rest or (rest.isascii() and rest.isdigit()))
    if not plain or len(node.text) > _LONGEST_NUMBER:
        return None
    return float(node.text) if "." in node.text else int(whole)
