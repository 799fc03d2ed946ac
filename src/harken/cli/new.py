"""`harken new …`: something of your own to begin from."""

from __future__ import annotations

from pathlib import Path

import click

from harken.cli.session import Session, command
from harken.cli.show import print_json, say

__all__ = ["new_command"]


@click.group("new", context_settings={"help_option_names": ["-h", "--help"]})
def new_command() -> None:
    """Begin a service of your own."""


@command(new_command, "service")
@click.argument("name")
@click.argument("directory", required=False, type=click.Path())
def new_service_command(session: Session, name: str, directory: str | None) -> None:
    """Write a service of your own as a package: one file and one test that pass.

    The package goes into harken-NAME, or into DIRECTORY; nothing that is there is overwritten.
    """
    from harken.operate.scaffold import new_service

    made = new_service(name, Path(directory).expanduser() if directory else None)
    if session.as_json:
        print_json(made)
        return
    for file in made["files"]:
        say(f"{file}  written")
    say(f"Now: cd {made['directory']} && pip install --editable '.[dev]' && pytest")
