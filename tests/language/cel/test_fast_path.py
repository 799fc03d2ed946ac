"""Text conditions that are false are decided without CEL, and exactly as CEL decides them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from harken.errors import Misconfigured
from harken.language.cel import Condition, Decision, bind, compile_condition
from harken.language.cel import condition as conditions
from tests.soak import longer

PATHS = st.sampled_from(
    ["event.a", "event.b", "event.a.b", 'event["a"]', "event.`a`", "meta.state", "meta.type", "trigger.event.a"]
)
TEXTS = st.sampled_from(['"x"', "'x'", '""', '"xX"', '"ü🔥"', '"x?"', '"\\x78"', '"x\\"y"', 'r"x"', "b'x'"])
NUMBERS = st.sampled_from(["0", "1", "1.0", "2.5", "1u", "0x1", "-1", "999999999999999", "9223372036854775807", "1e0"])
CONSTANTS = st.sampled_from(["true", "false", "null"])
LITERALS = st.one_of(TEXTS, NUMBERS, CONSTANTS)
SIGNS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])


def joined(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map("".join)


CLAUSES = st.one_of(
    joined(PATHS, " ", SIGNS, " ", LITERALS),
    joined(LITERALS, " == ", PATHS),
    joined(PATHS, st.sampled_from([".contains(", ".startsWith(", ".endsWith("]), TEXTS, ")"),
    joined(PATHS, ".lowerAscii()", st.sampled_from([' == "x"', ' != "x"', '.contains("x")', ' in ["x", "y"]'])),
    joined(PATHS, " in [", LITERALS, ", ", LITERALS, "]"),
    joined(PATHS, " in []"),
    joined(LITERALS, " in ", PATHS),
    joined("has(", st.sampled_from(["event.a", "event.b", "event.a.b", "meta.state", "event.c"]), ")"),
    PATHS,
    # what is not plain stands beside it
    joined("size(", PATHS, ") > 0"),
    joined(PATHS, '.exists(i, i == "x")'),
    joined(PATHS, '[0] == "x"'),
    joined(PATHS, '.matches("^x")'),
    joined("event.?a", st.sampled_from([' == "x"', '.orValue("x") == "x"', ".hasValue()"])),
    st.sampled_from(["event.c.d == 1", "event == 1", '"a" in event', "has(meta.occurred_at)", "true", "false"]),
)
SOURCES = st.recursive(
    CLAUSES,
    lambda inner: st.one_of(
        joined(st.sampled_from(["!(", "! (", "!!(", "("]), inner, ")"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: " && ".join(f"({part})" for part in parts)),
        st.lists(inner, min_size=2, max_size=3).map(" && ".join),
        st.lists(inner, min_size=2, max_size=3).map(" || ".join),
        joined("(", inner, ") ? (", inner, ") : (", inner, ")"),
    ),
    max_leaves=4,
)


def deep() -> Any:
    """What CEL refuses: it has to be converted, and is nested too deep for that."""
    value: Any = "x\0"
    for _ in range(250):
        value = [value]
    return value


SCALARS = st.one_of(
    st.sampled_from(["x", "X", "xx", "xX", "", "ü🔥", "x\0y", "x\ud800", "x?", "K", "x\ufffdy"]),
    st.sampled_from([0, 1, -1, 2, 2**53, 2**63 - 1, 2**63, -(2**70), 999999999999999, 999999999999999.0]),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, 1e300, float("inf"), float("nan")]),
    st.sampled_from([True, False, None]),
)
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=3),
    st.dictionaries(st.sampled_from(["b", "x", "0"]), SCALARS, max_size=2),
    st.sampled_from([["x", ["x"]], [{"x": 1}], deep(), {"b": deep()}, ("x",), b"x", {1: "x"}]),
)
EVENTS = st.dictionaries(st.sampled_from(["a", "b", "x"]), VALUES, max_size=3)
METAS = st.fixed_dictionaries(
    {"state": st.sampled_from(["x", None, "x\0y", "open"]), "type": st.just("x")},
    optional={"occurred_at": st.sampled_from([None, datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z", "x"])},
)
META = {"state": None, "type": "x"}


@contextmanager
def only_cel() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditions, "compile_plain", lambda source, tree, given: None)
        yield


def compiled(source: str) -> Condition:
    try:
        return compile_condition(source)
    except Misconfigured:
        assume(False)
        raise


@settings(max_examples=longer(__file__, 500), deadline=None)
@given(SOURCES, EVENTS, METAS)
@example("!!event.a", {"a": True}, META)
@example('event.a == "x?"', {"a": "x\ud800"}, META)
@example('event.a.contains("\ufffd")', {"a": "x\0y"}, META)
@example('event.a.lowerAscii() == "k"', {"a": "\N{KELVIN SIGN}"}, META)
@example("event.a == 999999999999999 || event.a > 9", {"a": 2**63}, META)
@example('(meta.state[0] == "x") && event.a == "x"', {"a": -(2**70)}, META)
@example('(meta.state[0] == "x") && "x" in event.a', {"a": ["y", 2**70]}, META)
@example('(meta.state[0] == "x") && event.b == "x" && size(event.a) > 0', {"a": {"b": [2**70]}, "b": "y"}, META)
@example("has(meta.occurred_at)", {}, {**META, "occurred_at": None})
@example("event.a == 1", {"a": True}, META)
@example('event.a == "x" && event.b[0] == "y"', {"a": "y", "b": deep()}, META)
@example('has(event.b) && event.a[0] == "x"', {"a": {"b": deep()}}, META)
@example('event.b.all(i, true) && event.a == "x"', {"a": "y", "b": [1] * 10_001}, META)
@example('event.a == "x" && event.b.all(i, true)', {"a": "y", "b": [1] * 10_001}, META)
def test_python_decides_as_cel_does_and_gives_the_same_reason(
    source: str, event: dict[str, Any], meta: dict[str, Any]
) -> None:
    def decide() -> Decision:
        return compiled(source).decide(bind({"event": event, "meta": meta}))

    with only_cel():
        expected = decide()
    assert decide() == expected


@pytest.mark.parametrize(
    "source",
    [
        'event.text.contains("disk")',
        'event.text.lowerAscii().startsWith("disk")',
        'event.status == "closed"',
        'event.status in ["closed", "merged"]',
        '"urgent" in event.labels',
        "event.number > 100",
        "has(event.nope)",
        "event.draft",
        '!(event.status == "open") || event.number != 7',
        'size(event.labels) > 1 && event.status == "closed"',
        'meta.type == "incident"',
    ],
)
def test_a_false_text_condition_is_decided_without_cel(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"text": "Mail from Ana", "status": "open", "labels": ["a", "b"], "number": 7, "draft": False}
    condition = compile_condition(source)
    monkeypatch.setattr(Condition, "evaluate", None)
    bound = bind({"event": event, "meta": {"type": "mail"}})
    assert condition.outcome(bound) == ("false", "")


def test_the_reason_still_names_the_clause_that_failed() -> None:
    condition = compile_condition('event.number > 1 && event.text.contains("disk") && event.status == "open"')
    decision = condition.decide(bind({"event": {"number": 7, "text": "Mail", "status": "closed"}}))
    assert decision == Decision(outcome="false", reason='event.text.contains("disk") is false (event.text = "Mail")')
