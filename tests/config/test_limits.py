"""Limits of a trigger: quiet hours, age, budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harken.config.loaded import Loaded
from harken.config.reload_plan import plan
from harken.feed import Budget, Trigger
from harken.schedule import Quiet
from tests.config.makers import codes, lines, poll, read, workflow

LLM = "- {id: one, action: llm, model: MODEL, prompt: hi}"
DOLLARS = "api: true, budget: {usd_per_day: 2}"


def one(directory: Path, trigger: str, main: str = "{}", steps: str = "- {id: one, action: llm, prompt: hi}") -> Loaded:
    return read(directory, {"harken.yaml": main, "workflows/w.yaml": workflow("w", trigger, steps)})


def trigger(loaded: Loaded) -> Trigger:
    assert not loaded.findings, lines(loaded.findings)
    return loaded.triggers[0]


@pytest.mark.parametrize(
    ("written", "field", "value"),
    [
        ("stale_after: 1h", "stale_after", 3600.0),
        ("max_age: 2d", "max_age", 172_800.0),
        (
            "quiet_hours: {start: 22:00, end: 07:00, tz: Europe/Berlin}",
            "quiet",
            Quiet(start="22:00", end="07:00", tz="Europe/Berlin"),
        ),
        ("budget: {runs_per_hour: 5}", "budget", Budget(runs_per_hour=5)),
        ("budget: {tokens_per_day: 9, usd_per_day: 0}", "budget", Budget(tokens_per_day=9, usd_per_day=0.0)),
    ],
)
def test_limits_reach_the_trigger(tmp_path: Path, written: str, field: str, value: Any) -> None:
    loaded = one(tmp_path, f"api: true, {written}", "models: echo")
    assert getattr(trigger(loaded), field) == value


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "quiet_hours: {start: 22:00, end: 22:00}",
            "workflows/w.yaml:2:55: trigger.quiet_hours.end: is the same as start",
        ),
        ("quiet_hours: {start: 22:00, end: 7am}", "trigger.quiet_hours.end"),
        (
            "quiet_hours: {start: 22:00, end: 07:00, tz: Berlin}",
            "quiet_hours.tz: there is no time zone 'Berlin'. Use a",
        ),
        ("quiet_hours: {start: 22:00}", "trigger.quiet_hours.end: is missing"),
        ("stale_after: 0s", "trigger.stale_after: must be above 0"),
        ("max_age: 5", "trigger.max_age: a duration needs a unit"),
        ("budget: {runs_per_hour: -1}", "trigger.budget.runs_per_hour: must be at least 0"),
        ("budget: {runs_per_hour: many}", "trigger.budget.runs_per_hour: must be a whole number"),
    ],
)
def test_limits_that_mean_nothing_are_refused_where_they_stand(tmp_path: Path, written: str, message: str) -> None:
    loaded = one(tmp_path, f"api: true, {written}")
    assert loaded.triggers == ()
    assert message in "\n".join(lines(loaded.findings))


def test_a_time_to_be_stale_that_is_shorter_than_two_intervals_is_a_warning(tmp_path: Path) -> None:
    loaded = one(tmp_path, f"{poll(rest='interval: 1m')}, stale_after: 90s")
    assert codes(loaded.findings) == ["too_short"]
    assert "Write at least 2m" in lines(loaded.findings)[0]
    assert len(loaded.triggers) == 1


def test_a_limit_in_dollars_without_a_price_is_a_warning_that_names_the_model(tmp_path: Path) -> None:
    loaded = one(tmp_path, DOLLARS, "models: {fast: 'x:small'}", LLM.replace("MODEL", "fast"))
    assert codes(loaded.findings) == ["no_price"]
    assert "trigger.budget.usd_per_day: x:small has no price" in lines(loaded.findings)[0]
    assert len(loaded.triggers) == 1


@pytest.mark.parametrize("priced", ["x:small", "fast"])
def test_a_price_is_found_by_the_model_or_by_its_tier(tmp_path: Path, priced: str) -> None:
    main = f"models: {{fast: 'x:small', prices: {{'{priced}': {{input: 3, output: 15}}}}}}"
    assert trigger(one(tmp_path, DOLLARS, main, LLM.replace("MODEL", "fast"))).budget == Budget(usd_per_day=2.0)


def test_nothing_is_said_about_prices_without_a_limit_in_dollars(tmp_path: Path) -> None:
    loaded = one(tmp_path, "api: true, budget: {tokens_per_day: 2}", "models: {default: 'x:y'}")
    assert not loaded.findings


@pytest.mark.parametrize("identity", ["once", "change", "transition"])
def test_identity_reaches_the_feed(tmp_path: Path, identity: str) -> None:
    loaded = one(tmp_path, poll(rest=f"identity: {identity}"))
    assert [feed.identity for feed in loaded.feeds if feed.kind == "json"] == [identity]


def test_another_identity_is_told_in_the_plan(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old = one(tmp_path / "old", poll(rest="identity: once"))
    new = one(tmp_path / "new", poll(rest="identity: change"))
    assert plan(old, new).notes[0].startswith("w: identity changes from once to change; what was read before")


def test_another_identity_of_a_named_feed_is_told_in_the_plan(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    news = "feeds: {news: {integration: json, query: {url: 'https://x.example'}, identity: IDENTITY}}"
    old = one(tmp_path / "old", "feed: news", news.replace("IDENTITY", "once"))
    new = one(tmp_path / "new", "feed: news", news.replace("IDENTITY", "transition"))
    assert [note for note in plan(old, new).notes if note.startswith("news: identity changes from once")]
