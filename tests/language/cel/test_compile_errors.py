"""Conditions that do not compile: what was meant, and where."""

from __future__ import annotations

import pytest

from harken.language.cel import InvalidCondition, compile_condition
from harken.language.cel.compile_errors import FUNCTIONS


def fault(source: str) -> InvalidCondition:
    with pytest.raises(InvalidCondition) as caught:
        compile_condition(source)
    return caught.value


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("event.x == 1 and event.y == 2", "1:14: write && instead of and"),
        ("event.x AND event.y", "1:9: write && instead of AND"),
        ("event.x or event.y", "1:9: write || instead of or"),
        ("not event.x", "1:1: write ! instead of not"),
        ("not(event.x)", "1:1: write ! instead of not"),
        ("event.x && not event.y", "1:12: write ! instead of not"),
        ('event.x not in ["a"]', "1:9: write !(a in b) instead of a not in b"),
        ("event.x = 1", "1:9: write == instead of ="),
        ("event.x === 1", "1:9: write == instead of ==="),
        ("event.x <> 1", "1:9: write != instead of <>"),
        ("event.x is null", "1:9: write == instead of is"),
        ("event.x == None", "1:12: write null instead of None"),
        ("event.x == “a”", '1:12: write " instead of “; 1:14: write " instead of ”'),
        ('event.x == "a', '1:12: the text has no closing "'),
        ('event.title contains "x"', "1:13: write .contains(…) instead of contains …"),
        ('event.x.startWith("a")', "1:9: there is no function startWith; did you mean startsWith?"),
        ("sizze(event.x) > 1", "1:1: there is no function sizze; did you mean size?"),
        ("len(event.x) > 1", "1:1: there is no function len; did you mean size?"),
        ('event.title.lower() == "a"', "1:13: there is no function lower; did you mean lowerAscii?"),
    ],
)
def test_cel_errors_say_what_was_meant(source: str, message: str) -> None:
    assert fault(source).message.startswith(message)


def test_the_excerpt_is_the_line_with_a_caret_below_the_mistake() -> None:
    assert fault('event.a == 1 &&\n  event.b and event.c == "ä"').excerpt == '  event.b and event.c == "ä"\n          ^'


def test_a_long_line_is_cut_around_the_mistake() -> None:
    line, caret = fault(f'event.x == "{"a" * 300}" and event.y').excerpt.split("\n")
    assert line[caret.index("^") :].startswith("and event.y")
    assert len(line) <= 200


def test_every_function_that_is_suggested_exists() -> None:
    arguments = ("event.y", "i, i == 1", "event.y, event.z", "")
    forms = ("{0}(event.x)", *(f"event.x.{{0}}({given})" for given in arguments))
    missing = [name for name in FUNCTIONS if all(_is_unknown(form.format(name)) for form in forms)]
    assert missing == []


def _is_unknown(source: str) -> bool:
    try:
        compile_condition(f"{source} == event.expected")
    except InvalidCondition as error:
        return "there is no function" in error.message or "overload" in error.message or "Syntax" in error.message
    return False
