"""A reload of trackers and projects: what changed, and the old version of what is refused now."""

from __future__ import annotations

from pathlib import Path

from harken.config.loaded import Loaded
from harken.config.reload_plan import carry_over, plan
from harken.schedule import Every
from tests.config.trackers.makers import read

TEXT = """
trackers:
  acme:
    type: github
    organization: acme
    webhook_secret: ${GITHUB_WEBHOOK_SECRET}
    polling: {enabled: true, interval_seconds: 30}
projects:
  web: {tracker: acme, resolution: {repo: web}, pipeline_from_label: {fix: fix-bug, scan: security-scan}}
  api: {tracker: acme, resolution: {repo: api}, pipeline: fix-bug}
"""


def feed_of(loaded: Loaded) -> object:
    return next(feed for feed in loaded.feeds if feed.name == "tracker/acme")


def test_switching_polling_off_keeps_the_sweep_and_the_feed(tmp_path: Path) -> None:
    old = read(tmp_path, TEXT)
    new = read(tmp_path, TEXT.replace("enabled: true", "enabled: false"))
    after = carry_over(old, new)
    [feed] = [feed for feed in after.feeds if feed.name == "tracker/acme"]
    assert feed.schedule == Every(seconds=900.0)
    assert not after.trackers["acme"].polled
    assert plan(old, new).replace == ("feed:tracker/acme",)


def test_the_order_of_labels_counts(tmp_path: Path) -> None:
    old = read(tmp_path, TEXT)
    new = read(tmp_path, TEXT.replace("{fix: fix-bug, scan: security-scan}", "{scan: security-scan, fix: fix-bug}"))
    assert feed_of(old) != feed_of(new)
    assert old.generation != new.generation


def test_an_equal_configuration_is_kept(tmp_path: Path) -> None:
    old, new = read(tmp_path, TEXT), read(tmp_path, TEXT)
    assert old.generation == new.generation == carry_over(old, new).generation
    assert not plan(old, new).changes


def test_a_project_edited_into_a_typo_keeps_its_old_version(tmp_path: Path) -> None:
    old = read(tmp_path, TEXT)
    new = read(tmp_path, TEXT.replace("fix: fix-bug", "fix: fix-bugs"))
    assert [trigger.name for trigger in new.triggers] == ["acme/api"]
    after = carry_over(old, new)
    assert {trigger.name for trigger in after.triggers} == {"acme/web", "acme/api"}
    assert set(after.trackers["acme"].locations) == {"acme/web", "acme/api"}
    assert "project:web: refused, so its old version stays" in plan(old, new).notes


def test_a_tracker_edited_into_a_typo_keeps_its_old_version(tmp_path: Path) -> None:
    old = read(tmp_path, TEXT)
    new = read(tmp_path, TEXT.replace("type: github", "type: githb"))
    assert not new.triggers
    after = carry_over(old, new)
    assert after.trackers == old.trackers
    assert after.triggers == old.triggers
    assert after.queries == old.queries
    assert after.integrations == old.integrations
    assert after.generation == old.generation


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    old = read(tmp_path, TEXT)
    after = carry_over(old, read(tmp_path, "trackers: ["))
    assert after.trackers == old.trackers
    assert after.triggers == old.triggers


def test_a_project_that_is_taken_out_is_gone(tmp_path: Path) -> None:
    old = read(tmp_path, TEXT)
    new = read(tmp_path, "\n".join(line for line in TEXT.splitlines() if "  web:" not in line))
    found = plan(old, new)
    assert found.remove == ("trigger:acme/web",)
    assert carry_over(old, new).trackers["acme"].locations == ("acme/api",)
    gone = plan(old, read(tmp_path, "log: {level: info}"))
    assert {"feed:tracker/acme", "trigger:acme/web", "trigger:acme/api"} <= set(gone.remove)


def test_a_pipeline_that_was_edited_gets_its_new_revision(tmp_path: Path) -> None:
    old = read(tmp_path, TEXT)
    edited = "name: fix-bug\nsteps: [{id: b, action: transform, set: {said: b}}]\n"
    (tmp_path / "workflows/fix-bug.yaml").write_text(edited)
    new = read(tmp_path, TEXT, pipelines=("security-scan",))
    after = carry_over(old, new)
    revision = new.workflows["fix-bug"].rev
    assert revision != old.workflows["fix-bug"].rev
    assert {trigger.routes["fix-bug"] for trigger in after.triggers} == {revision}
    assert plan(old, new).replace == ("workflow:fix-bug",)


def test_a_pipeline_edited_into_an_error_goes_on_as_it_was(tmp_path: Path) -> None:
    old = read(tmp_path, TEXT)
    (tmp_path / "workflows/fix-bug.yaml").write_text("name: fix-bug\nsteps: nonsense\n")
    new = read(tmp_path, TEXT, pipelines=("security-scan",))
    assert not new.triggers
    after = carry_over(old, new)
    assert {trigger.name: trigger.routes for trigger in after.triggers} == {
        trigger.name: trigger.routes for trigger in old.triggers
    }


def test_a_changed_webhook_secret_reopens_the_feed(tmp_path: Path) -> None:
    old = read(tmp_path, TEXT)
    new = read(tmp_path, TEXT.replace("${GITHUB_WEBHOOK_SECRET}", "another-secret-0123"))
    assert old.queries["tracker/acme"] != new.queries["tracker/acme"]
    assert feed_of(old) == feed_of(new)
