"""YAML: values, places, limits, and no traceback whatever the bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.config.findings import Place, Report
from harken.config.yaml.nodes import Scalar, locate, to_plain
from harken.config.yaml.parser import parse
from harken.config.yaml.writer import to_yaml


def values(source: str | bytes) -> Any:
    report = Report()
    tree = parse(source if isinstance(source, bytes) else source.encode(), "x.yaml", report)
    assert not report.findings, [str(finding) for finding in report.findings]
    assert tree is not None
    return to_plain(tree)


def problems(source: str | bytes) -> list[str]:
    report = Report()
    parse(source if isinstance(source, bytes) else source.encode(), "x.yaml", report)
    return [str(finding) for finding in report.findings]


@pytest.mark.parametrize(
    "word", ["on", "off", "yes", "no", "y", "n", "On", "YES", "1_000", "2026-01-01", "12:30:45", "0b1"]
)
def test_words_that_older_yaml_turns_into_other_things_stay_text(word: str) -> None:
    assert values(f"{word}: {word}") == {word: word}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-7", -7),
        ("+3", 3),
        ("0o17", 15),
        ("0x1F", 31),
        ("007", 7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("!!int 12", 12),
        ("!!float 12", 12),
        ('"\\u00e9"', "é"),
        ("| \n  a\n  b", "a\nb"),
    ],
)
def test_scalars_mean_what_the_core_schema_says(text: str, value: Any) -> None:
    assert values(f"a: {text}") == {"a": value}


def test_every_key_and_value_knows_its_place() -> None:
    tree = parse(b"a:\n  - x: 1\n    yy:  two\n", "f.yaml", Report())
    assert tree is not None
    assert locate(tree, ("a", 0, "yy")) == Place("f.yaml", 3, 10)
    assert locate(tree, ("a", 0, "yy"), key=True) == Place("f.yaml", 3, 5)
    assert locate(tree, ("a", 0, "missing")) == Place("f.yaml", 2, 5)


def test_a_duplicate_key_is_an_error_at_both_places() -> None:
    assert problems("a: 1\nb: 2\na: 3\n") == [
        "x.yaml:1:1: a: this key stands again in line 3. Keep one of them",
        "x.yaml:3:1: a: this key stands already in line 1. Keep one of them",
    ]


def test_merge_keys_take_what_is_not_written_out() -> None:
    source = "one: &one {a: 1, b: 2}\ntwo: &two {b: 3, c: 4}\nall: {<<: [*one, *two], a: 0}\nquoted: {'<<': 1}"
    assert values(source)["all"] == {"a": 0, "b": 2, "c": 4}
    assert values(source)["quoted"] == {"<<": 1}


def test_a_merge_of_something_else_is_an_error() -> None:
    assert "<< takes a mapping" in problems("a: {<<: 3}")[0]


def test_aliases_that_expand_without_end_are_refused() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    assert "more than 1,000,000 values" in problems(bomb)[0]


def test_an_alias_inside_itself_is_refused() -> None:
    assert "stands inside itself" in problems("a: &a [*a]")[0]
    assert "no anchor" in problems("a: *b")[0]


@pytest.mark.parametrize("source", ["password: !S3cret-x y", "password: !!S3cret-x y", "password: *S3cret-x"])
def test_a_password_that_looks_like_a_tag_or_an_alias_is_not_repeated(source: str) -> None:
    (problem,) = problems(source)
    assert "S3cret-x" not in problem
    assert "quotes around" in problem


@pytest.mark.parametrize("source", ["[" * 5000, "{a: " * 5000, "- " * 3000, "a: &x [[[[[[*x]]]]]]"])
def test_deep_nesting_is_refused(source: str) -> None:
    assert problems(source)


def test_deep_nesting_through_aliases_is_refused() -> None:
    source = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 100))
    assert "nested deeper than 64" in problems(source)[0]


@pytest.mark.parametrize(
    "text", ["9" * 5000, "0x" + "F" * 17, "99999999999999999999", ".inf", ".nan", "1e999", "!!int x"]
)
def test_numbers_that_json_cannot_hold_are_errors_with_their_place(text: str) -> None:
    assert problems(f"a: {text}")[0].startswith("x.yaml:1:4: a: ")


@pytest.mark.parametrize(
    "source", ["a: !thing 1", "a: !!python/object:os.system {}", "a: !!binary abc=", "a: !!set {x}"]
)
def test_tags_mean_nothing(source: str) -> None:
    assert "means nothing here" in problems(source)[0]


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("a:\n\tb: 1", "2:1"),
        ("a: b: c", "1:5"),
        ("a: [1, 2", "2:1"),
        ("a: 'x", "1:6"),
        ("a: 1\n---\nb: 2", "2:1"),
        ("? [a]\n: 1", "1:3"),
        ("a: %x", "1:4"),
    ],
)
def test_syntax_errors_have_a_place(source: str, place: str) -> None:
    assert problems(source)[0].startswith(f"x.yaml:{place}: ")


def test_byte_order_marks_and_windows_line_ends_are_fine() -> None:
    assert values(b"\xef\xbb\xbfa: 1\r\nb: two\r\n") == {"a": 1, "b": "two"}


@pytest.mark.parametrize("source", ["", "   \n", "# only a comment\n", "---\n", "--- \n..."])
def test_an_empty_file_is_nothing(source: str) -> None:
    assert values(source) is None


def test_text_that_is_not_utf8_is_reported_where_it_begins() -> None:
    assert problems(b"a: 1\nb: \xff\n") == ["x.yaml:2:4: not UTF-8 text. Save the file as UTF-8"]


def test_binary_is_reported() -> None:
    assert problems(b"\x00\x01\x02")[0].startswith("x.yaml:1:1: not YAML")
    assert "larger than" in problems(b"a" * (16 * 1024 * 1024 + 1))[0]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_tree_or_findings(source: bytes) -> None:
    report = Report()
    assert (parse(source, "x.yaml", report) is None) <= report.failed


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@`#,? \n\t<0.1~\\", max_size=60))
def test_any_text_gives_a_tree_or_findings(source: str) -> None:
    report = Report()
    assert (parse(source.encode(), "x.yaml", report) is None) <= report.failed


def test_scalars_are_values() -> None:
    assert Scalar(value=1, place=Place("x")) == Scalar(value=1, place=Place("x"))


ODD = (
    *("\r", "\x85", "\u2028", "\u2029", "\ufeff", "a\r\nb", "a\u2028\nb", "\tx", " a", "a ", "a\n", "\n\n"),
    *("---\n", "#", "~", "1e3", "😀"),
)


@pytest.mark.parametrize("text", ODD)
def test_what_is_written_is_read_back_as_it_was(text: str) -> None:
    value = {"a": text, text: ["b", text], "c": {"d": f"x{text}y"}}
    assert values(to_yaml(value)) == value
