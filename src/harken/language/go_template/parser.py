"""Parse a Go template to a tree, in which variables are resolved to slots."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harken.errors import Misconfigured
from harken.language.go_template.functions import FUNCTIONS
from harken.language.go_template.lexer import LONGEST, Action, Text, Token, error_at, literal, pieces
from harken.suggest import suggest_clause

__all__ = [
    "Block",
    "Call",
    "Constant",
    "Jump",
    "Node",
    "Operand",
    "Path",
    "Pipe",
    "Show",
    "Tree",
    "parse",
]

UNSUPPORTED = frozenset({"define", "template", "block"})
_KEYWORDS = frozenset({"if", "with", "range", "else", "end", "break", "continue"}) | UNSUPPORTED
_DEEPEST = 40


class Constant(msgspec.Struct, frozen=True):
    value: str | int | float | bool | None


class Path(msgspec.Struct, frozen=True):
    """Fields below a start: `.` the dot, `$` the root, `?` a bare name, `(` an inner pipe, or a variable's slot."""

    start: str | int | Pipe
    names: tuple[str, ...]
    written: str


class Call(msgspec.Struct, frozen=True):
    function: str
    arguments: tuple[Operand, ...]
    at: int


class Pipe(msgspec.Struct, frozen=True):
    """A value, and the slots of the variables that it is assigned to."""

    value: Operand
    slots: tuple[int, ...]


Operand = Constant | Path | Call | Pipe


class Show(msgspec.Struct, frozen=True):
    pipe: Pipe


class Jump(msgspec.Struct, frozen=True):
    """break or continue."""

    word: str


class Block(msgspec.Struct, frozen=True):
    """if, with or range."""

    word: str
    pipe: Pipe
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]
    at: int


Node = Text | Show | Jump | Block


class Tree(msgspec.Struct, frozen=True):
    nodes: tuple[Node, ...]
    slots: int


