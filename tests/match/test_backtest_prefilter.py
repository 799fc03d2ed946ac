"""The screen for stored events says what `match` says, of any event and any condition."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.event import Event, Verdict
from harken.feed import Feed, Trigger, TriggerState
from harken.match import Read, Rule, Rules, Screen, Sighting, match
from harken.testing.clock import START

CONDITIONS = [
    "",
    'event.status == "open"',
    'event.status == "open" && event.priority <= 2',
    'event.service.name in ["a", "b"] || event.priority > 3.5',
    "has(event.service.name) && event.service.name.startsWith('a')",
    'event.labels.exists(l, l == "urgent") && event.priority == 1',
    '!event.done && size(event.labels) > 1 && event.status != "new"',
    "event.priority",
    "event.size() > 2",
]
scalars = st.sampled_from(["open", "new", "a", "ab", "", 1, 2, 3, 4.0, 1.0, True, False, None, 2**70, "\0", "é"])
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
events = st.fixed_dictionaries(
    {},
    optional={
        "status": values,
        "priority": values,
        "done": scalars,
        "labels": st.lists(st.sampled_from(["urgent", "x"]), max_size=3) | scalars,
        "service": st.fixed_dictionaries({}, optional={"name": scalars, "other": values}) | values,
        "unread": values,
    },
)


DECODER = msgspec.json.Decoder(dict[str, Any])


def lines_of(page: list[dict[str, Any]]) -> bytes:
    return msgspec.json.Encoder().encode_lines(page)


def rules_with(condition: str, **changes: Any) -> tuple[Rule, Rules]:
    feed = Feed(name="f", kind="json", integration="a")
    state = TriggerState(uid="u", name="t", epoch=1, start_line=START, created_at=START)
    trigger = Trigger(name="t", feed="f", workflow="w", workflow_rev="r", condition=condition)
    rule = Rule(msgspec.structs.replace(trigger, **changes), state)
    return rule, Rules(1, feed, (rule,))


def decided_by_match(rules: Rules, data: dict[str, Any]) -> str:
    event = Event(subject="s", type="x", data=data, key="s", occurred_at=START)
    [entry] = match([Sighting(event, "s", 0, 1)], rules, Read(now=START))
    decision = entry.decisions[0]
    return {"filtered": "false", "error": "error"}[decision.outcome] if isinstance(decision, Verdict) else "true"


@pytest.mark.parametrize("condition", CONDITIONS)
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(page=st.lists(events, min_size=1, max_size=5))
def test_the_screen_decides_as_match_does(condition: str, page: list[dict[str, Any]]) -> None:
    stored = lines_of(page)
    rule, rules = rules_with(condition)
    screen = Screen(rule, rules, rule.condition)
    found = [screened.now for screened in screen.decide(stored)]
    assert found == [decided_by_match(rules, data) for data in DECODER.decode_lines(stored)]


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(page=st.lists(events, min_size=1, max_size=5))
def test_a_change_is_decided_beside_the_condition_as_it_is(page: list[dict[str, Any]]) -> None:
    rule, rules = rules_with(CONDITIONS[2])
    changed, changed_rules = rules_with(CONDITIONS[3])
    screen = Screen(rule, rules, changed.condition)
    stored = lines_of(page)
    for screened, data in zip(screen.decide(stored), DECODER.decode_lines(stored), strict=True):
        assert screened.now == decided_by_match(rules, data)
        assert screened.changed == decided_by_match(changed_rules, data)
        assert bool(screened.failed) == (screened.changed != "true")


def test_types_and_start_lines_count() -> None:
    rule, rules = rules_with("", types=("x",))
    screen = Screen(rule, rules, None)
    start = round(START.timestamp() * 1e6)
    assert [screen.listens("x"), screen.listens("y")] == [True, False]
    assert [screen.begun(start), screen.begun(start - 1), screen.begun(None)] == [True, False, True]
    hour = round(timedelta(hours=1) / timedelta(microseconds=1))
    assert not screen.begun(start - hour)


def test_only_what_is_read_is_decoded() -> None:
    rule, rules = rules_with('event.service.name == "a" && event.status == "open"')
    screen = Screen(rule, rules, rule.condition)
    data = b'{"status":"open","service":{"name":"a","x":[1]},"body":"long"}\n{"body":"","service":7} {"a":"\\n"}'
    keys = screen.keys(data)
    assert [screen.event_of(key) for key in keys] == [
        {"status": "open", "service": {"name": "a"}},
        {"service": 7},
        {},
    ]


def test_fields_may_have_any_name_and_order() -> None:
    rule, rules = rules_with('event["a-b"].class == 1 && event.x == "\\n"')
    screen = Screen(rule, rules, rule.condition)
    keys = screen.keys('{"x":"\\n","a-b":{"class":1}}\n{"a-b":{"class":1,"more":2},\n "x":"\\n"}')
    assert len(set(keys)) == 1
    assert screen.decided(keys[0]).now == "true"


def test_a_stored_event_was_no_replay() -> None:
    rule, rules = rules_with("!event.replay && event.x == 1")
    screen = Screen(rule, rules, rule.condition)
    assert [screened.now for screened in screen.decide(b'{"x":1}\n{"x":1,"replay":true}')] == ["true", "false"]


def test_true_and_one_are_not_taken_for_each_other() -> None:
    rule, rules = rules_with("event.priority == 1")
    screen = Screen(rule, rules, rule.condition)
    page = b'{"priority":1}{"priority":true}{"priority":1.0}{"priority":null}{}'
    assert [screened.now for screened in screen.decide(page)] == ["true", "false", "true", "false", "error"]
