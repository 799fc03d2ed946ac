"""`harken init`: a configuration that works without any account."""

from __future__ import annotations

from pathlib import Path

import click

from harken.cli.session import Session, command
from harken.cli.show import print_json, say

__all__ = ["FILES", "init_command"]

MAIN = """\
# The settings of this directory. Every section may be left out; docs/reference/configuration.md has them all.
models:
  default: echo # an offline stand-in that returns its prompt; for a real one: anthropic:claude-sonnet-4-5
"""

HELLO = """\
# Runs every ten seconds. Watch it with: harken events tail, and: harken runs list
name: hello
description: Says hello, without any account.

trigger:
  schedule: {every: 10s}

steps:
  - id: greet
    action: llm
    prompt: "Say hello. It is {{.trigger.event.scheduled_at}}."
  - id: note
    action: transform
    set: {text: "{{.steps.greet.response}}"}
"""

FILES = {"harken.yaml": MAIN, "workflows/hello.yaml": HELLO}


@command(None, "init")
@click.argument("directory", required=False, type=click.Path(file_okay=False))
def init_command(session: Session, directory: str | None) -> None:
    """Write a configuration that works without any account.

    The files are harken.yaml and workflows/hello.yaml; what is there already stays as it is.
    """
    home = Path(directory).expanduser() if directory else session.directory
    rows = [{"file": str(home / name), "written": _write(home / name, text)} for name, text in FILES.items()]
    if session.as_json:
        print_json(rows)
        return
    for row in rows:
        say(f"{row['file']}  {'written' if row['written'] else 'is there already: left as it is'}")
    where = "" if home == Path() else f" --config {home}"
    say(f"Now: harken{where} start")


def _write(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True
