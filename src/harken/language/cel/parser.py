"""Parse a condition to a tree with positions, for explanations and limits. CEL itself validates and evaluates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from harken.errors import Misconfigured

__all__ = ["Node", "Path", "literal_text", "loop_variable", "parse", "paths", "static_path"]

Kind = Literal["literal", "name", "field", "item", "call", "list", "map", "unary", "binary", "and", "or", "choice"]
Path = tuple[str | int, ...]

LOOPS = frozenset({"all", "exists", "exists_one", "map", "filter"})
_LOOP_SHAPES = (2, 3)

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*)
    |(?P<literal>(?:[rR][bB]?|[bB][rR]?)?(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      |0[xX][0-9a-fA-F]+[uU]?|\d+\.\d+(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+[uU]?)
    |(?P<name>[A-Za-z_]\w*|`[^`\n]+`)
    |(?P<op>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_LEVELS: tuple[tuple[str, ...], ...] = (("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
_CONSTANTS = frozenset({"true", "false", "null"})


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a condition: `source[start:end]` is its text without parentheses."""

    kind: Kind
    start: int
    end: int
    text: str = ""
    parts: tuple[Node, ...] = ()


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    start: int
    end: int


def parse(source: str) -> Node:
    """Return the tree of a condition that CEL compiled. Raise Misconfigured for syntax that is not known here."""
    reader = _Reader(source)
    node = reader.choice()
    reader.expect_end()
    return node


def static_path(node: Node) -> Path | None:
    """Return `("event", "labels", 0)` for event.labels[0], None for anything that is not a plain path."""
    steps: list[str | int] = []
    while node.kind in ("field", "item"):
        if node.kind == "field":
            steps.append(node.text)
        else:
            key = _item_key(node.parts[1])
            if key is None:
                return None
            steps.append(key)
        node = node.parts[0]
    return (node.text, *reversed(steps)) if node.kind == "name" else None


def paths(node: Node, bound: frozenset[str] = frozenset()) -> Iterator[Path]:
    """Yield the paths that a node reads, in order, except those that begin at a loop variable."""
    path = static_path(node)
    if path is not None:
        if path[0] not in bound:
            yield path
        return
    inner = bound
    variable = loop_variable(node)
    if variable is not None:
        inner = bound | {variable}
    for index, part in enumerate(node.parts):
        if variable is None or index != 1:
            yield from paths(part, bound if index == 0 else inner)


def loop_variable(node: Node) -> str | None:
    """Return the name that `list.exists(name, …)` gives to each item, None if the node is no loop."""
    if node.kind != "call" or node.text not in LOOPS or len(node.parts) - 1 not in _LOOP_SHAPES:
        return None
    return node.parts[1].text if node.parts[1].kind == "name" else None


def literal_text(node: Node) -> str | None:
    """Return the text of a plain string literal; None for other literals and for those with escapes."""
    quoted = node.kind == "literal" and node.text[0] in "\"'" and not node.text.startswith(('"""', "'''"))
    return node.text[1:-1] if quoted and "\\" not in node.text else None


def _item_key(node: Node) -> str | int | None:
    if node.kind == "literal" and node.text.isdigit() and len(node.text) <= len("999999999"):
        return int(node.text)
    return literal_text(node)


