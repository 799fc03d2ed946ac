"""Reload: what changes, what is kept, and which cursor is inherited."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.config.loaded import Loaded
from harken.config.reload_plan import carry_over, inherit_cursors, plan
from harken.schedule import Every
from tests.config.makers import poll, read, workflow

NEWS = "feeds:\n  news: {integration: json, query: {url: 'https://x.example'}, interval: 1m}\n"


def reading(directory: Path, files: dict[str, Any], **more: Any) -> Loaded:
    """A directory with these files and no others."""
    shutil.rmtree(directory / "c", ignore_errors=True)
    (directory / "c").mkdir()
    return read(directory / "c", files, **more)


def feed_of(loaded: Loaded, trigger: str) -> Any:
    name = next(found.feed for found in loaded.triggers if found.name == trigger)
    return next(feed for feed in loaded.feeds if feed.name == name)


def test_the_first_configuration_adds_everything(tmp_path: Path) -> None:
    new = reading(tmp_path, {"workflows/a.yaml": workflow("a")})
    first = plan(None, new)
    assert {"workflow:a", "trigger:a", "feed:schedule/a", "feed:harken", "integration:cron"} <= set(first.add)
    assert (first.replace, first.remove, first.keep, first.refused, first.notes) == ((), (), (), (), ())


def test_the_same_configuration_keeps_everything(tmp_path: Path) -> None:
    files = {"harken.yaml": NEWS, "workflows/a.yaml": workflow("a", "feed: news")}
    old, new = reading(tmp_path, files), reading(tmp_path, files)
    same = plan(old, new)
    assert not same.changes
    assert {"workflow:a", "trigger:a", "feed:news", "integration:json", "section:server"} <= set(same.keep)
    assert old.generation == new.generation == carry_over(old, new).generation


def test_changes_are_told_apart(tmp_path: Path) -> None:
    old = reading(
        tmp_path,
        {"workflows/a.yaml": workflow("a"), "workflows/b.yaml": workflow("b"), "workflows/c.yaml": workflow("c")},
    )
    edited = workflow("b", steps="- {id: other, action: llm, prompt: hi}")
    new = reading(
        tmp_path,
        {"workflows/a.yaml": workflow("a"), "workflows/b.yaml": edited, "workflows/d.yaml": workflow("d", "api: true")},
    )
    change = plan(old, new)
    assert change.add == ("feed:api/d", "trigger:d", "workflow:d")
    assert change.replace == ("workflow:b",)
    assert change.remove == ("feed:schedule/c", "trigger:c", "workflow:c")
    assert {"workflow:a", "trigger:a", "trigger:b"} <= set(change.keep)
    assert msgspec.json.decode(msgspec.json.encode(change))["replace"] == ["workflow:b"]


@pytest.mark.parametrize("line", ["description: what it is for", "share_with: operator"])
def test_what_no_run_needs_is_a_change_of_the_workflow_too(tmp_path: Path, line: str) -> None:
    old = reading(tmp_path, {"workflows/a.yaml": workflow("a")})
    new = reading(tmp_path, {"workflows/a.yaml": f"{line}\n{workflow('a')}"})
    assert old.workflows["a"].rev == new.workflows["a"].rev
    assert plan(old, new).replace == ("workflow:a",)


@pytest.mark.parametrize("broken", ["name: a\nsteps: [", "name: a\ntrigger: {poll: {}}\nsteps: []", "", "\x00"])
def test_a_workflow_edited_into_an_error_keeps_its_old_version(tmp_path: Path, broken: str) -> None:
    old = reading(tmp_path, {"workflows/a.yaml": workflow("a", poll()), "workflows/b.yaml": workflow("b")})
    new = reading(tmp_path, {"workflows/a.yaml": broken, "workflows/b.yaml": workflow("b")})
    kept = carry_over(old, new)
    assert kept.workflows == old.workflows
    assert sorted(kept.triggers, key=str) == sorted(old.triggers, key=str)
    assert {feed.name for feed in kept.feeds} == {feed.name for feed in old.feeds}
    assert kept.queries == old.queries
    assert kept.integrations == old.integrations
    change = plan(old, new)
    assert not change.changes
    assert len(change.refused) == 1


def test_an_old_version_survives_several_reloads_and_goes_with_its_file(tmp_path: Path) -> None:
    old = reading(tmp_path, {"workflows/a.yaml": workflow("a", poll())})
    for _ in range(3):
        old = carry_over(old, reading(tmp_path, {"workflows/a.yaml": "["}))
    assert set(old.workflows) == {"a"}
    assert not carry_over(old, reading(tmp_path, {})).workflows


def test_a_kept_workflow_gives_way_to_its_corrected_file(tmp_path: Path) -> None:
    old = reading(tmp_path, {"workflows/a.yaml": workflow("a", poll())})
    kept = carry_over(old, reading(tmp_path, {"workflows/a.yaml": "["}))
    new = reading(tmp_path, {"workflows/a.yaml": workflow("a", "api: true")})
    assert carry_over(kept, new).triggers == new.triggers


def test_a_feed_edited_into_an_error_stays_with_its_listeners(tmp_path: Path) -> None:
    old = reading(tmp_path, {"harken.yaml": NEWS, "workflows/a.yaml": workflow("a", "feed: news")})
    new = reading(tmp_path, {"harken.yaml": NEWS.replace("1m", "1s"), "workflows/a.yaml": workflow("a", "feed: news")})
    kept = carry_over(old, new)
    assert feed_of(kept, "a") == feed_of(old, "a")
    assert plan(old, new).refused == ("feed:news", "workflow:a")
    assert "feed:news: refused, so its old version stays" in plan(old, new).notes


def test_harken_yaml_with_a_syntax_error_changes_nothing(tmp_path: Path) -> None:
    main = NEWS + "server: {port: 1234}\nintegrations: {pd: {kind: pagerduty, token: tok-en}}\n"
    flows = {
        "workflows/a.yaml": workflow("a", "feed: news"),
        "workflows/b.yaml": workflow("b", "poll: {integration: pd, query: {user_id: x}}"),
    }
    old = reading(tmp_path, {"harken.yaml": main, **flows})
    new = reading(tmp_path, {"harken.yaml": main + "[", **flows})
    kept = carry_over(old, new)
    assert kept.settings == old.settings
    assert kept.integrations == old.integrations
    assert sorted(feed.name for feed in kept.feeds) == sorted(feed.name for feed in old.feeds)
    assert [trigger.name for trigger in kept.triggers] == ["a", "b"]
    assert not plan(old, new).changes


def test_a_wrong_section_keeps_its_old_values_and_the_others_change(tmp_path: Path) -> None:
    old = reading(tmp_path, {"harken.yaml": "server: {port: 1}\nlog: {level: debug}\nstore: old.db"})
    new = reading(tmp_path, {"harken.yaml": "server: {port: x}\nlog: {level: error}\nstore: 3"})
    kept = carry_over(old, new)
    assert (kept.settings.server.port, kept.settings.log.level) == (1, "error")
    assert kept.store == old.store
    assert plan(old, new).replace == ("section:log",)


def test_an_integration_edited_into_an_error_keeps_its_old_account(tmp_path: Path) -> None:
    flow = {"workflows/b.yaml": workflow("b", "poll: {integration: pd, query: {user_id: x}}")}
    old = reading(tmp_path, {"harken.yaml": "integrations: {pd: {kind: pagerduty, token: tok-en}}", **flow})
    new = reading(tmp_path, {"harken.yaml": "integrations: {pd: {kind: pagerduty, tokn: tok-en}}", **flow})
    assert carry_over(old, new).integrations == old.integrations
    assert "tok-en" in carry_over(old, new).secrets


def test_a_new_token_replaces_the_integration_and_nothing_else(tmp_path: Path) -> None:
    files = {
        "harken.yaml": "integrations: {pd: {kind: pagerduty, token: '${PD_TOKEN}'}}",
        "workflows/b.yaml": workflow("b", "poll: {integration: pd, query: {user_id: x}}"),
    }
    old = reading(tmp_path, files, environ={"PD_TOKEN": "first"})
    new = reading(tmp_path, files, environ={"PD_TOKEN": "second"})
    change = plan(old, new)
    assert (change.add, change.replace, change.remove) == ((), ("integration:pd",), ())


def test_a_changed_query_goes_on_with_the_cursor(tmp_path: Path) -> None:
    def asking(rest: str) -> str:
        return workflow("a", f"poll: {{integration: json, query: {{url: 'https://x.example'{rest}}}}}")

    old = reading(tmp_path, {"workflows/a.yaml": asking("")})
    new = reading(tmp_path, {"workflows/a.yaml": asking(", items_path: items")})
    moved = feed_of(carry_over(old, new), "a")
    assert moved.inherits == feed_of(old, "a").name != moved.name
    assert plan(old, new).notes == ()


@pytest.mark.parametrize(
    ("trigger", "what"),
    [(poll("https://other.example"), "url"), ("schedule: '0 9 * * *'", "kind"), ("webhook: {}", "kind")],
)
def test_a_new_subject_starts_a_new_cursor_and_the_plan_says_so(tmp_path: Path, trigger: str, what: str) -> None:
    old = reading(tmp_path, {"workflows/oncall.yaml": workflow("oncall", poll())})
    new = reading(tmp_path, {"workflows/oncall.yaml": workflow("oncall", trigger)})
    assert feed_of(carry_over(old, new), "oncall").inherits == ""
    assert plan(old, new).notes == (f"oncall: the new {what} starts a new cursor",)


def test_a_named_feed_keeps_its_cursor_and_the_plan_warns_of_a_new_url(tmp_path: Path) -> None:
    old = reading(tmp_path, {"harken.yaml": NEWS})
    new = reading(tmp_path, {"harken.yaml": NEWS.replace("x.example", "y.example")})
    assert plan(old, new).replace == ("feed:news",)
    assert plan(old, new).notes[0].startswith("news: the new url is read with the cursor and memory of the old one")


def test_moving_to_a_known_feed_inherits_nothing(tmp_path: Path) -> None:
    both = {"harken.yaml": NEWS, "workflows/b.yaml": workflow("b", "feed: news")}
    old = reading(tmp_path, {**both, "workflows/a.yaml": workflow("a", poll("https://x.example"))})
    new = reading(tmp_path, {**both, "workflows/a.yaml": workflow("a", "feed: news")})
    assert feed_of(carry_over(old, new), "a").inherits == ""
    assert plan(old, new).notes == ("a: listens to news from now on, which has its own cursor",)


def test_naming_an_inline_poll_goes_on_with_its_cursor(tmp_path: Path) -> None:
    old = reading(tmp_path, {"workflows/a.yaml": workflow("a", poll("https://x.example"))})
    new = reading(tmp_path, {"harken.yaml": NEWS, "workflows/a.yaml": workflow("a", "feed: news")})
    assert feed_of(carry_over(old, new), "a").inherits == feed_of(old, "a").name


def test_several_feeds_that_become_one_go_on_with_the_widest_lookback(tmp_path: Path) -> None:
    files = {
        "workflows/a.yaml": workflow("a", poll(rest="lookback: 1m")),
        "workflows/b.yaml": workflow("b", poll(rest="lookback: 1h")),
    }
    old = reading(tmp_path, files)
    new = reading(tmp_path, {"workflows/a.yaml": workflow("a", poll()), "workflows/b.yaml": workflow("b", poll())})
    assert feed_of(carry_over(old, new), "a").inherits == feed_of(old, "b").name
    assert plan(old, new).notes == ("a: goes on with the cursor of b",)


def test_feeds_inherit_from_what_the_store_knew_as_well(tmp_path: Path) -> None:
    old = reading(tmp_path, {"workflows/a.yaml": workflow("a", poll(rest="lookback: 1h"))})
    new = reading(tmp_path, {"workflows/a.yaml": workflow("a", poll())})
    heirs = inherit_cursors(new.feeds, new.triggers, old.feeds, old.triggers)
    assert [feed.inherits for feed in heirs if feed.kind == "json"] == [feed_of(old, "a").name]


def test_a_kept_listener_keeps_its_shorter_interval(tmp_path: Path) -> None:
    old = reading(
        tmp_path,
        {
            "workflows/a.yaml": workflow("a", poll(rest="interval: 20s")),
            "workflows/b.yaml": workflow("b", poll(rest="interval: 5m")),
        },
    )
    new = reading(tmp_path, {"workflows/a.yaml": "[", "workflows/b.yaml": workflow("b", poll(rest="interval: 5m"))})
    assert feed_of(carry_over(old, new), "a").schedule == Every(seconds=20)


def test_without_an_old_configuration_nothing_is_carried_over(tmp_path: Path) -> None:
    new = reading(tmp_path, {"workflows/a.yaml": "["})
    assert carry_over(None, new) is new
