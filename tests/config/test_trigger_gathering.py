"""`gather:` in a workflow file: what it becomes, and which settings do not go together."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from harken.config.loader import load
from harken.config.trigger_gathering import CLASHES
from harken.feed import Debounce, Dedupe, Digest, Join, Part, Throttle, Trigger
from harken.match import stories
from harken.run.compiled_workflows import check_workflow
from harken.services import cron, files, json
from tests.config.makers import lines, write

PLUGINS = {module.plugin.kind: module.plugin for module in (cron, json)}

EXAMPLE = Path(__file__).parents[2] / "examples" / "many-events"

FEEDS = """
feeds:
  deploys: {integration: json, query: {url: "https://x.example/deploys"}, interval: 1m}
  alerts: {integration: json, query: {url: "https://x.example/alerts"}, interval: 1m}
"""

GATHERS = {
    "digest": "digest: {window: 5m, by: event.service}",
    "debounce": "debounce: {window: 5m, by: event.service}",
    "join": "join: {within: 5m, parts: {a: {by: event.id, when: event.x == 1}, b: {by: event.id, feed: alerts}}}",
    "throttle": "throttle: {most: 2, per: 1m, by: event.service}",
    "dedupe": "dedupe: {by: event.service, within: 1h}",
}
BESIDE = {
    "overlap": "overlap: queue",
    "priority": "priority: 5",
    "quiet_hours": "quiet_hours: {start: '22:00', end: '07:00'}",
    "budget": "budget: {runs_per_hour: 3}",
    "max_age": "max_age: 1h",
    "stale_after": "stale_after: 10m",
    "max_per_tick": "max_per_tick: 5",
}
NEVER = {
    ("digest", "throttle"),
    ("debounce", "throttle"),
    ("join", "throttle"),
    ("join", "max_age"),
    ("throttle", "quiet_hours"),
    ("digest", "debounce"),
    ("digest", "join"),
    ("debounce", "join"),
}
"""The pairs that are refused; the reference lists them too."""

PAIRS = [
    *((one, other) for at, one in enumerate(GATHERS) for other in list(GATHERS)[at + 1 :]),
    *product(GATHERS, BESIDE),
]


def loading(directory: Path, trigger: str) -> Any:
    files = {"harken.yaml": FEEDS, "workflows/w.yaml": f"name: w\ntrigger:\n  feed: deploys\n{trigger}\nsteps: []\n"}
    return load(write(directory, files), plugins=PLUGINS, check_workflow=check_workflow, environ={})


def reading(directory: Path, gather: str) -> Trigger:
    loaded = loading(directory, f"  gather: {{{gather}}}")
    assert lines(loaded.findings) == []
    found: Trigger = loaded.triggers[0]
    return found


def written(one: str, other: str) -> str:
    inner = [GATHERS[name] for name in (one, other) if name in GATHERS]
    beside = [f"  {BESIDE[name]}" for name in (one, other) if name in BESIDE]
    return "\n".join(["  gather:", *(f"    {line}" for line in inner), *beside])


@pytest.mark.parametrize(("one", "other"), [pair for pair in PAIRS if pair not in NEVER])
def test_every_other_pair_works(tmp_path: Path, one: str, other: str) -> None:
    assert lines(loading(tmp_path, written(one, other)).findings) == []


@pytest.mark.parametrize(("one", "other"), sorted(NEVER))
def test_a_refused_pair_is_an_error_that_names_both(tmp_path: Path, one: str, other: str) -> None:
    assert (one, other) in PAIRS
    text = written(one, other).splitlines()
    at = next(number for number, line in enumerate(text) if line.lstrip().startswith(f"{other}:"))
    column = len(text[at]) - len(text[at].lstrip()) + 1
    found = lines(loading(tmp_path, "\n".join(text)).findings)
    assert found[0].startswith(f"workflows/w.yaml:{4 + at}:{column}: trigger.")
    assert f"{other}: does not go together with gather.{one}: " in found[0]


def test_every_clash_is_one_of_the_refused_pairs() -> None:
    assert {(clash.first[-1], clash.second[-1]) for clash in CLASHES} <= NEVER


def test_a_throttle_that_drops_goes_together_with_quiet_hours(tmp_path: Path) -> None:
    text = f"  gather: {{throttle: {{most: 2, per: 1m, rest: drop}}}}\n  {BESIDE['quiet_hours']}"
    assert lines(loading(tmp_path, text).findings) == []


def test_each_way_to_gather_is_read(tmp_path: Path) -> None:
    digest = reading(tmp_path, "digest: {window: 5m, max: 3, by: '{{.trigger.event.service}}'}")
    assert digest.gather == Digest(window=300, max=3, by="{{.trigger.event.service}}")
    debounce = reading(tmp_path, "debounce: {window: 30s, max_wait: 10m, by: event.service}")
    assert debounce.gather == Debounce(window=30, max_wait=600, by="event.service")
    limited = reading(tmp_path, f"{GATHERS['dedupe']}, throttle: {{most: 1, per: 1h, rest: drop}}")
    assert (limited.gather, limited.dedupe) == (None, Dedupe(by="event.service", within=3600))
    assert limited.throttle == Throttle(most=1, per=3600, rest="drop")


def test_the_example_loads_and_each_of_its_triggers_can_be_drawn() -> None:
    loaded = load(EXAMPLE, plugins={**PLUGINS, "files": files.plugin}, check_workflow=check_workflow, environ={})
    assert lines(loaded.findings) == []
    drawn = {trigger.name: stories(trigger) for trigger in loaded.triggers}
    assert sorted(drawn) == sorted(file.stem for file in (EXAMPLE / "workflows").iterdir())
    assert all(story.lines() for found in drawn.values() for story in found)
    assert all(drawn.values())


A, B, C = (f"{name}: {{by: event.id, when: event.k == '{name}'}}" for name in "abc")
PART_A, PART_B, PART_C = (Part(name=name, by="event.id", when=f"event.k == '{name}'") for name in "abc")


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("", Join(parts=(PART_A, PART_B, PART_C), within=60)),
        ("all: [a, b, c], on_miss: run", Join(parts=(PART_A, PART_B, PART_C), within=60, on_miss="run")),
        ("any: 2", Join(parts=(PART_A, PART_B, PART_C), within=60, form="any", count=2)),
        ("then: [c, a, b]", Join(parts=(PART_C, PART_A, PART_B), within=60, form="then")),
        ("none: b", Join(parts=(PART_A, PART_C, PART_B), within=60, none=("b",))),
        ("all: a, none: [b, c]", Join(parts=(PART_A, PART_B, PART_C), within=60, none=("b", "c"))),
    ],
)
def test_each_form_of_a_join_is_read(tmp_path: Path, form: str, expected: Join) -> None:
    found = reading(tmp_path, f"join: {{within: 1m, parts: {{{A}, {B}, {C}}}{', ' if form else ''}{form}}}")
    assert found.gather == expected
    assert found.backfill == expected.within


def test_a_join_listens_to_the_feeds_of_its_parts(tmp_path: Path) -> None:
    assert reading(tmp_path, GATHERS["join"]).feeds == ("deploys", "alerts")


def test_a_trigger_that_says_where_it_begins_does_not_look_back_by_itself(tmp_path: Path) -> None:
    loaded = loading(tmp_path, f"  startup: ignore_historical\n  gather: {{{GATHERS['join']}}}")
    assert loaded.triggers[0].backfill == 0


@pytest.mark.parametrize(
    ("gather", "message"),
    [
        (f"join: {{within: 1m, parts: {{{A}}}}}", "join.parts: has one part, which nothing joins"),
        (f"join: {{within: 1m, parts: {{{A}, {B}}}, any: 3}}", "join.any: is more than the 2 parts that may come"),
        (f"join: {{within: 1m, parts: {{{A}, {B}}}, then: [a]}}", "join.then: leaves out the part b"),
        (f"join: {{within: 1m, parts: {{{A}, {B}}}, then: [a, b, a]}}", "join.then: has a twice"),
        (f"join: {{within: 1m, parts: {{{A}, {B}}}, all: [a, d]}}", "there is no part 'd'"),
        (f"join: {{within: 1m, parts: {{{A}, {B}}}, none: [a, b]}}", "has all parts, so nothing would start a run"),
        (f"join: {{within: 1m, parts: {{{A}, {B}}}, all: [a, b], none: b}}", "has b, which none has too"),
        (f"join: {{within: 1m, parts: {{{A}, {B}}}, all: [a, b], any: 1}}", "join.any: does not go together with all"),
        (f"join: {{parts: {{{A}, {B}}}}}", "join.within: is missing"),
        ("join: {within: 1m, parts: {a: {when: event.x}, b: {by: event.id}}}", "parts.a.by: is missing"),
        (f"join: {{within: 1m, parts: {{{A}, b: {{by: event.id, feed: alert}}}}}}", "Did you mean alerts?"),
        (f"join: {{within: 1m, parts: {{{A}, b: {{by: event.id, when: event.}}}}}}", "parts.b.when: "),
        ("digest: {window: 5m, by: \"'same'\"}", "it is the same for every event"),
        ("dedupe: {by: '[event.a]', within: 1m}", "gives a list<dyn>, not a text or a number"),
        ("dedupe: {by: steps.x.y, within: 1m}", "no step has run when a trigger decides"),
        ("throttle: {most: 0, per: 1m}", "throttle.most: "),
    ],
)
def test_what_is_wrong_is_refused_at_its_place(tmp_path: Path, gather: str, message: str) -> None:
    found = lines(loading(tmp_path, f"  gather: {{{gather}}}").findings)
    assert any(message in line for line in found), found
    assert all(line.startswith("workflows/w.yaml:4:") for line in found)