_Part = Callable[[], Node]


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = list(_tokens(source))
        self._at = 0

    def choice(self) -> Node:
        start = self._start()
        node = self._any()
        if not self._take("?"):
            return node
        yes = self._any()
        self._need(":")
        no = self.choice()
        return Node(kind="choice", start=start, end=self._last_end(), parts=(node, yes, no))

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise self._unreadable()

    def _any(self) -> Node:
        return self._chain("or", "||", lambda: self._chain("and", "&&", lambda: self._binary(0)))

    def _chain(self, kind: Kind, operator: str, part: _Part) -> Node:
        start = self._start()
        parts = [part()]
        while self._take(operator):
            parts.append(part())
        if len(parts) == 1:
            return parts[0]
        return Node(kind=kind, start=start, end=self._last_end(), text=operator, parts=tuple(parts))

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        start = self._start()
        node = self._binary(level + 1)
        while (operator := self._peek()) in _LEVELS[level]:
            self._at += 1
            right = self._binary(level + 1)
            node = Node(kind="binary", start=start, end=self._last_end(), text=operator, parts=(node, right))
        return node

    def _unary(self) -> Node:
        start = self._start()
        signs = ""
        while self._peek() in ("!", "-"):
            signs += self._peek()
            self._at += 1
        node = self._member()
        if not signs:
            return node
        return Node(kind="unary", start=start, end=self._last_end(), text=signs[-1], parts=(node,))

    def _member(self) -> Node:
        start = self._start()
        node = self._primary()
        while (operator := self._peek()) in (".", "["):
            self._at += 1
            self._take("?")
            node = self._field(node, start) if operator == "." else self._item(node, start)
        return node

    def _field(self, node: Node, start: int) -> Node:
        name = self._name()
        if self._take("("):
            arguments = self._list(")")
            return Node(kind="call", start=start, end=self._last_end(), text=name, parts=(node, *arguments))
        return Node(kind="field", start=start, end=self._last_end(), text=name.strip("`"), parts=(node,))

    def _item(self, node: Node, start: int) -> Node:
        key = self.choice()
        self._need("]")
        return Node(kind="item", start=start, end=self._last_end(), text="[]", parts=(node, key))

    def _primary(self) -> Node:
        token = self._next()
        if token.kind == "literal" or token.text in _CONSTANTS:
            return Node(kind="literal", start=token.start, end=token.end, text=token.text)
        if token.kind == "name":
            return self._named(token)
        if token.text == "(":
            inner = self.choice()
            self._need(")")
            return inner
        if token.text == "[":
            return Node(kind="list", parts=tuple(self._list("]")), start=token.start, end=self._last_end())
        if token.text == "{":
            return self._map(token)
        raise self._unreadable(token)

    def _named(self, token: _Token) -> Node:
        if not self._take("("):
            return Node(kind="name", start=token.start, end=token.end, text=token.text)
        arguments = self._list(")")
        return Node(kind="call", start=token.start, end=self._last_end(), text=token.text, parts=tuple(arguments))

    def _list(self, close: str) -> list[Node]:
        items: list[Node] = []
        while not self._take(close):
            items.append(self.choice())
            if not self._take(","):
                self._need(close)
                break
        return items

    def _map(self, opening: _Token) -> Node:
        parts: list[Node] = []
        while not self._take("}"):
            parts.append(self.choice())
            self._need(":")
            parts.append(self.choice())
            if not self._take(","):
                self._need("}")
                break
        return Node(kind="map", start=opening.start, end=self._last_end(), parts=tuple(parts))

    def _peek(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _next(self) -> _Token:
        if self._at >= len(self._tokens):
            raise self._unreadable()
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, text: str) -> bool:
        if self._peek() != text:
            return False
        self._at += 1
        return True

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise self._unreadable()

    def _name(self) -> str:
        token = self._next()
        if token.kind != "name":
            raise self._unreadable(token)
        return token.text

    def _start(self) -> int:
        return self._tokens[self._at].start if self._at < len(self._tokens) else len(self._source)

    def _last_end(self) -> int:
        return self._tokens[self._at - 1].end

    def _unreadable(self, token: _Token | None = None) -> Misconfigured:
        at = token.start if token else self._start()
        return _unreadable(self._source, at)


def _tokens(source: str) -> Iterator[_Token]:
    at = 0
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            raise _unreadable(source, at)
        kind = found.lastgroup or ""
        if kind != "skip":
            yield _Token(kind, found.group(), at, found.end())
        at = found.end()


def _unreadable(source: str, at: int) -> Misconfigured:
    line = source.count("\n", 0, at) + 1
    column = at - source.rfind("\n", 0, at)
    if not source[at:].strip():
        return Misconfigured(f"{line}:{column}: something is missing at the end")
    return Misconfigured(f"{line}:{column}: conditions do not support what stands here: {source[at : at + 20]!r}")
