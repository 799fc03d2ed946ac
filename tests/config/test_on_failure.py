"""`on_failure:` names who is told of every trouble: a message, or a workflow."""

from __future__ import annotations

from pathlib import Path

from harken.config.loaded import Loaded
from harken.config.on_failure import ON_FAILURE
from harken.config.reload_plan import carry_over
from harken.feed import Trigger
from harken.operate.load_and_check_configuration import load_directory

FLOW = "name: tell\nsteps:\n  - {id: say, action: transform, set: {text: hello}}\n"


def load(directory: Path, on_failure: str, flow: str = FLOW) -> Loaded:
    directory.joinpath("harken.yaml").write_text(f"on_failure: {on_failure}\n")
    directory.joinpath("workflows").mkdir(exist_ok=True)
    directory.joinpath("workflows/tell.yaml").write_text(flow)
    return load_directory(directory, {})


def listener(loaded: Loaded) -> Trigger:
    [found] = [trigger for trigger in loaded.triggers if trigger.name == ON_FAILURE]
    return found


def test_a_workflow_is_started_with_each_alert(tmp_path: Path) -> None:
    loaded = load(tmp_path, "{workflow: tell}")
    found = listener(loaded)
    assert (found.feed, found.workflow, found.workflow_rev) == ("harken", "tell", loaded.workflows["tell"].rev)
    assert {"feed.paused", "runs.held", "runs.dead", "trigger.stale"} <= set(found.types)
    assert list(loaded.workflows) == ["tell"]


def test_a_message_is_a_workflow_of_one_step(tmp_path: Path) -> None:
    loaded = load(tmp_path, "{notify: {channel: webhook, to: 'https://example.com/hook'}}")
    [step] = loaded.workflows[ON_FAILURE].definition["steps"]
    assert (step["action"], step["channel"], step["text"]) == ("notify", "webhook", "{{.trigger.event.text}}")
    assert listener(loaded).workflow == ON_FAILURE


def test_an_unknown_workflow_is_a_finding_and_the_rest_runs(tmp_path: Path) -> None:
    loaded = load(tmp_path, "{workflow: tall}")
    [finding] = loaded.findings
    assert (finding.file, finding.line, finding.message) == (
        "harken.yaml", 1, "there is no workflow 'tall' that could be used"
    )  # fmt: skip
    assert (loaded.blocking, loaded.triggers, list(loaded.workflows)) == ((), (), ["tell"])


def test_message_and_workflow_exclude_each_other(tmp_path: Path) -> None:
    loaded = load(tmp_path, "{workflow: tell, notify: {channel: webhook, to: 'https://example.com'}}")
    assert [finding.message for finding in loaded.blocking] == ["notify and workflow exclude each other"]


def test_a_workflow_that_becomes_wrong_is_told_with_its_old_version(tmp_path: Path) -> None:
    old = load(tmp_path, "{workflow: tell}")
    merged = carry_over(old, load(tmp_path, "{workflow: tell}", FLOW.replace("transform", "trransform")))
    assert listener(merged) == listener(old)
    merged = carry_over(old, load(tmp_path, "{workflow: 7}"))
    assert listener(merged) == listener(old)


def test_without_the_section_nobody_is_told(tmp_path: Path) -> None:
    old = load(tmp_path, "{workflow: tell}")
    assert carry_over(old, load(tmp_path, "{}")).triggers == ()
