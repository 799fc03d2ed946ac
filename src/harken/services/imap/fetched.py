"""What a server answers to FETCH, taken apart. What cannot be understood is left out, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

__all__ = ["Raw", "raws_of"]

_TOKEN = re.compile(rb'\(|\)|"(?:[^"\\]|\\.)*"|[^\s()"]+')
_MARK = re.compile(rb"\{\d+\+?\}\s*$")
_DEEPEST = 20


class Raw(msgspec.Struct, frozen=True, kw_only=True):
    """A mail as it came: its beginning, and how large all of it is."""

    uid: int
    flags: tuple[str, ...] = ()
    came: str = ""
    size: int = 0
    data: bytes = b""


def raws_of(answer: Sequence[Any]) -> list[Raw]:
    """The mails in the answer that have a uid and a body; a server may tell of other things meanwhile."""
    found = [raw for items in _lists(_tokens(answer)) if (raw := _raw(items)) is not None]
    return list({raw.uid: raw for raw in found}.values())


class _Literal(bytes):
    """Text of the mail, which is no syntax whatever it holds."""


def _tokens(answer: Sequence[Any]) -> Iterator[bytes]:
    for piece in answer:
        if isinstance(piece, tuple) and len(piece) == 2:
            yield from _TOKEN.findall(_MARK.sub(b"", piece[0]))
            yield _Literal(piece[1])
        elif isinstance(piece, bytes):
            yield from _TOKEN.findall(piece)


def _lists(tokens: Iterator[bytes]) -> Iterator[list[Any]]:
    """Each outermost list; those inside are lists too."""
    stack: list[list[Any]] = []
    for token in tokens:
        if isinstance(token, _Literal):
            if stack:
                stack[-1].append(token)
        elif token == b"(" and len(stack) < _DEEPEST:
            stack.append([])
        elif token == b")" and stack:
            done = stack.pop()
            if not stack:
                yield done
            else:
                stack[-1].append(done)
        elif stack:
            stack[-1].append(_unquoted(token))


def _unquoted(token: bytes) -> bytes:
    return re.sub(rb"\\(.)", rb"\1", token[1:-1]) if token.startswith(b'"') and len(token) > 1 else token


def _raw(items: list[Any]) -> Raw | None:
    named = {bytes(key).upper(): value for key, value in zip(items[::2], items[1::2], strict=False) if _is_word(key)}
    body = next((value for key, value in named.items() if key.startswith(b"BODY[")), None)
    uid = _number(named.get(b"UID"))
    if not uid or not isinstance(body, bytes):
        return None
    flags = named.get(b"FLAGS")
    return Raw(
        uid=uid,
        flags=tuple(_ascii(flag).lstrip("\\") for flag in flags if _is_word(flag)) if isinstance(flags, list) else (),
        came=_ascii(named.get(b"INTERNALDATE")),
        size=_number(named.get(b"RFC822.SIZE")),
        data=b"" if body == b"NIL" and not isinstance(body, _Literal) else bytes(body),
    )


def _is_word(value: Any) -> bool:
    return isinstance(value, bytes) and not isinstance(value, _Literal)


def _number(value: Any) -> int:
    return int(value) if _is_word(value) and value.isdigit() and len(value) <= 12 else 0


def _ascii(value: Any) -> str:
    return bytes(value).decode("ascii", "replace") if isinstance(value, bytes) else ""
