"""Parse YAML 1.2: only true and false are booleans, duplicate keys are errors, and every value has its position.

Reads the events of libyaml, with limits on size, depth and the expansion of aliases: any bytes give a tree or findings.
"""

from __future__ import annotations

import math
import re
import stat
from pathlib import Path as FilePath
from typing import Any

import msgspec
import yaml

from harken.config.findings import Path, Place, Report
from harken.config.yaml.nodes import Items, Node, Scalar, Table, Value

__all__ = ["MAX_BYTES", "InvalidScalar", "parse", "read_source", "resolve_scalar"]

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 1_000_000
MAX_KEYS = 100_000
MAX_KEYS_OF_ONE = 20_000
_PREFIX = "tag:yaml.org,2002:"
_TAGS = frozenset({"!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})
_MERGE = "<<"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def parse(source: bytes, file: str, report: Report) -> Node | None:
    """Return the tree of the only document; None when it cannot be read. An empty file is an empty Scalar."""
    text = _decode(source, file, report)
    if text is None:
        return None
    try:
        return _Composer(text, file, report).document()
    except _Abort:
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _place(file, mark) if mark else Place(file)
        report.error(place, (), f"not YAML: {error.problem or error.context}", _syntax_fix(error), "syntax")
    except yaml.YAMLError as error:
        reason = getattr(error, "reason", "it cannot be read")
        report.error(Place(file), (), f"not YAML: {reason}", "Remove control characters", "syntax")
    return None


def read_source(path: FilePath, file: str, report: Report) -> bytes | None:
    """Return what is in a file that is called `file` in findings; None when it cannot be read."""
    try:
        found = path.stat()
        # reading a pipe or a device may never end
        if not stat.S_ISREG(found.st_mode):
            report.error(Place(file), (), "not a regular file", "Put a file here", "unreadable")
            return None
        with path.open("rb") as stream:
            # with a bound, room for as much is made each time
            return stream.read(MAX_BYTES + 1) if found.st_size > MAX_BYTES else stream.read()
    except OSError as error:
        report.error(
            Place(file), (), f"cannot be read: {error.strerror}", "Check that it exists and is readable", "unreadable"
        )
        return None


def _decode(source: bytes, file: str, report: Report) -> str | None:
    if len(source) > MAX_BYTES:
        report.error(Place(file), (), f"larger than {MAX_BYTES // 1024 // 1024} MB", "Split the file", "syntax")
        return None
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = source[: error.start].split(b"\n")
        place = Place(file, len(before), len(before[-1]) + 1)
        report.error(place, (), "not UTF-8 text", "Save the file as UTF-8", "syntax")
        return None


def _syntax_fix(error: yaml.MarkedYAMLError) -> str:
    problem = f"{error.problem or ''} {error.context or ''}"
    if "cannot start any token" in problem:
        return "Indent with spaces, not tabs, and put text that begins with a special character in quotes"
    if "mapping values are not allowed" in problem:
        return "Put text that holds ': ' in quotes, or check the indentation"
    if "alias" in problem:
        return "Define the anchor with & before it is used"
    return "Check the indentation, quotes and brackets around this place"


class _Abort(Exception):
    """The file cannot be read further; the report says why."""


class _Anchored(msgspec.Struct, frozen=True, gc=False):
    node: Node
    size: int


class _Composer:
    def __init__(self, text: str, file: str, report: Report) -> None:
        self._parser: Any = yaml.CSafeLoader(text)
        self._file = file
        self._report = report
        self._anchors: dict[str, _Anchored | None] = {}
        self._size = 0
        self._keys = 0

    def document(self) -> Node:
        self._parser.get_event()
        if isinstance(self._parser.peek_event(), yaml.StreamEndEvent):
            return Scalar(value=None, place=Place(self._file))
        self._parser.get_event()
        node = self._node(())
        self._parser.get_event()
        following = self._parser.get_event()
        if not isinstance(following, yaml.StreamEndEvent):
            place = _place(self._file, following.start_mark)
            raise self._abort(place, (), "a second document begins here", "Put it into a file of its own")
        return node

    def _node(self, path: Path) -> Node:
        event = self._parser.get_event()
        place = _place(self._file, event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, place, path)
        self._count(1, place, path)
        if len(path) > MAX_DEPTH:
            raise self._abort(place, path[:3], f"nested deeper than {MAX_DEPTH} levels", "Make it flatter")
        before = self._size
        if event.anchor:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node: Node = self._scalar(event, place, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._items(place, path)
        else:
            node = self._table(place, path)
        self._check_tag(event, place, path)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(node, self._size - before + 1)
        return node

    def _items(self, place: Place, path: Path) -> Items:
        found: list[Node] = []
        while not isinstance(self._parser.peek_event(), yaml.SequenceEndEvent):
            found.append(self._node((*path, len(found))))
        self._parser.get_event()
        return Items(items=tuple(found), place=place)

    def _table(self, place: Place, path: Path) -> Table:
        items: dict[str, Node] = {}
        keys: dict[str, Place] = {}
        merged: list[Table] = []
        while not isinstance(self._parser.peek_event(), yaml.MappingEndEvent):
            key, at, merges = self._key(path)
            value = self._node((*path, key))
            if merges:
                merged += self._merge_sources(value, (*path, key))
            elif key in items:
                self._report_duplicate(keys[key], at, (*path, key))
            elif len(items) == MAX_KEYS_OF_ONE:
                raise self._abort(at, path[:3], f"more than {MAX_KEYS_OF_ONE:,} keys in one mapping", "Split the file")
            else:
                items[key], keys[key] = value, at
        self._parser.get_event()
        for source in merged:
            for key, value in source.items.items():
                if key not in items:
                    items[key], keys[key] = value, source.keys[key]
        return Table(items=items, keys=keys, place=place)

    def _key(self, path: Path) -> tuple[str, Place, bool]:
        event = self._parser.get_event()
        place = _place(self._file, event.start_mark)
        self._keys += 1
        if self._keys > MAX_KEYS:
            raise self._abort(place, path[:3], f"more than {MAX_KEYS:,} keys", "Split the file")
        if isinstance(event, yaml.AliasEvent):
            node = self._alias(event.anchor, place, path)
            if isinstance(node, Scalar) and isinstance(node.value, str):
                return node.value, place, False
        elif isinstance(event, yaml.ScalarEvent):
            self._count(1, place, path)
            if event.anchor:
                self._anchors[event.anchor] = _Anchored(Scalar(value=event.value, place=place), 1)
            return event.value, place, event.value == _MERGE and event.implicit[0]
        raise self._abort(place, path, "a key must be plain text", "Write key: value")

    def _merge_sources(self, node: Node, path: Path) -> list[Table]:
        candidates = node.items if isinstance(node, Items) else (node,)
        tables = [item for item in candidates if isinstance(item, Table)]
        if len(tables) < len(candidates):
            self._report.error(node.place, path, "<< takes a mapping or a list of them", "Write <<: *anchor", "syntax")
        for table in tables:
            self._count(len(table.items), node.place, path)
        return tables

    def _alias(self, anchor: str | None, place: Place, path: Path) -> Node:
        if anchor is None or anchor not in self._anchors:
            # it may be a password that begins with *, so the message does not quote it
            fix = "Define it before it is used, or put quotes around a text that begins with *"
            raise self._abort(place, path, "there is no anchor of this name above", fix)
        anchored = self._anchors[anchor]
        if anchored is None:
            raise self._abort(place, path, f"*{anchor} stands inside itself", "Write the value out")
        self._count(anchored.size, place, path)
        if len(path) + _depth(anchored.node, MAX_DEPTH) > MAX_DEPTH:
            raise self._abort(place, path[:3], f"nested deeper than {MAX_DEPTH} levels", "Make it flatter")
        return anchored.node

    def _scalar(self, event: yaml.ScalarEvent, place: Place, path: Path) -> Scalar:
        try:
            return Scalar(value=resolve_scalar(event.value, event.tag, plain=event.implicit[0]), place=place)
        except InvalidScalar as error:
            self._report.error(place, path, str(error), "Put quotes around it if it is text", "syntax")
            return Scalar(value=None, place=place)

    def _check_tag(self, event: yaml.NodeEvent, place: Place, path: Path) -> None:
        tag = getattr(event, "tag", None)
        known = isinstance(event, yaml.ScalarEvent) and str(tag).startswith("tag:yaml.org,2002:")
        if tag and not known and tag not in _TAGS:
            # it may be a password that begins with !, so the message does not quote it
            fix = "Remove it, or put quotes around a text that begins with !"
            self._report.error(place, path, "this tag means nothing here", fix, "syntax")

    def _report_duplicate(self, first: Place, second: Place, path: Path) -> None:
        fix = "Keep one of them"
        self._report.error(first, path, f"this key stands again in line {second.line}", fix, "duplicate")
        self._report.error(second, path, f"this key stands already in line {first.line}", fix, "duplicate")

    def _count(self, nodes: int, place: Place, path: Path) -> None:
        self._size += nodes
        if self._size > MAX_NODES:
            raise self._abort(place, path[:3], f"more than {MAX_NODES:,} values with aliases", "Use fewer aliases")

    def _abort(self, place: Place, path: Path, message: str, fix: str) -> _Abort:
        self._report.error(place, path, message, fix, "syntax")
        return _Abort()


def _depth(node: Node, bound: int) -> int:
    if bound < 0 or isinstance(node, Scalar):
        return 1
    children = node.items.values() if isinstance(node, Table) else node.items
    return 1 + max((_depth(child, bound - 1) for child in children), default=0)


def _place(file: str, mark: Any) -> Place:
    return Place(file, mark.line + 1, mark.column + 1)


class InvalidScalar(ValueError):
    """The text looks like a value that JSON cannot hold, or does not fit its tag."""


def resolve_scalar(text: str, tag: str | None, *, plain: bool) -> Value:
    """Return the value of a scalar. Quoted scalars and those with !!str are texts."""
    if tag and tag.startswith(_PREFIX):
        return _tagged(text, tag.removeprefix(_PREFIX))
    return _untagged(text) if plain else text


def _tagged(text: str, name: str) -> Value:
    if name in ("int", "float", "bool", "null"):
        value = _untagged(text)
        names = {int: "int", float: "float", bool: "bool", type(None): "null"}
        if names.get(type(value)) == name or (name == "float" and type(value) is int):
            return value
        raise InvalidScalar(f"this is not a !!{name}")
    if name in ("str", "timestamp"):
        return text
    raise InvalidScalar("this tag means nothing here")


def _untagged(text: str) -> Value:
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return _number(text)
    return text


def _integer(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    # 64 bits need at most 22 octal digits, so a longer text is never in range
    value = int(text.lstrip("+") if base == 10 else text[2:], base) if len(text) < 40 else _HIGHEST + 1
    if not _LOWEST <= value <= _HIGHEST:
        raise InvalidScalar("this number needs more than 64 bits")
    return value


def _number(text: str) -> float:
    value = float(text) if _FLOAT.fullmatch(text) else math.inf
    if not math.isfinite(value):
        raise InvalidScalar("this is not a finite number")
    return value
