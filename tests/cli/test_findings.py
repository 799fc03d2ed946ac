"""What `config check`, `workflows check` and `doctor` find before the first event, and how they print it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from harken.cli.root import run
from harken.extras import EXTRAS
from harken.services import google_calendar

WRONG_CONDITION = """\
name: wrong
trigger:
  schedule: {every: 10s}
  condition: event.x == 1 and event.y == 2
steps:
  - {id: look, action: filter, condition: "sizze(event.x) > 1"}
"""


def write(directory: Path, file: str, text: str) -> Path:
    path = directory / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return directory


def test_findings_show_the_line_of_a_condition_with_a_caret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "workflows/wrong.yaml", WRONG_CONDITION)
    assert run(["--config", str(tmp_path), "config", "check"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("trigger.condition: 1:14: write && instead of and")
    assert lines[1:3] == ["    event.x == 1 and event.y == 2", "                 ^"]
    assert lines[3].endswith("1:1: there is no function sizze; did you mean size?")
    assert lines[4:] == ["    sizze(event.x) > 1", "    ^", "2 errors, 0 warnings"]


@pytest.mark.parametrize("command", ["config", "workflows"])
def test_output_format_github_annotates_the_line_in_the_file(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "workflows/wrong.yaml", WRONG_CONDITION)
    assert run(["--config", str(tmp_path), command, "check", "--output-format", "github"]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        f"::error file={tmp_path}/workflows/wrong.yaml,line=4,col=14,title=expression::"
        "1:14: write && instead of and%0Aevent.x == 1 and event.y == 2%0A             ^"
    )


@pytest.mark.parametrize("command", ["config", "workflows"])
def test_output_format_json_is_that_of_json(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "workflows/wrong.yaml", WRONG_CONDITION)
    assert run(["--config", str(tmp_path), command, "check", "--output-format", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert run(["--config", str(tmp_path), command, "check", "--json"]) == 1
    assert rows == json.loads(capsys.readouterr().out)
    assert rows[0]["excerpt"] == "event.x == 1 and event.y == 2\n             ^"


def test_one_error_is_not_one_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "workflows/one.yaml", "name: one\nsteps: [{action: fliter}]\n")
    assert run(["--config", str(tmp_path), "config", "check"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 error, 0 warnings"


MODELS = """\
name: asks
steps:
  - {id: a, action: llm, model: fsat, prompt: hello}
  - {id: b, action: llm, model: "nobody:gpt", prompt: hello}
  - {id: c, action: llm, prompt: hello}
"""


def found(directory: Path, capsys: pytest.CaptureFixture[str], command: str = "config") -> list[str]:
    run(["--config", str(directory), command, "check"])
    return [line for line in capsys.readouterr().out.splitlines()[:-1] if not line.startswith("    ")]


@pytest.mark.parametrize("command", ["config", "workflows"])
def test_unknown_models_and_tiers_are_found(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "workflows/asks.yaml", MODELS)
    (tier,) = found(tmp_path, capsys, command)
    assert tier.startswith("workflows/asks.yaml:3:33: steps[0].model: there is no model 'fsat'. Did you mean fast?")
    write(tmp_path, "workflows/asks.yaml", MODELS.replace("fsat", "fast"))
    unset, provider, _ = found(tmp_path, capsys, command)
    assert "no model is configured for fast" in unset
    assert "workflows/asks.yaml:4:33: steps[1]: nobody:gpt names no provider of models that is known" in provider


def test_a_tier_without_a_model_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "workflows/a.yaml", "name: a\nsteps: [{action: llm, model: fast, prompt: hello}]\n")
    (line,) = found(tmp_path, capsys)
    assert "workflows/a.yaml:2:30: warning: steps[0]: no model is configured for fast. Set models.default" in line


def test_a_tier_that_names_no_provider_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "harken.yaml", "models: {fast: gpt-4}\n")
    write(tmp_path, "workflows/a.yaml", "name: a\nsteps: [{action: llm, model: fast, prompt: hello}]\n")
    assert "gpt-4 names no provider of models that is known" in found(tmp_path, capsys)[0]


def test_unknown_channels_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """\
    name: tells
    steps:
      - {action: notify, channel: telegramm, to: "1", text: hello}
      - {action: if, condition: "true", then: [{action: notify, channel: rss, to: "1", text: hello}]}
    """
    write(tmp_path, "workflows/tells.yaml", text)
    unknown, silent = found(tmp_path, capsys)
    assert "steps[0].channel: there is no integration 'telegramm'. Did you mean telegram?" in unknown
    assert "steps[1].then[0].channel: 'rss' cannot deliver messages" in silent


def test_unknown_steps_in_templates_and_conditions_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """\
    name: reads
    steps:
      - {id: draft, action: transform, set: {text: hello}}
      - {id: b, action: transform, set: {text: "{{.steps.darft.response.text}}"}}
      - {id: c, action: filter, condition: "steps.drafft.response.text != ''"}
      - {id: d, action: transform, set: {all: "{{range .event.items}}{{.steps.own}} {{$.steps.nope}}{{end}}"}}
      - {action: transform, set: {text: "{{.steps.draft.response.text}} {{.steps.transform_5.status}}"}}
    outputs: {text: "{{.steps.drat.response}}"}
    """
    write(tmp_path, "workflows/reads.yaml", text)
    lines = found(tmp_path, capsys)
    assert ["there is no step 'darft'" in lines[0], "there is no step 'drafft'" in lines[1]] == [True, True]
    assert ["there is no step 'nope'" in lines[2], "outputs.text: there is no step 'drat'" in lines[3]] == [True, True]
    assert len(lines) == 4
    assert 'Did you mean "draft"?' in lines[0]


def test_steps_in_the_condition_of_a_trigger_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """\
    name: early
    trigger: {schedule: {every: 10s}, condition: "steps.draft.response != ''"}
    steps: [{id: draft, action: transform, set: {text: hello}}]
    """
    write(tmp_path, "workflows/early.yaml", text)
    (line,) = found(tmp_path, capsys)
    assert "trigger.condition: no step has run when a trigger decides" in line


JOB = """\
agents: {{me: {{whatsapp: wa, ntfy: push}}}}
pollers:
  jobs:
    - id: news
      kind: rss
      agent: me
      schedule: {{every_secs: 300}}
      config:
        feed_url: https://example.org/feed.xml
        message_template: {template}
        deliver: {{channel: {channel}, to: "{to}"}}
