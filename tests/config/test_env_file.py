"""The file .env beside harken.yaml."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harken.cli.root import run
from harken.config.env_file import environment_of, parse
from harken.errors import Misconfigured

HOOK = """\
name: hook
trigger: {webhook: {id: hook, secret: "${HOOK_SECRET}"}}
steps: [{action: transform, set: {text: hello}}]
"""


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=plain", "plain"),
        ("  export A = spaced out  # why", "spaced out"),
        ("A=", ""),
        ("A= # nothing", ""),
        ("A=a#b", "a#b"),
        ("A='as $it \\n is' # why", "as $it \\n is"),
        ('A="two\\nlines \\"quoted\\" # kept"', 'two\nlines "quoted" # kept'),
        ("# a comment\n\nA=1\nA=2", "2"),
    ],
)
def test_lines_are_read_as_people_write_them(line: str, value: str) -> None:
    assert parse(line) == {"A": value}


@pytest.mark.parametrize("line", ["a secret alone", "1A=x", "A='open", 'A="open', "=x"])
def test_a_wrong_line_is_named_and_its_value_is_not(line: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        parse(f"# first\n{line}")
    assert caught.value.message == ".env:2: this is not a variable"


def test_the_real_environment_wins_and_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARKEN_TEST_BOTH", "real")
    monkeypatch.delenv("HARKEN_TEST_FILE", raising=False)
    (tmp_path / ".env").write_text("HARKEN_TEST_BOTH=file\nHARKEN_TEST_FILE=file\n")
    with environment_of(tmp_path):
        assert (os.environ["HARKEN_TEST_BOTH"], os.environ["HARKEN_TEST_FILE"]) == ("real", "file")
    assert "HARKEN_TEST_FILE" not in os.environ


def test_env_beside_harken_yaml_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "hook.yaml").write_text(HOOK)
    assert run(["--config", str(tmp_path), "config", "check"]) == 1
    assert "the environment has no HOOK_SECRET" in capsys.readouterr().out
    (tmp_path / ".env").write_text("HOOK_SECRET=a-long-secret-of-mine\n")
    assert run(["--config", str(tmp_path), "config", "check"]) == 0


def test_a_wrong_env_is_an_error_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".env").write_text("hunter2\n")
    assert run(["--config", str(tmp_path), "config", "check"]) == 1
    err = capsys.readouterr().err
    assert (".env:1: this is not a variable" in err, "hunter2" in err) == (True, False)