def parse(source: str) -> Tree:
    """Return the tree of a template, or raise Misconfigured with the line and column."""
    if len(source) > LONGEST:
        raise Misconfigured(f"the template is {len(source)} characters long; at most {LONGEST} are allowed")
    reader = _Reader(source)
    nodes, ending = reader.nodes(within=())
    if ending is not None:
        raise error_at(
            source, ending.at, f"{{{{{ending.text}}}}} has no {{{{if}}}}, {{{{range}}}} or {{{{with}}}} before it"
        )
    return Tree(nodes, reader.slots)


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._pieces = pieces(source)
        self._names: list[tuple[str, int]] = []
        self._end_cursor: TokenCursor | None = None
        self.slots = 0

    def nodes(self, within: tuple[str, ...]) -> tuple[tuple[Node, ...], Token | None]:
        """Parse up to the `end` or `else` of the current block, and return that token too."""
        found: list[Node] = []
        for piece in self._pieces:
            if isinstance(piece, Text):
                found.append(piece)
                continue
            cursor = TokenCursor(self._source, piece)
            word = cursor.keyword()
            if word is not None and word.text in ("end", "else"):
                self._end_cursor = cursor
                return tuple(found), word
            found.append(self._node(cursor, word, within))
        return tuple(found), None

    def _node(self, cursor: TokenCursor, word: Token | None, within: tuple[str, ...]) -> Node:
        if word is None:
            pipe = self._pipe(cursor, 0, variables=1)
            cursor.finish()
            return Show(pipe)
        if word.text in UNSUPPORTED:
            raise error_at(self._source, word.at, f"{word.text} is not supported: a template cannot call another one")
        if word.text in ("break", "continue"):
            cursor.finish()
            if "range" not in within:
                raise error_at(self._source, word.at, f"{word.text} only works inside a range")
            return Jump(word.text)
        return self._block(cursor, word, within)

    def _block(self, cursor: TokenCursor, word: Token, within: tuple[str, ...]) -> Block:
        if len(within) >= _DEEPEST:
            raise error_at(self._source, word.at, f"blocks are nested more than {_DEEPEST} deep")
        known = len(self._names)
        pipe = self._pipe(cursor, 0, variables=2 if word.text == "range" else 1)
        cursor.finish()
        inside = (*within, word.text)
        body, ending = self.nodes(inside)
        otherwise: tuple[Node, ...] = ()
        last = self._expect_end(word, ending)
        if ending is not None and ending.text == "else":
            otherwise = self._else_nodes(word, last, inside)
        else:
            last.finish()
        del self._names[known:]
        return Block(word.text, pipe, body, otherwise, word.at)

    def _else_nodes(self, word: Token, cursor: TokenCursor, inside: tuple[str, ...]) -> tuple[Node, ...]:
        # {{else if}} opens a block that ends with the {{end}} of the outer one
        chained = cursor.keyword()
        if chained is not None and chained.text == word.text and word.text in ("if", "with"):
            return (self._block(cursor, chained, inside),)
        cursor.finish()
        nodes, ending = self.nodes(inside[:-1] if word.text == "range" else inside)
        last = self._expect_end(word, ending)
        if ending is not None and ending.text == "else":
            raise error_at(self._source, ending.at, "there is an {{else}} already")
        last.finish()
        return nodes

    def _expect_end(self, word: Token, ending: Token | None) -> TokenCursor:
        if ending is None or self._end_cursor is None:
            raise error_at(self._source, word.at, f"this {word.text} has no {{{{end}}}}")
        return self._end_cursor

    def _pipe(self, cursor: TokenCursor, depth: int, variables: int = 1) -> Pipe:
        targets, declares = self._targets(cursor, variables)
        value = self._command(cursor, depth, None)
        while cursor.take("|"):
            value = self._command(cursor, depth, value)
        slots = tuple(self._declare(name.text) if declares else self._slot(name) for name in targets)
        return Pipe(value, slots)

    def _targets(self, cursor: TokenCursor, variables: int) -> tuple[list[Token], bool]:
        targets = cursor.targets()
        if not targets:
            return [], False
        if len(targets) > variables:
            raise error_at(self._source, targets[-1].at, "too many variables; only range takes two")
        return targets, cursor.next().text == ":="

    def _declare(self, name: str) -> int:
        self._names.append((name, self.slots))
        self.slots += 1
        return self.slots - 1

    def _slot(self, name: Token) -> int:
        for known, slot in reversed(self._names):
            if known == name.text:
                return slot
        hint = suggest_clause(name.text, [known for known, _ in self._names])
        raise error_at(self._source, name.at, f"the variable {name.text} is not defined{hint}")

    def _command(self, cursor: TokenCursor, depth: int, piped: Operand | None) -> Operand:
        first = cursor.peek()
        calls = first is not None and first.kind == "name" and not cursor.is_path()
        if calls and first is not None and (piped is not None or cursor.has_argument()):
            cursor.next()
            return self._call(cursor, first, depth, piped)
        value = self._operand(cursor, depth)
        if cursor.has_operand() or piped is not None:
            raise self._not_a_function(cursor, first)
        return value

    def _not_a_function(self, cursor: TokenCursor, first: Token | None) -> Misconfigured:
        after = cursor.peek()
        if after is not None and after.kind == "number" and not after.spaced:
            return error_at(self._source, after.at, "a path cannot hold a number; write index .list 0")
        at, text = (first.at, first.text) if first else (cursor.end, "this")
        return error_at(self._source, at, f"{text} is not a function, it takes no arguments")

    def _call(self, cursor: TokenCursor, name: Token, depth: int, piped: Operand | None) -> Call:
        function = FUNCTIONS.get(name.text)
        if function is None:
            hint = suggest_clause(name.text, FUNCTIONS)
            raise error_at(self._source, name.at, f"there is no function {name.text}{hint}")
        arguments: list[Operand] = []
        while cursor.has_operand():
            arguments.append(self._operand(cursor, depth))
        if piped is not None:
            arguments.append(piped)
        if not function.least <= len(arguments) <= function.most:
            wanted = function.least if len(arguments) < function.least else function.most
            raise error_at(self._source, name.at, f"{name.text} takes {wanted} arguments, not {len(arguments)}")
        return Call(name.text, tuple(arguments), name.at)

    def _operand(self, cursor: TokenCursor, depth: int) -> Operand:
        token = cursor.next()
        if token.kind in ("string", "char", "number"):
            value: Operand = Constant(literal(self._source, token))
        elif token.text == "(":
            value = self._inner(cursor, token, depth)
        elif token.kind == "name" and token.text in ("true", "false", "nil"):
            value = Constant({"true": True, "false": False}.get(token.text))
        else:
            return self._path(cursor, token)
        names = cursor.fields()
        if names and not isinstance(value, Pipe):
            raise error_at(self._source, token.at, f"{token.text} has no fields")
        return Path(value, names, "(…)." + ".".join(names)) if names and isinstance(value, Pipe) else value

    def _inner(self, cursor: TokenCursor, token: Token, depth: int) -> Pipe:
        if depth >= _DEEPEST:
            raise error_at(self._source, token.at, f"parentheses are nested more than {_DEEPEST} deep")
        pipe = self._pipe(cursor, depth + 1)
        if not cursor.take(")"):
            raise error_at(self._source, token.at, "this ( is never closed")
        return pipe

    def _path(self, cursor: TokenCursor, token: Token) -> Path:
        names = cursor.fields()
        if token.kind == "field":
            names = (token.text[1:], *names)
            return Path(".", names, ".".join(names))
        if token.kind == "name":
            names = (token.text, *names)
            return Path("?", names, ".".join(names))
        if token.kind == "dot":
            return Path(".", (), ".")
        if token.kind == "variable":
            start: str | int = "$" if token.text == "$" else self._slot(token)
            return Path(start, names, ".".join((token.text, *names)))
        raise error_at(self._source, token.at, f"{token.text} cannot stand here")


