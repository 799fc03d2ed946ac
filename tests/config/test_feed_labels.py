"""Feeds that workflows describe are called after them, whatever their stored names."""

from __future__ import annotations

from pathlib import Path

from harken.config.loaded import Loaded
from harken.config.reload_plan import carry_over, plan
from tests.config.makers import poll, workflow
from tests.config.test_reload_plan import feed_of, reading


def labels(loaded: Loaded) -> dict[str, str]:
    return {trigger.name: feed_of(loaded, trigger.name).display_name for trigger in loaded.triggers}


def test_a_feed_made_from_a_workflow_is_named_after_it_and_stored_under_its_digest(tmp_path: Path) -> None:
    loaded = reading(tmp_path, {"workflows/hello.yaml": workflow("hello", poll())})

    feed = feed_of(loaded, "hello")

    assert feed.display_name == "hello"
    assert feed.name.startswith("json-") and len(feed.name) == len("json-") + 8


def test_a_feed_that_several_workflows_share_has_the_name_of_the_first_of_them(tmp_path: Path) -> None:
    files = {"workflows/z.yaml": workflow("urgent", poll()), "workflows/a.yaml": workflow("mail", poll())}

    loaded = reading(tmp_path, files)

    assert labels(loaded) == {"urgent": "mail", "mail": "mail"}


def test_a_name_that_another_feed_has_is_not_given_twice(tmp_path: Path) -> None:
    named = "feeds:\n  hello: {integration: json, query: {url: 'https://x.example'}, interval: 1m}\n"
    files = {"harken.yaml": named, "workflows/hello.yaml": workflow("hello", poll("https://y.example"))}

    loaded = reading(tmp_path, files)

    feed = feed_of(loaded, "hello")
    assert feed.display_name == feed.name != "hello"


def test_a_renamed_workflow_keeps_its_feed_and_gives_it_its_new_name(tmp_path: Path) -> None:
    old = reading(tmp_path, {"workflows/a.yaml": workflow("hello", poll())})
    new = reading(tmp_path, {"workflows/a.yaml": workflow("hallo", poll())})

    change = plan(old, new)

    assert feed_of(old, "hello").name == feed_of(new, "hallo").name
    assert "feed:hallo" in change.keep
    assert not any(name.startswith("feed:") for name in (*change.add, *change.remove, *change.replace))
    assert "hallo: the feed that was shown as hello; its cursor and memory stay" in change.notes


def test_another_query_replaces_the_feed_of_the_same_name(tmp_path: Path) -> None:
    old = reading(tmp_path, {"workflows/a.yaml": workflow("hello", poll())})
    new = reading(tmp_path, {"workflows/a.yaml": workflow("hello", poll(rest="lookback: 1h"))})

    assert plan(old, new).replace == ("feed:hello", "trigger:hello")


def test_a_kept_workflow_still_gives_its_feed_its_name(tmp_path: Path) -> None:
    old = reading(tmp_path, {"workflows/a.yaml": workflow("hello", poll())})
    new = reading(tmp_path, {"workflows/a.yaml": "name: hello\ntrigger: {poll: 7}\nsteps: []\n"})

    assert labels(carry_over(old, new))["hello"] == "hello"


def test_the_name_is_no_part_of_what_replicas_compare(tmp_path: Path) -> None:
    loaded = reading(tmp_path, {"workflows/a.yaml": workflow("hello", poll())})

    assert carry_over(loaded, loaded).generation == loaded.generation
