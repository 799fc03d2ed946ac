"""Shells complete commands, options, and names of this configuration."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from harken.cli.name_completion import workflow_names
from harken.cli.root import root, run


def completed(*words: str, begun: str = "") -> list[str]:
    found = ShellComplete(root, {}, "harken", "_HARKEN_COMPLETE").get_completions(list(words), begun)
    return [item.value for item in found]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "workflows" / "more").mkdir(parents=True)
    (tmp_path / "workflows" / "a.yaml").write_text("# mine\nname: orders # all\n")
    (tmp_path / "workflows" / "more" / "b.yml").write_text('name: "order news"\n')
    (tmp_path / "workflows" / "c.yaml").write_bytes(b"\xff\x00")
    (tmp_path / "workflows" / "d.yaml").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_commands_and_options_are_completed() -> None:
    assert {"start", "status", "stop", "store"} <= set(completed(begun="st"))
    assert completed("triggers", begun="expl") == ["explain"]
    assert "--recipe" in completed("init", begun="--")


def test_names_of_this_configuration_are_completed(home: Path) -> None:
    assert completed("triggers", "show", begun="ord") == ["order news", "orders"]
    assert completed("--config", "/nowhere", "triggers", "show") == []
    assert workflow_names(home) == ["order news", "orders"]


def test_names_of_recipes_are_completed() -> None:
    assert completed("recipes", "show", begun="on-") == ["on-call"]
    assert completed("init", "--recipe", begun="price") == ["price-watch"]


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", ".local/share/bash-completion/completions/harken"),
        ("zsh", ".zfunc/_harken"),
        ("fish", ".config/fish/completions/harken.fish"),
    ],
)
def test_it_is_installed_where_the_shell_looks(
    shell: str, place: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert "_HARKEN_COMPLETE" in printed
    assert run(["completion", shell, "--install"]) == 0
    assert (home / place).read_text() == printed
    assert run(["completion", shell, "--install"]) == 0
    assert "replaced" in capsys.readouterr().out


def test_the_shell_of_the_user_is_taken_and_another_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert run(["completion"]) == 0
    assert "complete --no-files --command harken" in capsys.readouterr().out
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert run(["completion"]) == 2
    assert "Name the shell: bash, fish, zsh" in capsys.readouterr().err


def test_a_real_bash_completes_with_it(home: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    folder = home / "bin"
    folder.mkdir()
    (folder / "harken").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m harken.cli "$@"\n')
    (folder / "harken").chmod(0o755)
    script = """
        eval "$(harken completion bash)"
        COMP_WORDS=(harken triggers show orde); COMP_CWORD=3; _harken_completion harken
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    environ = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", script], env=environ, cwd=home, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["order news", "orders"], done.stderr
