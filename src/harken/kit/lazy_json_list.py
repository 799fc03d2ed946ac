"""The items of a JSON answer, however many there are.

A long answer is never decoded at once: that would stop everything else for seconds, and take twenty times its size.
Its list is found by brackets and strings alone, and its items are decoded in groups when they are used.
"""

from __future__ import annotations

import codecs
import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, overload

from harken.http import Reply
from harken.kit.events_by_field_paths import items_at
from harken.kit.timeout_without_own_work import OwnWork
from harken.language.dotted_paths import lookup

__all__ = ["items_in"]

WHOLE = 1_000_000
"""An answer of at most so many bytes is decoded at once."""

GROUP = 200
"""So many items are decoded together."""

TOKENS = 10_000
"""Tokens of one slice of work."""

_MARK = "harken: the items were here"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# an object without another one in it is one token, which is what most of a long list consists of
_FLAT = rb'\{[^{}\[\]"]*+(?:' + _STRING + rb'[^{}\[\]"]*+)*+\}'
_TOKEN = re.compile(_FLAT + rb"|" + _STRING + rb"|[\[\]{},]", re.DOTALL)
_KEYED = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)
_COLON = re.compile(rb"\s*:\s*")
_SPACE = re.compile(rb"\s*")
_OPEN, _CLOSE, _LIST, _LIST_END, _OBJECT, _COMMA, _QUOTE = b"[{", b"]}", b"["[0], b"]"[0], b"{"[0], b","[0], b'"'[0]


async def items_in(reply: Reply, path: str, whose: str) -> tuple[Any, Sequence[Any]]:
    """Return the document and its items at the path. The document of a long answer has a mark in their place.

    Raises RetryLater if the answer is not JSON, NeedsAttention when there is no list at the path.
    """
    if len(reply.body) > WHOLE:
        found = await _find(reply, path)
        if found is not None:
            return found
    document = reply.json()
    return document, items_at(document, path, whose)


async def _find(reply: Reply, path: str) -> tuple[Any, Items] | None:
    body, work = reply.body.removeprefix(codecs.BOM_UTF8), OwnWork()
    begin = await _list_at(body, path.split(".") if path else [], work)
    if begin is None:
        return None
    starts, count, end = await _borders(body, begin, work)
    if end is None:
        raise reply.not_json()
    document = reply.decoded(body[:begin] + f'"{_MARK}"'.encode() + body[end + 1 :])
    if lookup(document, path) != _MARK:
        # a key with dots in it, or the same key again: the whole document tells which counts
        return None
    return document, Items(reply, body, starts, count, end)


async def _list_at(body: bytes, keys: Sequence[str], work: OwnWork) -> int | None:
    """Return where the list begins that the keys lead to; None if there is no list there."""
    found = _SPACE.match(body)
    root = found.end() if found else 0
    if not keys:
        return root if body[root : root + 1] == b"[" else None
    wanted = [f'"{key}"'.encode() for key in keys]
    depth = matched = 0
    for number, token in enumerate(_KEYED.finditer(body, root)):
        if not number % TOKENS:
            await work.pause()
        char = body[token.start()]
        if char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
            matched = min(matched, max(depth - 1, 0))
        elif depth == matched + 1 and token[0] == wanted[matched] and (colon := _COLON.match(body, token.end())):
            value = body[colon.end() : colon.end() + 1]
            if matched + 1 == len(wanted):
                return colon.end() if value == b"[" else None
            matched += value == b"{"
    return None


async def _borders(body: bytes, begin: int, work: OwnWork) -> tuple[array[int], int, int | None]:
    """Return where each group of items begins, how many items there are, and where their list ends."""
    starts, commas, depth, last = array("Q", [begin + 1]), 0, 0, begin
    for number, token in enumerate(_TOKEN.finditer(body, begin + 1)):
        if not number % TOKENS:
            await work.pause()
        last = token.start()
        char = body[last]
        if char == _COMMA:
            if not depth:
                commas += 1
                if not commas % GROUP:
                    starts.append(last + 1)
        elif char == _QUOTE or (char == _OBJECT and token.end() - last > 1):
            continue
        elif char in _OPEN:
            depth += 1
        elif depth:
            depth -= 1
        elif char == _LIST_END:
            empty = not commas and not body[begin + 1 : last].strip()
            return starts, 0 if empty else commas + 1, last
        else:
            break
    return starts, 0, None


class Items(Sequence[Any]):
    """The items of a long list: those of one group are decoded at a time."""

    def __init__(self, reply: Reply, body: bytes, starts: array[int], count: int, end: int) -> None:
        self._reply = reply
        self._body = body
        # each group ends before a comma, the last one before the end of the list
        self._starts, self._count, self._end = starts, count, end
        self._group: list[Any] = []
        self._number = -1

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(self._count))]
        if at < 0:
            at += self._count
        if not 0 <= at < self._count:
            raise IndexError(at)
        number, within = divmod(at, GROUP)
        if number != self._number:
            self._group, self._number = self._decode(number), number
        return self._group[within]

    def __iter__(self) -> Iterator[Any]:
        return (self[at] for at in range(self._count))

    def _decode(self, number: int) -> list[Any]:
        last = number + 1 == len(self._starts)
        end = self._end if last else self._starts[number + 1] - 1
        group: list[Any] = self._reply.decoded(b"[" + self._body[self._starts[number] : end] + b"]")
        if len(group) != (self._count - number * GROUP if last else GROUP):
            raise self._reply.not_json()
        return group