class TokenCursor:
    """A cursor over the tokens of an action; its errors have a position."""

    def __init__(self, source: str, action: Action) -> None:
        self._source = source
        self._tokens: Sequence[Token] = action.tokens
        self._at = 0
        self.end = action.at

    def peek(self, ahead: int = 0) -> Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def next(self) -> Token:
        token = self.peek()
        if token is None:
            raise error_at(self._source, self.end, "a value is missing here")
        self._at += 1
        return token

    def take(self, text: str) -> bool:
        token = self.peek()
        if token is None or token.text != text or token.kind != "op":
            return False
        self._at += 1
        return True

    def keyword(self) -> Token | None:
        """Take a keyword (`if`, `end`, `break` …), if there is one. The same word in a path is not a keyword."""
        token = self.peek()
        if token is None or token.kind != "name" or token.text not in _KEYWORDS or self.is_path():
            return None
        return self.next()

    def is_path(self) -> bool:
        after = self.peek(1)
        return after is not None and after.kind == "field" and not after.spaced

    def fields(self) -> tuple[str, ...]:
        names: list[str] = []
        while (token := self.peek()) is not None and token.kind == "field" and not token.spaced:
            names.append(token.text[1:])
            self._at += 1
        return tuple(names)

    def has_operand(self) -> bool:
        token = self.peek()
        return token is not None and (token.kind != "op" or token.text == "(")

    def has_argument(self) -> bool:
        after = self.peek(1)
        return after is not None and (after.kind != "op" or after.text == "(")

    def targets(self) -> list[Token]:
        """Take `$a` or `$a, $b` if `:=` or `=` follows, which is not taken."""
        found: list[Token] = []
        ahead = 0
        while (token := self.peek(ahead)) is not None and token.kind == "variable":
            found.append(token)
            after = self.peek(ahead + 1)
            if after is None or after.kind != "op" or after.text not in (",", ":=", "="):
                return []
            ahead += 2 if after.text == "," else 1
            if after.text != ",":
                self._at += ahead
                return found
        return []

    def finish(self) -> None:
        token = self.peek()
        if token is not None:
            raise error_at(self._source, token.at, f"{token.text} cannot stand here")
