from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from harken.errors import Misconfigured
from harken.language.cel import Bound, Decision, bind, compile_condition, needs_of

EVENT: dict[str, Any] = {
    "id": "PX1",
    "number": 42,
    "title": "Disk full 🔥",
    "urgency": "low",
    "score": 3.5,
    "priority": None,
    "labels": ["a", "b", "c"],
    "service": {"name": "db", "tier": 1},
    "assignments": [{"name": "Ana"}, {"name": "Bob"}],
    "foo-bar": 1,
}
META = {
    "key": "k1",
    "subject": "s1",
    "state": "triggered",
    "type": "incident",
    "feed": "oncall",
    "occurred_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
}


def bound(**more: Any) -> Bound:
    return bind({"event": EVENT, "meta": META, **more})


def decide(source: str, **more: Any) -> Decision:
    return compile_condition(source).decide(bound(**more))


@pytest.mark.parametrize(
    "source",
    [
        'event.urgency == "low"',
        "event.number == 42 && event.number == 42.0 && event.number > 41.5",
        'event.title.contains("🔥")',
        'event["foo-bar"] == 1',
        "event.`foo-bar` == 1",
        'event.labels.exists(l, l == "b")',
        'event.assignments.map(a, a.name).join(",") == "Ana,Bob"',
        'event.title.lowerAscii().startsWith("disk")',
        'event.title.matches("^Disk .*")',
        '"id" in event',
        "has(event.service.tier) && !has(event.nope)",
        'event.?nope.orValue("x") == "x"',
        "event.priority == null",
        "size(event.labels) == 3",
        'event.service == {"name": "db", "tier": 1}',
        'meta.occurred_at > timestamp("2026-01-01T00:00:00Z")',
        "meta.occurred_at.getFullYear() == 2026",
        'meta["occurred_at"] == "2026-01-02T03:04:05Z"',
        'meta.state == "triggered" && meta.feed == "oncall"',
        "trigger.event.urgency == event.urgency",
        "event.nope == 1 || true",
        "true",
    ],
)
def test_holds(source: str) -> None:
    assert decide(source) == Decision(outcome="true", reason="")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ('event.urgency == "high"', 'event.urgency == "high" is false (event.urgency = "low")'),
        (
            'event.number > 1 && event.urgency == "high" && event.nope',
            'event.urgency == "high" is false (event.urgency = "low")',
        ),
        (
            'event.urgency == "high" || (event.number > 50)',
            'event.urgency == "high" is false (event.urgency = "low"); event.number > 50 is false (event.number = 42)',
        ),
        (
            'event.number == 42 && (event.urgency == "x" || event.labels[0] == "z")',
            'event.urgency == "x" is false (event.urgency = "low"); '
            'event.labels[0] == "z" is false (event.labels[0] = "a")',
        ),
        ("!(event.number == 42)", "!(event.number == 42) is false (event.number = 42)"),
        ("has(event.nope)", "has(event.nope) is false (event.nope is not there)"),
        ('event.title == "a && b || (c"', 'event.title == "a && b || (c" is false (event.title = "Disk full 🔥")'),
        ("(event.number == 1) ? true : false", "(event.number == 1) ? true : false is false (event.number = 42)"),
        (
            'event.labels.exists(l, l == "z")',
            'event.labels.exists(l, l == "z") is false (event.labels = ["a","b","c"])',
        ),
        ("false", "false is false"),
    ],
)
def test_false_names_the_clause_and_its_values(source: str, reason: str) -> None:
    assert decide(source) == Decision(outcome="false", reason=reason)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ('event.titel == "x"', "event.titel is not there; did you mean title?"),
        ('event.service.nme == "db"', "event.service.nme is not there; did you mean name?"),
        ("event.a.b.c == 1", "event.a is not there"),
        ('event.priority.name == "P1"', "event.priority is null, it has no field name"),
        ("event.title.x == 1", "event.title is a string, it has no field x"),
        ('event.labels[7] == "x"', "event.labels[7] is not there: the list has 3 items"),
        ("has(event.x) ? event.x == 1 : event.y == 2", "event.y is not there"),
        ('event.assignments.exists(a, a.nme == "x")', "a field named nme is not there"),
        ("event.title > 3", '> does not take string, int64 (event.title = "Disk full 🔥")'),
        ("event.title", "the condition gave a string, not true or false"),
        ("event.labels", "the condition gave a list, not true or false"),
        ("inputs.x == 1", "inputs is not available here"),
        ("1 / (event.number - 42) == 1", "divide by zero (event.number = 42)"),
    ],
)
def test_error_is_never_false_and_names_the_field(source: str, reason: str) -> None:
    assert decide(source) == Decision(outcome="error", reason=f"{reason} (in {source})")


