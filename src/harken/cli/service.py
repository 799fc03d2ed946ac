"""`harken service …`: start with the machine, as a systemd user unit or a launchd agent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from harken.cli.invocation import Session, command
from harken.cli.output import print_json, say
from harken.errors import NotFound, Refused

__all__ = ["launchd_agent", "service_command", "systemd_unit"]

UNIT = "harken.service"
LABEL = "dev.harken.controller"
STOP_SECONDS = 90
"""Runs have 30 s to finish and agents 20 s more; listeners, leases and the last writes need a few."""


@click.group("service", context_settings={"help_option_names": ["-h", "--help"]})
def service_command() -> None:
    """Start with the machine: systemd or launchd."""


@command(service_command, "install")
@click.option("--print", "show", is_flag=True, help="Only show the file that would be written.")
def install(session: Session, show: bool) -> None:
    """Write a user service for this configuration, and start it."""
    directory = session.directory.resolve()
    path, text, commands = _plan(directory)
    if show:
        click.echo(text, nl=False)
        return
    if not directory.is_dir():
        raise NotFound(f"there is no directory {directory}", fix="Begin with: harken init")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    _run(commands)
    if session.as_json:
        print_json({"path": str(path), "config": str(directory)})
    else:
        say(f"{path} is written and started. See: harken status")


@command(service_command, "uninstall")
def uninstall(session: Session) -> None:
    """Stop the user service and remove its file. The store and the configuration stay."""
    path = _path()
    if not path.exists():
        raise NotFound(f"there is no {path}", fix="Nothing is installed")
    if sys.platform == "darwin":
        _run([["launchctl", "bootout", f"gui/{os.getuid()}", str(path)]])
    else:
        _run([["systemctl", "--user", "disable", "--now", UNIT]])
    path.unlink()
    if session.as_json:
        print_json({"path": str(path), "removed": True})
    else:
        say(f"{path} is removed.")


def systemd_unit(directory: Path, program: list[str]) -> str:
    """A unit that restarts after a crash and gives runs time to finish."""
    line = " ".join(map(_quoted, [*program, "--config", str(directory), "start"]))
    return f"""[Unit]
Description=Harken watches services and starts workflows
After=network-online.target

[Service]
ExecStart={line}
WorkingDirectory={_escaped(str(directory))}
Restart=on-failure
RestartSec=5
TimeoutStopSec={STOP_SECONDS}
UMask=0077

[Install]
WantedBy=default.target
"""


def launchd_agent(directory: Path, program: list[str]) -> str:
    """An agent that starts at login and after a crash."""
    import plistlib

    agent = {
        "Label": LABEL,
        "ProgramArguments": [*program, "--config", str(directory), "start"],
        "WorkingDirectory": str(directory),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "Umask": 0o077,
        "ExitTimeOut": STOP_SECONDS,
        "StandardErrorPath": str(Path.home() / "Library" / "Logs" / "harken.log"),
    }
    return plistlib.dumps(agent).decode()


def _plan(directory: Path) -> tuple[Path, str, list[list[str]]]:
    path, program = _path(), _program()
    if sys.platform == "darwin":
        return path, launchd_agent(directory, program), [["launchctl", "bootstrap", f"gui/{os.getuid()}", str(path)]]
    reload = ["systemctl", "--user", "daemon-reload"]
    return path, systemd_unit(directory, program), [reload, ["systemctl", "--user", "enable", "--now", UNIT]]


def _path() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "systemd" / "user" / UNIT


def _program() -> list[str]:
    script = Path(sys.argv[0])
    if script.name == "harken" and script.exists():
        return [str(script.resolve())]
    return [sys.executable, "-m", "harken.cli"]


def _run(commands: list[list[str]]) -> None:
    for command_line in commands:
        if shutil.which(command_line[0]) is None:
            raise Refused(
                f"{command_line[0]} is not on this machine", fix="See the file with: harken service install --print"
            )
        done = subprocess.run(command_line, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()
            reason = said[-1] if said else f"it exited with {done.returncode}"
            raise Refused(f"{' '.join(command_line)} failed: {reason}", fix="Run it by hand to see more")


def _quoted(word: str) -> str:
    text = _escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{text}"' if any(char in word for char in " \t\"'\\;") else text


def _escaped(text: str) -> str:
    # systemd reads % as the start of a specifier
    return text.replace("%", "%%")