"""
ACCOUNTS = """\
integrations:
  wa: {kind: whatsapp, token: abcdefgh, phone_number_id: "1234567"}
  push: {kind: ntfy}
"""


def job(directory: Path, template: str = '"{title}"', channel: str = "push", to: str = "news") -> Path:
    write(directory, "harken.yaml", ACCOUNTS)
    return write(directory, "pollers.yaml", JOB.format(template=template, channel=channel, to=to))


def test_an_empty_message_template_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = found(job(tmp_path, template='""'), capsys)
    assert line.startswith("pollers.yaml:10:27: config.message_template: the messages would be empty")


def test_unknown_placeholders_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = found(job(tmp_path, template='"{titel} {link} {json}"'), capsys)
    assert "warning: config.message_template: no event of this kind has {titel}" in line
    assert line.endswith("Did you mean title?")


def test_whatsapp_numbers_that_cannot_be_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = found(job(tmp_path, channel="wa", to="0151 23"), capsys)
    assert "config.deliver.to: `to` is not a phone number. Write it with the country's code" in line
    write(tmp_path, "workflows/a.yaml", "name: a\nsteps: [{action: notify, channel: wa, to: Ada, text: hello}]\n")
    assert "steps[0].to: `to` is not a phone number" in found(tmp_path, capsys)[1]
    job(tmp_path, channel="wa", to="+49 151 23456789")
    assert len(found(tmp_path, capsys)) == 1


def test_missing_extras_are_named_with_pip_pipx_and_uv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harken.extras._is_installed", lambda package: False)
    monkeypatch.delenv("HARKEN_STORE", raising=False)
    write(tmp_path, "harken.yaml", "models: {default: 'openai:gpt-4o-mini'}\nstore: postgresql://localhost/harken\n")
    text = """\
    name: page
    trigger: {poll: {integration: page, interval: 5m, query: {url: "https://example.org"}}}
    steps: [{action: llm, prompt: hello}]
    """
    write(tmp_path, "workflows/page.yaml", text)
    store, page, model = found(tmp_path, capsys)
    assert store.startswith("harken.yaml:2:8: store: this store needs a driver that is not installed")
    assert store.endswith(
        "pip install 'harken[postgres]' (with pipx: pipx install --force 'harken[postgres]'; "
        "with uv: uv tool install 'harken[postgres]')"
    )
    assert "page needs a package that is not installed (the extra page). pip install 'harken[page]'" in page
    assert "openai:gpt-4o-mini needs a library that is not installed (the extra openai)" in model


def test_every_extra_of_the_package_is_known() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for_working_on_harken = {"dev", "docs"}
    assert set(EXTRAS) == set(project["optional-dependencies"]) - for_working_on_harken


def test_no_workflows_at_all_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", str(tmp_path), "config", "check"]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.endswith("there are no workflows and no poller jobs, so nothing will happen. Begin with: harken init")
    run(["--config", str(tmp_path), "doctor", "--json"])
    (config,) = [row for row in json.loads(capsys.readouterr().out) if row["name"] == "config"]
    assert (config["state"], "there are no workflows" in config["message"]) == ("warn", True)


def test_doctor_names_the_first_error_before_the_first_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "workflows/asks.yaml", MODELS)
    assert run(["--config", str(tmp_path), "doctor", "--json"]) == 1
    (config,) = [row for row in json.loads(capsys.readouterr().out) if row["name"] == "config"]
    assert "there is no model 'fsat'" in config["message"]


def test_the_fields_that_are_checked_are_those_of_the_events() -> None:
    assert frozenset(google_calendar._data({}, "primary")) == google_calendar.FIELDS


def test_start_without_any_configuration_stops_with_try_harken_init(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--config", str(tmp_path), "start"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"harken: there is no configuration in {tmp_path}\n  Try: harken init")
    assert list(tmp_path.iterdir()) == []


def test_init_adds_gitignore_and_a_webhook_example_whose_key_is_private(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", str(tmp_path)]) == 0
    assert {".env", "harken.db*"} <= set((tmp_path / ".gitignore").read_text().splitlines())
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    capsys.readouterr()
    assert run(["--config", str(tmp_path), "triggers", "list", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["hello", "inbox"]


def test_status_counts_one_error_and_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "workflows/one.yaml", "name: one\nsteps: [{action: fliter}]\n")
    write(tmp_path, "workflows/two.yaml", "name: two\nsteps: [{action: transform, set: {text: hello}}]\n")
    assert run(["--config", str(tmp_path), "workflows", "run", "two"]) == 0
    capsys.readouterr()
    run(["--config", str(tmp_path), "status"])
    out = capsys.readouterr().out
    assert "The configuration has 1 error. See: harken config check" in out
    assert "1 run" in out
    assert "1 runs" not in out
