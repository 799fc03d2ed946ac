"""As much of JQL as the fake Jira answers: it is parsed, not searched for words, so what breaks out is seen to."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

__all__ = ["BadJql", "Test", "compiled"]

Test = Callable[[Mapping[str, Any]], bool]
_TOKEN = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(>=|<=|!=|=|>|<|~|\(|\)|,)|([^\s"'()=<>!~,\\]+))""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class BadJql(Exception):
    """What Jira would answer with 400."""


def compiled(jql: str, known: Mapping[str, Collection[str]]) -> tuple[Test | None, list[str]]:
    """The test that an issue has to pass (None: there is none), and the fields that the result is ordered by.

    `known` has the values of some fields, in lower case; any other value of them is refused, as Jira does it.
    """
    parser = _Parser(_tokens(jql), known)
    test = None if parser.peek() in ("", "order") else parser.either()
    order = parser.order()
    if parser.peek():
        raise BadJql(f"Error in the JQL Query: Expecting either 'OR' or 'AND' but got '{parser.peek()}'.")
    return test, order


def _tokens(jql: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    text = jql.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            raise BadJql(f"Error in the JQL Query: The character at {at} is a reserved or illegal JQL character.")
        string, sign, word = match.groups()
        kind = "string" if string is not None else "sign" if sign else "word"
        found.append((kind, _unescaped(string[1:-1]) if string is not None else sign or word))
        at = match.end()
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)


class _Parser:
    def __init__(self, tokens: Sequence[tuple[str, str]], known: Mapping[str, Collection[str]]) -> None:
        self._tokens = list(tokens)
        self._known = known

    def peek(self) -> str:
        """The next word or sign in lower case; a quoted string is never one."""
        if not self._tokens:
            return ""
        kind, text = self._tokens[0]
        return '"' if kind == "string" else text.casefold()

    def take(self, expected: str = "") -> str:
        if not self._tokens or (expected and self.peek() != expected):
            raise BadJql(f"Error in the JQL Query: Expecting '{expected or 'a value'}' but got '{self.peek()}'.")
        return self._tokens.pop(0)[1]

    def either(self) -> Test:
        tests = [self.both()]
        while self.peek() == "or":
            self.take()
            tests.append(self.both())
        return lambda issue: any(test(issue) for test in tests)

    def both(self) -> Test:
        tests = [self.clause()]
        while self.peek() == "and":
            self.take()
            tests.append(self.clause())
        return lambda issue: all(test(issue) for test in tests)

    def clause(self) -> Test:
        if self.peek() == "not":
            self.take()
            inner = self.clause()
            return lambda issue: not inner(issue)
        if self.peek() == "(":
            self.take()
            test = self.either()
            self.take(")")
            return test
        return self._comparison()

    def order(self) -> list[str]:
        if self.peek() != "order":
            return []
        self.take()
        self.take("by")
        fields = [self._order_field()]
        while self.peek() == ",":
            self.take()
            fields.append(self._order_field())
        return fields

    def _order_field(self) -> str:
        field = self.take().casefold()
        return f"-{field}" if self.peek() in ("asc", "desc") and self.take().casefold() == "desc" else field

    def _comparison(self) -> Test:
        field, sign = self.take().casefold(), self.take().casefold()
        if field not in ("project", "assignee", "issuetype", "status", "labels", "updated", "created", "priority"):
            raise BadJql(f"Field '{field}' does not exist or you do not have permission to view it.")
        if sign in (">=", "<=", ">", "<"):
            return _compared(field, sign, self.take())
        if sign not in ("=", "!=", "in"):
            raise BadJql(f"Error in the JQL Query: '{sign}' is not an operator here.")
        values = self._values() if sign == "in" else [self.take()]
        for value in values:
            if field in self._known and value.casefold() not in self._known[field]:
                raise BadJql(f"The value '{value}' does not exist for the field '{field}'.")
        return _named(field, values, sign != "!=")

    def _values(self) -> list[str]:
        self.take("(")
        values = [self.take()]
        while self.peek() == ",":
            self.take()
            values.append(self.take())
        self.take(")")
        return values


def _compared(field: str, sign: str, value: str) -> Test:
    if field not in ("updated", "created") or not value.isdigit():
        raise BadJql(f"Date value '{value}' for field '{field}' is invalid.")
    bound = int(value)
    tests: dict[str, Callable[[int], bool]] = {
        ">=": lambda ms: ms >= bound,
        "<=": lambda ms: ms <= bound,
        ">": lambda ms: ms > bound,
        "<": lambda ms: ms < bound,
    }
    return lambda issue: tests[sign](issue[field])


def _named(field: str, values: Sequence[str], wanted: bool) -> Test:
    names = {value.casefold() for value in values}
    return lambda issue: bool({name.casefold() for name in issue[field]} & names) is wanted
