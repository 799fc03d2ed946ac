"""`harken completion`: what a shell needs to complete commands, options and names."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from harken.cli.invocation import Session, command
from harken.cli.output import say

__all__ = ["completion_command"]

_VARIABLE = "_HARKEN_COMPLETE"
_PLACES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/harken"),
    "zsh": ("ZDOTDIR", "", ".zfunc/_harken"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/harken.fish"),
}
_AFTERWARDS = {
    "bash": "Open a new shell. It needs the package bash-completion",
    "zsh": "Once, in .zshrc before compinit: fpath+=~/.zfunc. Then open a new shell",
    "fish": "Open a new shell",
}


@command(None, "completion", data=False)
@click.argument("shell", required=False, type=click.Choice(sorted(_PLACES)))
@click.option("--install", is_flag=True, help="Write it where the shell looks for it.")
def completion_command(session: Session, shell: str | None, install: bool) -> int:
    """Complete commands and names in bash, zsh or fish.

    Prints what the shell needs, or installs it. Without SHELL it is the one you use.
    """
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in _PLACES:
        raise click.UsageError(f"Name the shell: {', '.join(sorted(_PLACES))}")
    script = _script(chosen)
    if not install:
        click.echo(script)
        return 0
    path = _place(chosen)
    there = path.is_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script + "\n", "utf-8")
    say(f"{path}  {'replaced' if there else 'written'}. {_AFTERWARDS[chosen]}")
    return 0


def _script(shell: str) -> str:
    from harken.cli.root import root

    # click asks bash for its version, which need not be installed where the script is only written
    completion = get_completion_class(shell)
    assert completion is not None
    made = completion(root, {}, "harken", _VARIABLE)
    return (made.source_template % made.source_vars()).strip()


def _place(shell: str) -> Path:
    variable, usual, path = _PLACES[shell]
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / usual) / path
