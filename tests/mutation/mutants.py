"""Small planted bugs: what can be changed in a source text so that a test should notice. All functions are pure.

Python is changed by its syntax tree, the SQL in its strings and Lua by their text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Mutant", "lua_mutants", "python_mutants"]

_OPPOSITE: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
}
_ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
_NAMES = {"max": "min", "min": "max", "any": "all", "all": "any"}
_SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|WHERE)\b")
_SQL_CHANGES = (
    (r"(?<![<>=])<=(?!>)", "<"),
    (r"(?<![<>=])<(?![<>=])", "<="),
    (r"(?<![<>=-])>=", ">"),
    (r"(?<![<>=-])>(?![<>=])", ">="),
    (r" FOR (NO KEY )?(UPDATE|KEY SHARE)\b", ""),
    (r"\bIS NULL\b", "IS NOT NULL"),
    (r"\bIS NOT NULL\b", "IS NULL"),
    (r"\bgreatest\(", "least("),
    (r"\+1\b", "+0"),
    (r"\bDESC\b", ""),
    (r" AND [a-z_.]+=[$?]\d*", ""),
    (r"\bOR IGNORE\b", "OR REPLACE"),
)
_LUA_CHANGES = (
    (r" <= ", " < "),
    (r" < ", " <= "),
    (r" >= ", " > "),
    (r" > ", " >= "),
    (r" == ", " ~= "),
    (r" ~= ", " == "),
    (r"\bnot ", ""),
    (r" and ", " or "),
    (r" or ", " and "),
    (r" \+ 1\b", " + 0"),
    (r"math\.max", "math.min"),
    (r"^(\s+)call\(.*\)$", r"\1do end"),
)
_ORDERED = re.compile(r"\b(commit|flush|take|advance|settle|journal|drop|record\w*|append|put|accept|_write\w*)\(")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A change of one place: `text` is the whole source with it, `line` where it is, `what` a word for people."""

    line: int
    what: str
    text: str


class _Lines:
    """A source text by lines, in which a part can be replaced. Columns of the syntax tree count bytes of UTF-8."""

    def __init__(self, source: str) -> None:
        self._lines = [line.encode() for line in source.splitlines(keepends=True)]

    def part(self, node: ast.expr | ast.stmt) -> str:
        return b"".join(self._cut(node)[1]).decode()

    def replaced(self, node: ast.expr | ast.stmt, by: str) -> str:
        before, _, after = self._cut(node)
        return b"".join([*before, by.encode(), *after]).decode()

    def _cut(self, node: ast.expr | ast.stmt) -> tuple[list[bytes], list[bytes], list[bytes]]:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        begin, end = node.col_offset, node.end_col_offset or 0
        whole = self._lines
        before = [*whole[:first], whole[first][:begin]]
        after = [whole[last][end:], *whole[last + 1 :]]
        inside = b"".join(whole[first : last + 1])[begin : -len(whole[last][end:]) or None]
        return before, [inside], after


def python_mutants(source: str) -> Iterator[Mutant]:
    lines, tree = _Lines(source), ast.parse(source)
    for node in ast.walk(tree):
        for what, by in _expressions(node, lines):
            assert isinstance(node, ast.expr | ast.stmt)
            yield Mutant(line=node.lineno, what=what, text=lines.replaced(node, by))
        yield from _sql(node, lines)
        yield from _swaps(node, lines)


def _expressions(node: ast.AST, lines: _Lines) -> Iterator[tuple[str, str]]:
    """What the node may become: a word for the change, and the new text."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            new = _OPPOSITE[type(op)]
            yield f"{type(op).__name__} to {new}", _compared(left, new, right, lines)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not dropped", f"({lines.part(operand)})"
        case ast.BoolOp(op=op, values=values):
            new = "or" if isinstance(op, ast.And) else "and"
            yield f"to {new}", "(" + f" {new} ".join(f"({lines.part(value)})" for value in values) + ")"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            new = _ARITHMETIC[type(op)]
            yield f"to {new}", f"({lines.part(left)} {new} {lines.part(right)})"
        case ast.Constant(value=bool() as value):
            yield f"to {not value}", str(not value)
        case ast.Constant(value=int() | float() as value):
            yield f"{value} to {value + 1}", str(value + 1)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "branches swapped", f"({lines.part(orelse)} if {lines.part(test)} else {lines.part(body)})"
        case ast.Name(id=name, ctx=ast.Load()) if name in _NAMES:
            yield f"{name} to {_NAMES[name]}", _NAMES[name]
        case ast.Expr(value=ast.Await(value=ast.Call()) | ast.Call() as value) if not _only_logs(value):
            yield "call dropped", "pass"
        case ast.Continue():
            yield "continue to break", "break"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "returns None", "return None"
        case ast.AugAssign():
            yield "assignment dropped", "pass"
        case _:
            return


def _compared(left: ast.expr, op: str, right: ast.expr, lines: _Lines) -> str:
    return f"({lines.part(left)} {op} {lines.part(right)})"


def _only_logs(value: ast.expr) -> bool:
    return ast.unparse(value).removeprefix("await ").startswith(("log.", "self._log", "getattr(log"))


def _sql(node: ast.AST, lines: _Lines) -> Iterator[Mutant]:
    if not isinstance(node, ast.Constant | ast.JoinedStr) or not _SQL.search(text := lines.part(node)):
        return
    for pattern, by in _SQL_CHANGES:
        for found in re.finditer(pattern, text):
            new = text[: found.start()] + by + text[found.end() :]
            line = node.lineno + text[: found.start()].count("\n")
            yield Mutant(line=line, what=f"SQL{found[0]!r} to {by!r}", text=lines.replaced(node, new))


def _swaps(node: ast.AST, lines: _Lines) -> Iterator[Mutant]:
    """Neighbours in the same block change places, where one of them writes something."""
    for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
        for one, other in pairwise(block if isinstance(block, list) else []):
            simple = all(isinstance(each, ast.Expr | ast.Assign | ast.AugAssign) for each in (one, other))
            first, second = lines.part(one), lines.part(other)
            if simple and _ORDERED.search(first + second) and not first.startswith(('"', "'")):
                swapped = _Lines(lines.replaced(other, first)).replaced(one, second)
                yield Mutant(line=one.lineno, what="statements swapped", text=swapped)


def lua_mutants(source: str) -> Iterator[Mutant]:
    lines = source.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.lstrip().startswith("--"):
            continue
        for pattern, by in _LUA_CHANGES:
            for found in re.finditer(pattern, line.rstrip("\n")):
                new = line[: found.start()] + found.expand(by) + line[found.end() :]
                text = "".join([*lines[:number], new, *lines[number + 1 :]])
                yield Mutant(line=number + 1, what=f"{found[0].strip()!r} to {by.strip()!r}", text=text)
