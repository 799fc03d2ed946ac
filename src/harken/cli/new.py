"""`harken new …`: something of your own to begin from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from harken.cli.invocation import Session, command
from harken.cli.output import print_json, say

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
    from harken.operate.plugin_scaffold import new_service

    _show(session, new_service(name, Path(directory).expanduser() if directory else None))


@command(new_command, "plugin")
@click.argument("name")
@click.argument("directory", required=False, type=click.Path())
def new_plugin_command(session: Session, name: str, directory: str | None) -> None:
    """Write a service of your own as a repository to publish: with a README, a changelog and continuous integration.

    It goes into harken-NAME, or into DIRECTORY; nothing that is there is overwritten.
    """
    from harken.operate.plugin_scaffold import new_plugin

    _show(session, new_plugin(name, Path(directory).expanduser() if directory else None))


def _show(session: Session, made: Mapping[str, Any]) -> None:
    if session.as_json:
        print_json(made)
        return
    for file in made["files"]:
        say(f"{file}  written")
    say(f"Now: cd {made['directory']} && pip install --editable '.[dev]' && pytest")
