"""The rules of WHATWG for event streams, as a table, however the bytes are cut."""

from __future__ import annotations

import pytest

from harken.services.sse.parser import Parser

Parsed = list[tuple[bytes | None, str, str]]

RULES: dict[str, tuple[bytes, Parsed]] = {
    "one event": (b"data: a\n\n", [(b"a", "", "")]),
    "CR": (b"data: a\r\rdata: b\r\r", [(b"a", "", ""), (b"b", "", "")]),
    "CR LF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [(b"a", "", ""), (b"b", "", "")]),
    "line ends are mixed": (b"data: a\rdata: b\ndata: c\r\n\r\n", [(b"a\nb\nc", "", "")]),
    "LF CR is two line ends": (b"data: a\n\rdata: b\n\n", [(b"a", "", ""), (b"b", "", "")]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [(b"a", "", "")]),
    "only the first mark counts": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
    "a mark on a later line": (b"\n\xef\xbb\xbfdata: a\n\n", []),
    "several lines": (b"data: YHOO\ndata: +2\ndata: 10\n\n", [(b"YHOO\n+2\n10", "", "")]),
    "one space is taken away": (
        b"data:  a\n\ndata:a\n\ndata:\ta\n\n",
        [(b" a", "", ""), (b"a", "", ""), (b"\ta", "", "")],
    ),
    "data without a value": (b"data\n\ndata\ndata\n\ndata:\n\n", [(b"", "", ""), (b"\n", "", ""), (b"", "", "")]),
    "no data, no event": (b"event: x\n\ndata: a\n\n", [(b"a", "", "")]),
    "not ended, not sent": (b"data: a\n", []),
    "not even its line ended": (b"data: a", []),
    "comments": (b": test stream\n\n:\ndata: a\n:data: b\n\n", [(b"a", "", "")]),
    "name of an event": (b"event: add\ndata: a\n\ndata: b\n\n", [(b"a", "add", ""), (b"b", "", "")]),
    "the last name counts": (b"event: x\nevent: y\ndata: a\n\n", [(b"a", "y", "")]),
    "an id lasts": (b"data: a\nid: 1\n\ndata: b\n\n", [(b"a", "", "1"), (b"b", "", "1")]),
    "an id is taken back": (b"id: 1\ndata: a\n\nid\ndata: b\n\n", [(b"a", "", "1"), (b"b", "", "")]),
    "an id with a null": (b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n", [(b"a", "", "1"), (b"b", "", "1")]),
    "an id of an unfinished event": (b"id: 1\ndata: a\n\nid: 2\ndata: b\n", [(b"a", "", "1")]),
    "an id without data": (b"id: 9\n\n", [(None, "", "9")]),
    "names of fields are exact": (b"Data: a\n data: b\ndata : c\ndatum: d\n\n", []),
    "colons in the value": (b"data: a: b\n\n", [(b"a: b", "", "")]),
    "what is not UTF-8 stays": (b"data: \xff\n\n", [(b"\xff", "", "")]),
    "a line separator is no line end": ("data: a\u2028b\n\n".encode(), [("a\u2028b".encode(), "", "")]),
}


def parse(pieces: list[bytes], limit: int = 1_000) -> Parsed:
    parser = Parser(limit)
    return [(event.data, event.name, event.id) for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule: str) -> None:
    stream, parsed = RULES[rule]
    assert parse([stream]) == parsed


@pytest.mark.parametrize("rule", RULES)
def test_rule_however_the_bytes_are_cut(rule: str) -> None:
    stream, parsed = RULES[rule]
    assert parse([bytes([byte]) for byte in stream]) == parsed
    for cut in range(len(stream)):
        assert parse([stream[:cut], b"", stream[cut:]]) == parsed


@pytest.mark.parametrize(
    ("line", "milliseconds"),
    [("retry: 5000", 5_000), ("retry: 5s", None), ("retry: -1", None), ("retry:", None), ("retry: 1.5", None)],
)
def test_retry_is_a_number_of_digits(line: str, milliseconds: int | None) -> None:
    parser = Parser(1_000)
    parser.feed(f"{line}\n".encode())
    assert parser.retry_ms == milliseconds


def test_a_huge_line_is_cut_and_memory_does_not_grow() -> None:
    parser = Parser(100)
    parser.feed(b"data: ")
    for _ in range(1_000):
        assert not parser.feed(b"x" * 1_000)
    assert len(parser._line) <= 116
    [event] = parser.feed(b"\n\n")
    assert event.data is not None
    assert len(event.data) == 101, "one more than is allowed, so that it is rejected"


def test_many_lines_are_cut_and_memory_does_not_grow() -> None:
    parser = Parser(100)
    for _ in range(1_000):
        assert not parser.feed(b"data: xxxxxxxxxx\n")
    [event] = parser.feed(b"\n")
    assert event.data is not None
    assert len(event.data) == 101
    assert parse([b"data: after\n\n"]) == [(b"after", "", "")]
