"""Help, exit codes and the commands that need no controller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harken.cli.root import SECTIONS, root, run
from harken.cli.service import launchd_agent, systemd_unit

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
SLOW = ("aiohttp", "pydantic", "rich", "yaml", "starlette", "msgspec", "asyncio", "uvicorn", "apsw")

LIST_MODULES = """
import sys
from harken.cli.root import run
code = run(["--help"])
print(sorted(set(sys.modules) & set(%r)), file=sys.stderr)
sys.exit(code)
"""
ASK_A_CONTROLLER = """
import sys
from pathlib import Path
from harken.cli.client import find
from harken.cli.root import run
assert find(Path(sys.argv[1])) is None
assert run(["--url", "http://127.0.0.1:1", "runs", "list"]) != 0
print(sorted(set(sys.modules) & set(%r)))
"""


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that lead to it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


ALL = dict(leaves(root))


def test_help_imports_nothing_that_is_slow() -> None:
    done = subprocess.run([sys.executable, "-c", LIST_MODULES % (SLOW,)], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert all(name in done.stdout for commands in SECTIONS.values() for name in commands)


def test_a_command_that_asks_a_controller_imports_no_part_of_one(tmp_path: Path) -> None:
    """Else it would need half a second of imports for an answer that takes milliseconds."""
    code = ASK_A_CONTROLLER % (set(SLOW) - {"asyncio", "msgspec"},)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_and_option_is_documented(path: tuple[str, ...]) -> None:
    text = DOCS.read_text()
    heading = f"harken {' '.join(path)}"
    assert f"`{heading}" in text
    section = text.split(f"`{heading}", 1)[1].split("\n#", 1)[0]
    options = {max(param.opts, key=len) for param in ALL[path].params if isinstance(param, click.Option)}
    assert [option for option in options - {"--config", "--json"} if option not in section] == []


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_takes_config_and_has_help(path: tuple[str, ...]) -> None:
    options = {opt for param in ALL[path].params for opt in param.opts}
    assert "--config" in options
    assert ALL[path].help


def test_the_short_help_of_lazy_commands_is_their_own() -> None:
    context = click.Context(root)
    for name, (_, summary) in [entry for commands in SECTIONS.values() for entry in commands.items()]:
        command = root.get_command(context, name)
        assert command is not None
        assert (command.help or "").startswith(summary.rstrip(".")), name


def test_wrong_usage_exits_2_with_the_nearest_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trigers"]) == 2
    assert "Did you mean triggers?" in capsys.readouterr().err
    assert run(["triggers", "show"]) == 2


def test_what_needs_a_controller_says_how_to_start_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["events", "tail"], ["triggers", "run", "x"], ["controller", "stop"], ["reload"]):
        assert run(["--config", str(tmp_path), *command]) == 1
        assert "Start one with: harken start" in capsys.readouterr().err


def test_a_run_file_of_a_dead_process_is_no_controller(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    (tmp_path / "harken.db.run.json").write_text(json.dumps({"pid": done.pid, "url": "http://127.0.0.1:1"}))
    assert run(["--config", str(tmp_path), "controller", "status"]) == 1
    assert "No controller is running" in capsys.readouterr().out


def test_a_run_file_beside_a_store_of_another_name_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "harken.yaml").write_text("store: data/mine.db\n")
    (tmp_path / "data").mkdir()
    written = {"pid": os.getpid(), "url": "http://127.0.0.1:1"}
    (tmp_path / "data" / "mine.db.run.json").write_text(json.dumps(written))
    assert run(["--config", str(tmp_path), "controller", "status"]) == 0


def test_an_unexpected_error_has_no_traceback_unless_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "harken.db.run.json").mkdir()
    assert run(["--config", str(tmp_path), "events", "tail"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("harken: unexpected IsADirectoryError")
    assert "Traceback" not in err
    monkeypatch.setenv("HARKEN_DEBUG", "1")
    with pytest.raises(IsADirectoryError):
        run(["--config", str(tmp_path), "events", "tail"])


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    script = f"{sys.executable} -m harken.cli --config {tmp_path} service install --print | true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_init_writes_files_that_load_without_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", str(tmp_path), "init"]) == 0
    assert run(["--config", str(tmp_path), "config", "check", "--strict"]) == 0
    assert "No errors, no warnings." in capsys.readouterr().out
    assert run(["--config", str(tmp_path), "workflows", "check", "hello"]) == 0


def test_init_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "harken.yaml").write_text("# mine\n")
    assert run(["init", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["written"] for row in rows] == [False, True, True, True, True, True]
    assert (tmp_path / "harken.yaml").read_text() == "# mine\n"


def test_config_check_reports_every_error_and_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "harken.yaml").write_text("servr: {}\nlog: {level: loud}\n")
    assert run(["--config", str(tmp_path), "config", "check", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [(row["file"], row["line"]) for row in rows] == [("harken.yaml", 1), ("harken.yaml", 2)]


def test_restore_puts_a_backup_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup = tmp_path / "copy.db"
    backup.write_bytes(b"SQLite format 3\x00rest")
    assert run(["--config", str(tmp_path), "store", "restore", str(backup)]) == 0
    assert (tmp_path / "harken.db").read_bytes() == backup.read_bytes()


def test_service_install_can_only_show_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", str(tmp_path), "service", "install", "--print"]) == 0
    assert str(tmp_path) in capsys.readouterr().out


def test_a_unit_quotes_what_systemd_would_read_otherwise() -> None:
    unit = systemd_unit(Path("/home/ada/my 100% $dir"), ["/bin/harken"])
    assert 'ExecStart=/bin/harken --config "/home/ada/my 100%% $$dir" start' in unit


def test_an_agent_for_launchd_names_the_directory() -> None:
    assert "<string>/Users/ada/harken</string>" in launchd_agent(Path("/Users/ada/harken"), ["/bin/harken"])


@pytest.mark.process
@pytest.mark.parametrize("module", ["harken", "harken.cli"])
def test_the_command_runs_as_a_module(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("harken")


@pytest.mark.process
def test_a_demo_whose_reader_has_gone_ends_without_a_word(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harken.cli", "demo", "--seconds", "30", "--port", "0"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    assert demo.stdout is not None and demo.stderr is not None
    assert demo.stdout.readline()
    demo.stdout.close()
    assert demo.stderr.read() == b""
    demo.wait()
