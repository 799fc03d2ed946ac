"""`harken import gmail-poller`: prints or writes jobs, and never overwrites any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harken.cli.root import run
from tests.config.test_agentsmith import INLINE
from tests.config.test_legacy_gmail import SMALL, WHOLE


@pytest.fixture
def legacy(tmp_path: Path) -> Path:
    file = tmp_path / "plugins" / "gmail-poller.yaml"
    file.parent.mkdir()
    file.write_text(WHOLE)
    return file


def test_the_jobs_are_printed_and_the_rest_is_said_beside_them(
    legacy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--config", str(tmp_path), "import", "gmail-poller", str(legacy)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("pollers:\n  jobs:\n    - id: gmail_legacy_Lead_Alert_\n      kind: gmail\n")
    assert "gmail-poller.yaml:7:7: warning: gmail_poller.accounts[0].token_path: credentials are not taken" in said.err
    assert not (tmp_path / "pollers.yaml").exists()


def test_the_jobs_are_written_as_they_are_printed(
    legacy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--config", str(tmp_path), "import", "gmail-poller", str(legacy)]) == 0
    printed = capsys.readouterr().out
    assert run(["--config", str(tmp_path), "import", "gmail-poller", str(legacy), "--write"]) == 0
    assert (tmp_path / "pollers.yaml").read_text() == printed
    assert "1 job. Now: harken config check" in capsys.readouterr().out


def test_what_is_there_is_never_overwritten(legacy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pollers.yaml").write_text("# mine\n")
    assert run(["--config", str(tmp_path), "import", "gmail-poller", str(legacy), "--write"]) == 1
    assert "paste what is printed" in capsys.readouterr().err
    assert (tmp_path / "pollers.yaml").read_text() == "# mine\n"


def test_json_has_the_jobs_the_findings_and_what_was_written(
    legacy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    legacy.write_text(SMALL)
    assert run(["--config", str(tmp_path), "import", "gmail-poller", str(legacy), "--write", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [job["agent"] for job in made["jobs"]] == ["default"]
    assert [finding["line"] for finding in made["findings"]] == [2, 4]
    assert made["written"] == str(tmp_path / "pollers.yaml")


def test_a_job_that_cannot_be_taken_over_fails_and_its_siblings_are_printed(
    legacy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    legacy.write_text(WHOLE + "    - {name: b}\n")
    assert run(["--config", str(tmp_path), "import", "gmail-poller", str(legacy)]) == 1
    said = capsys.readouterr()
    assert "gmail_legacy_Lead_Alert_" in said.out
    assert "gmail_legacy_b" not in said.out
    assert "gmail-poller.yaml:27:7: gmail_poller.jobs[1].query: query is missing" in said.err


@pytest.mark.parametrize("text", ["a: [", "\x00"])
def test_a_file_that_is_no_yaml_is_told(
    legacy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    legacy.write_text(text)
    assert run(["--config", str(tmp_path), "import", "gmail-poller", str(legacy), "--write"]) == 1
    assert "not YAML" in capsys.readouterr().err
    assert not (tmp_path / "pollers.yaml").exists()


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "gmail-poller", str(tmp_path / "none.yaml")]) == 1
    assert "cannot be read" in capsys.readouterr().err


@pytest.fixture
def smith(tmp_path: Path) -> Path:
    file = tmp_path / "elsewhere" / "agentsmith.yml"
    file.parent.mkdir()
    file.write_text(INLINE)
    return file


def test_agentsmith_projects_are_printed_and_what_is_left_out_is_said_beside_them(
    smith: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--config", str(tmp_path), "import", "agentsmith", str(smith)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("label_prefix: agent-smith\n")
    assert "agentsmith.yml:10:7: warning: projects.my-api.github_trigger.comment_keyword: this is not taken" in said.err
    assert "the pipeline security-scan needs workflows/security-scan.yaml" in said.err
    assert not (tmp_path / "harken.yaml").exists()


def test_agentsmith_projects_are_written_once(smith: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "fix-bug.yaml").touch()
    assert run(["--config", str(tmp_path), "import", "agentsmith", str(smith), "--write"]) == 0
    said = capsys.readouterr()
    assert "1 project. Now: harken config check" in said.out
    assert "fix-bug needs" not in said.err
    assert run(["--config", str(tmp_path), "import", "agentsmith", str(smith), "--write"]) == 1
    assert "harken.yaml is there already" in capsys.readouterr().err


def test_json_of_agentsmith_has_everything(smith: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", str(tmp_path), "import", "agentsmith", str(smith), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["projects"], made["missing"]) == (["my-api"], ["fix-bug", "security-scan"])
    assert len(made["findings"]) == 3


def test_a_file_that_is_no_agentsmith_yml_is_told(
    smith: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smith.write_text("a: 1\n")
    assert run(["--config", str(tmp_path), "import", "agentsmith", str(smith)]) == 1
    assert "Is this an agentsmith.yml?" in capsys.readouterr().err
    assert run(["--config", str(tmp_path), "import", "agentsmith", str(tmp_path / "none.yml")]) == 1
    assert "Give the path of an agentsmith.yml" in capsys.readouterr().err