def test_error_names_the_clause_that_failed() -> None:
    assert decide('event.number == 42 && event.titel == "x"').reason.endswith('(in event.titel == "x")')


def test_steps_and_inputs_are_usable_when_they_are_given() -> None:
    source = 'inputs.x == 1 && steps.ask.response == "y" && run.attempt == 1 && trigger.name == "t"'
    names = {"inputs": {"x": 1}, "steps": {"ask": {"response": "y"}}, "run": {"attempt": 1}, "trigger": {"name": "t"}}
    assert decide(source, **names).outcome == "true"


def test_long_values_are_cut_in_reasons() -> None:
    reason = compile_condition('event.x == "y"').decide(bind({"event": {"x": "a" * 5000}})).reason
    assert len(reason) < 150


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('title == "x"', "1:1: there is no variable title; use event.title"),
        ("a.b.c == 1", "there is no variable a; use event.a.b.c"),
        ('evnt.title == "x"', "there is no variable evnt; did you mean event?"),
        ("event.a ==", "1:11: Syntax error: mismatched input the end"),
        ("event.\n\na = 1", "3:3:"),
        ('1 + "a" == 2', "1:3: found no matching overload for '+' applied to '(int, string)'"),
        ("nofunction(1)", "there is no function nofunction"),
        ("event.nofunction()", "there is no function nofunction"),
        ("event.title.upperAscii()", "the condition gives a string, not true or false"),
        ("1 + 1", "the condition gives an int, not true or false"),
        ('event.title.matches("(")', 'the pattern "(" cannot be used'),
        ("", "the condition is empty"),
        ("  \n", "the condition is empty"),
        ("event.x == '" + "a" * 5000 + "'", "at most 4096 are allowed"),
        ("(" * 100 + "true" + ")" * 100, "nested too deep"),
        ("event.x == '\0'", "not text"),
        ("event.x == '\ud800'", "not text"),
        ("google.protobuf.Int64Value{value: 1} == 1", "do not support"),
    ],
)
def test_wrong_condition_is_misconfigured_with_what_to_do(source: str, message: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        compile_condition(source)
    assert message in str(caught.value)


def test_a_list_of_one_has_one_item() -> None:
    decision = compile_condition("event.one[1] == 2").decide(bind({"event": {"one": [1]}}))
    assert decision.reason.startswith("event.one[1] is not there: the list has 1 item (")


def test_explain_judges_each_clause_on_its_own() -> None:
    clauses = compile_condition('event.number == 42 && (event.urgency == "high" || event.nope == 1)').explain(bound())
    assert [(clause.source, clause.outcome) for clause in clauses] == [
        ("event.number == 42", "true"),
        ('event.urgency == "high"', "false"),
        ("event.nope == 1", "error"),
    ]
    assert [clause.values for clause in clauses] == [
        {"event.number": "42"},
        {"event.urgency": '"low"'},
        {"event.nope": None},
    ]
    assert clauses[0].reason == ""
    assert clauses[2].reason == "event.nope is not there (in event.nope == 1)"


def test_one_event_serves_many_conditions_and_conditions_outside_the_group() -> None:
    sources = ['event.urgency == "low"', "event.service.tier == 1", 'event.service.name == "db"', "event.number < 0"]
    conditions = [compile_condition(source) for source in sources]
    outsider = compile_condition('event.labels[1] == "b" && "id" in event')
    shared = bind({"event": EVENT, "meta": META}, needs_of(conditions))
    assert [each.decide(shared).outcome for each in [*conditions, outsider]] == [
        "true",
        "true",
        "true",
        "false",
        "true",
    ]


def test_condition_can_be_used_for_many_events() -> None:
    condition = compile_condition("event.n == 1 || event.n == 3")
    outcomes = [condition.decide(bind({"event": {"n": number}})).outcome for number in range(5)]
    assert outcomes == ["false", "true", "false", "true", "false"]


def test_moment_may_be_given_as_text_or_without_a_zone() -> None:
    condition = compile_condition('meta.occurred_at == timestamp("2026-01-02T03:04:05Z")')
    for moment in ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00", datetime(2026, 1, 2, 3, 4, 5)):
        assert condition.decide(bind({"event": {}, "meta": {"occurred_at": moment}})).outcome == "true"


def test_moment_that_is_none_is_an_error() -> None:
    condition = compile_condition('meta.occurred_at > timestamp("2026-01-02T03:04:05Z")')
    assert condition.decide(bind({"event": {}, "meta": {"occurred_at": None}})).outcome == "error"
