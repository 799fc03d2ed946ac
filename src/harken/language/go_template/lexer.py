"""Split a Go template into text and the tokens of its actions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from harken.errors import Misconfigured

__all__ = ["Action", "Text", "Token", "error_at", "literal", "pieces"]

LONGEST = 256 * 1024

_SPACE = " \t\r\n"
_OPEN = "{{"
_TRIMMED_OPEN = re.compile(r"\{\{-(?=[ \t\r\n])")
_COMMENT = re.compile(r"[ \t\r\n]*/\*.*?\*/(?P<trim>[ \t\r\n]+-)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<close>(?:[ \t\r\n]+(?P<trim>-))?\}\})
    |(?P<space>[ \t\r\n]+)
    |(?P<string>"(?:\\.|[^"\\\n])*"|`[^`]*`)
    |(?P<char>'(?:\\[^\n]|[^'\\\n])[^'\n]*')
    |(?P<number>[+-]?(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?!\w))
    |(?P<field>\.[^\W\d]\w*)
    |(?P<dot>\.(?!\w))
    |(?P<variable>\$\w*)
    |(?P<name>[^\W\d]\w*)
    |(?P<op>:=|[=|(),])""",
    re.VERBOSE,
)
_LONGEST_NUMBER = 64
_SIMPLE = {"a": b"\a", "b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v"}
_SIMPLE |= {"\\": b"\\", "'": b"'", '"': b'"'}
_ESCAPE = re.compile(r"""\\([abfnrtv\\'"]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3})""")


class Token(msgspec.Struct, frozen=True):
    """`spaced` tells `.a .b` (two values) from `.a.b` (one path)."""

    kind: str
    text: str
    at: int
    spaced: bool


class Text(msgspec.Struct, frozen=True):
    text: str


class Action(msgspec.Struct, frozen=True):
    tokens: tuple[Token, ...]
    at: int


Piece = Text | Action


def pieces(source: str) -> Iterator[Piece]:
    """Yield literal text and actions in order, without comments and with trim markers applied."""
    at, trim = 0, False
    while True:
        start = source.find(_OPEN, at)
        text = source[at:] if start < 0 else source[at:start]
        if trim:
            text = text.lstrip(_SPACE)
        trimmed = _TRIMMED_OPEN.match(source, start) if start >= 0 else None
        text = text.rstrip(_SPACE) if trimmed else text
        if text:
            yield Text(text)
        if start < 0:
            return
        tokens, at, trim = _action(source, start, trimmed.end() if trimmed else start + len(_OPEN))
        if tokens is not None:
            yield Action(tuple(tokens), start)


def _action(source: str, start: int, at: int) -> tuple[list[Token] | None, int, bool]:
    comment = _COMMENT.match(source, at)
    if comment:
        return None, comment.end(), comment["trim"] is not None
    tokens: list[Token] = []
    spaced = True
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            raise error_at(source, at, _unreadable(source, at))
        if found["close"]:
            return tokens, found.end(), found["trim"] is not None
        if found.lastgroup != "space":
            tokens.append(Token(found.lastgroup or "", found.group(), at, spaced))
        spaced = found.lastgroup == "space"
        at = found.end()
    raise error_at(source, start, "this {{ is never closed with }}")


def _unreadable(source: str, at: int) -> str:
    if re.match(r"\.\d", source[at : at + 2]):
        return "a path cannot hold a number; write index .list 0"
    if source[at] in "\"'`":
        return "this quote is never closed"
    if source.startswith("/*", at):
        return "a comment must fill its braces: {{/* … */}}"
    hint = '; write index .object "a-b" for such a name' if source[at] == "-" else ""
    return f"{source[at]!r} cannot stand here{hint}"


def literal(source: str, token: Token) -> str | int | float:
    """Return the value of a string, character or number token."""
    if token.kind == "number":
        return _number(source, token)
    if token.text[0] == "`":
        return token.text[1:-1]
    text = _unescape(source, token)
    if token.kind == "string":
        return text
    if len(text) != 1:
        raise error_at(source, token.at, "single quotes hold one character; use double quotes for text")
    return ord(text)


def _unescape(source: str, token: Token) -> str:
    body = token.text[1:-1]
    if "\\" in _ESCAPE.sub("", body):
        raise error_at(source, token.at, "this text holds an unknown escape; write \\\\ for a backslash")
    # bytes, because Go reads \xc3\xa9 as the UTF-8 of one letter
    text, at = bytearray(), 0
    for found in _ESCAPE.finditer(body):
        text += body[at : found.start()].encode("utf-8", "replace") + _escape_bytes(found[1])
        at = found.end()
    return (text + body[at:].encode("utf-8", "replace")).decode("utf-8", "replace")


def _escape_bytes(code: str) -> bytes:
    if code in _SIMPLE:
        return _SIMPLE[code]
    if code[0] in "uU":
        point = int(code[1:], 16)
        return (chr(point) if point <= 0x10FFFF else "\ufffd").encode("utf-8", "replace")
    return bytes([int(code[1:], 16) if code[0] == "x" else int(code, 8) & 0xFF])


def _number(source: str, token: Token) -> int | float:
    text = token.text.replace("_", "")
    if len(text) > _LONGEST_NUMBER:
        raise error_at(source, token.at, "this number is too long")
    try:
        return int(text, 0)
    except ValueError:
        return _float(source, token, text)


def _float(source: str, token: Token, text: str) -> int | float:
    if text.lstrip("+-").isdigit():
        return int(text, 8) if set(text.lstrip("+-")) <= set("01234567") else int(text)
    try:
        return float(text)
    except ValueError as error:
        raise error_at(source, token.at, f"{token.text} is not a number") from error


def error_at(source: str, at: int, message: str) -> Misconfigured:
    """Return an error with the line and column of a position."""
    line = source.count("\n", 0, at) + 1
    column = at - source.rfind("\n", 0, at)
    return Misconfigured(f"{line}:{column}: {message}")
