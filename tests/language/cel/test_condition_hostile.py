"""Events that CEL would crash on or misread, and conditions that would run for ever."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.errors import HarkenError, Misconfigured
from harken.language.cel import Decision, bind, compile_condition

OUTCOMES = ("true", "false", "error")


def decide(source: str, event: Any) -> Decision:
    return compile_condition(source).decide(bind({"event": event}))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("event.x > 1", 2**63),
        ("event.x > 1", 2**64),
        ("event.x < 1", -(2**70)),
        ("event.x > 1", 10**400),
        ("event.x != event.x", float("nan")),
        ("event.x > 1", float("inf")),
        ("event.x == null", None),
        ('event.x == "🔥é日"', "🔥é日"),
        ('event.x == "2026-01-02T00:00:00Z"', datetime(2026, 1, 2, tzinfo=UTC)),
        ('timestamp(event.x) < timestamp("2027-01-01T00:00:00Z")', datetime(2026, 1, 2)),
        ('event.x == "2026-01-02"', date(2026, 1, 2)),
        ('event.x == "0:00:01"', timedelta(seconds=1)),
        ("event.x[1] == 2", (1, 2)),
        ("1 in event.x", {1, 2}),
        ("event.x[1] == 2", {1: 2}),
        ('event.x == {"None": 2}', {None: 2}),
        ('event.x == {"1.5": 2}', {1.5: 2}),
        ("event.x.a == 1", MappingProxyType({"a": 1})),
        ("event.x[0].a > 1", [{"a": 2**80}]),
        ('event.x == "a?b"', "a\ud800b"),
    ],
)
def test_odd_value_binds(source: str, value: Any) -> None:
    assert decide(source, {"x": value, "y": object()}).outcome == "true"


def test_text_is_not_cut_at_a_nul() -> None:
    assert decide('event.x == "admin"', {"x": "admin\0evil"}).outcome == "false"
    assert decide('event.x.y[0] == "admin"', {"x": {"y": ["admin\0evil"]}}).outcome == "false"
    assert decide('"admin" in event.x', {"x": {"admin\0evil": 1}}).outcome == "false"


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("levels", [10, 150, 900, 5_000, 50_000])
def test_deep_event_does_not_crash_the_process(levels: int) -> None:
    assert decide("event.a.a.a == 1 || event == {}", nested(levels)).outcome in OUTCOMES


def test_deep_event_is_still_judged_by_its_shallow_fields() -> None:
    assert decide("event.x == 1", {"x": 1, "deep": nested(50_000)}).outcome == "true"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "source",
    [
        "event.l.all(x, event.l.all(y, event.l.all(z, x + y + z >= 0)))",
        "event.l.all(x, event.l.all(y, x + y >= 0))",
        "event.l.map(x, event.l.map(y, event.l)).size() > 0",
        "event.l.filter(x, event.l.exists(y, y == -1)).size() > 0",
        'event.l.all(x, event.t.matches("(a*)*b"))',
        'event.l.all(x, event.t.contains("zzz") || true)',
        "event.l.map(x, event.t).join('').size() > 0",
    ],
)
def test_hostile_loop_ends_as_an_error(source: str) -> None:
    decision = decide(source, {"l": list(range(10_000)), "t": "a" * 1_000_000})
    assert decision.outcome == "error"
    assert "loops more than 10000 times" in decision.reason or "holds too much" in decision.reason


@pytest.mark.parametrize(
    "source",
    [
        "[event.t]" + ".map(a, a + a)" * 24 + "[0] == ''",
        "event.t" + f".replace('a', '{'a' * 300}')" * 4 + " == ''",
        "'%s%s%s%s%s%s%s%s'.format(["
        + ",".join(["event.t"] * 8)
        + "]).replace('', event.t).replace('', event.t) == ''",
    ],
)
def test_condition_that_builds_gigabytes_is_misconfigured(source: str) -> None:
    with pytest.raises(Misconfigured, match="too much text"):
        compile_condition(source)


@pytest.mark.parametrize(
    "source",
    [
        "event.l.exists(x, event.t.contains(x))",
        'event.t.replace("-", "_").replace(" ", "_").lowerAscii() == "a_b"',
        'event.l.map(x, x + "!").join(", ").contains("q")',
        'event.l.exists(x, event.l.exists(y, x == y && x != "a"))',
        'event.t + "-" + event.t == "x"',
        '"%s: %s".format([event.t, event.l]) == "x"',
    ],
)
def test_everyday_condition_is_within_the_limits(source: str) -> None:
    assert decide(source, {"l": ["a", "b"], "t": "a b"}).outcome in ("true", "false")


def test_pattern_that_ruins_other_engines_is_linear() -> None:
    assert decide('event.t.matches("^(a+)+$")', {"t": "a" * 100_000 + "!"}).outcome == "false"


values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.binary(max_size=4),
        st.datetimes(),
        st.sampled_from(["\0", "\ud800", "a\0b"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(), st.none(), st.floats()), inner, max_size=3),
    ),
    max_leaves=8,
)
CONDITIONS = [
    compile_condition(source)
    for source in (
        "event.x == 1 && event.y == 'a'",
        "event == {} || event.x != event.y",
        "event.x.a.b > 3 || event.x[0] == 1",
        "event.x.exists(i, i == event.y)",
        "'x' in event && size(event.x) > 1",
        "event.?x.?y.orValue(false)",
        "event.x.matches(event.y)",
    )
]


@settings(max_examples=300, deadline=None)
@given(x=values, y=values)
def test_no_event_makes_a_condition_raise(x: Any, y: Any) -> None:
    event = bind({"event": {"x": x, "y": y}})
    for condition in CONDITIONS:
        assert condition.decide(event).outcome in OUTCOMES
        assert all(isinstance(clause.reason, str) for clause in condition.explain(event))


SIGNS = [
    *"()[]{}!-+*/%<>?:,.` \n",
    "event",
    "event.x",
    "&&",
    "||",
    "==",
    "!=",
    "in",
    "'a'",
    '"b"',
    "1",
    "1.5",
    "1u",
    "true",
]
soup = st.lists(
    st.sampled_from([*SIGNS, "null", ".?", "[?", "r'\\'", "has(", "event.x.exists(i, i)", ".matches('(')"]), max_size=15
).map("".join)


@settings(max_examples=500, deadline=None)
@given(source=st.one_of(soup, st.text(max_size=30)))
def test_no_source_crashes_the_compiler(source: str) -> None:
    try:
        condition = compile_condition(source)
    except HarkenError as error:
        assert str(error)
        return
    assert condition.decide(bind({"event": {"x": 1}})).outcome in OUTCOMES
