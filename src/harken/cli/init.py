"""`harken init`: a configuration that works without any account."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click

from harken.cli.invocation import Session, command
from harken.cli.output import print_json, say

__all__ = ["FILES", "init_command"]

MAIN = """\
# The settings of this directory. Every section may be left out. All of them, with what they mean:
# {reference}
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

WEBHOOK = """\
# Runs for each request that has the key. Try it from a second terminal, in this directory:
#   . ./.env
#   curl -H "X-Api-Key: $INBOX_KEY" -d '{"text": "hello"}' http://127.0.0.1:9091/webhooks/generic/inbox
name: inbox
description: Notes what other programs send.

trigger:
  webhook:
    id: inbox
    scheme: api_key
    secret: ${INBOX_KEY} # from .env; a variable of the same name in the environment wins

steps:
  - id: note
    action: transform
    set: {text: "{{.trigger.event.text}}"}
"""

CASES = """\
# Run these with: harken test. Time is virtual, and nothing outside is called.
environment:
  INBOX_KEY: a-key-for-tests-only

cases:
  - name: hello runs every ten seconds
    trigger: hello
    for: 35s
    expect:
      runs: 3

  - name: what is sent to the inbox is noted
    given:
      - event: {text: hello}
        trigger: inbox
    expect:
      runs:
        - workflow: inbox
          status: done
          steps:
            note: {output: {text: hello}}
"""

GITIGNORE = """\
# secrets, the state of Harken, and its environment: none of them belongs into a repository
.env
harken.db*
.venv/
"""

ENVIRONMENT = """\
# Variables for ${{NAME}} in harken.yaml and the workflows. The real environment wins.
INBOX_KEY={key}
"""

FILES = {
    "harken.yaml": MAIN,
    "workflows/hello.yaml": HELLO,
    "workflows/webhook.yaml": WEBHOOK,
    "tests/workflows.yaml": CASES,
    ".env": ENVIRONMENT,
    ".gitignore": GITIGNORE,
}
_PRIVATE = ".env"


@command(None, "init")
@click.argument("directory", required=False, type=click.Path(file_okay=False))
@click.option("--recipe", metavar="NAME", help="Begin with a recipe; harken recipes list has them.")
def init_command(session: Session, directory: str | None, recipe: str | None) -> None:
    """Write a configuration that works without any account.

    The files are harken.yaml, two workflows (a schedule and a webhook), tests of both, .env with the webhook's key,
    and .gitignore; or those of a recipe. What is there already stays as it is.
    """
    home = Path(directory).expanduser() if directory else session.directory
    if recipe:
        from harken.operate.recipes import write_recipe

        rows = write_recipe(recipe, home)
    else:
        rows = [{"file": str(home / name), "written": _write(home / name, text)} for name, text in _texts().items()]
    if session.as_json:
        print_json(rows)
        return
    for row in rows:
        say(f"{row['file']}  {'written' if row['written'] else 'is there already: left as it is'}")
    where = "" if home == Path() else f" --config {home}"
    say(f"Now: harken{where} test" if recipe else f"Now: harken{where} start")


def _texts() -> dict[str, str]:
    """The text of each file, with a key of its own and the address of the reference."""
    from harken.docs_urls import address_of

    reference = address_of("docs/reference/configuration.md")
    filled = {
        "harken.yaml": MAIN.format(reference=reference),
        ".env": ENVIRONMENT.format(key=secrets.token_urlsafe(24)),
    }
    return {**FILES, **filled}


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    private = path.name == _PRIVATE
    try:
        with open(path, "x", encoding="utf-8", opener=_open_private if private else None) as file:
            file.write(text)
    except FileExistsError:
        return False
    return True
