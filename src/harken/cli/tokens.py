"""`harken tokens …` and `harken audit`: who may call from elsewhere, and who did what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from harken.cli.invocation import Session, command
from harken.cli.output import Column, listing, print_json, say
from harken.cli.paging import paged, print_pages

__all__ = ["audit_command", "tokens_command"]

TOKENS: tuple[Column, ...] = (
    ("id", "id"),
    ("name", "name"),
    ("role", "role"),
    ("owner", "owner"),
    ("operations", "operations"),
    ("triggers", "triggers"),
    ("status", "status"),
    ("expires", "expires_at"),
)


def _detail(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry["detail"], ensure_ascii=False) if entry["detail"] else ""


AUDIT: tuple[Column, ...] = (("at", "at"), ("who", "who"), ("did", "did"), ("what", "what"), ("detail", _detail))


@click.group("tokens", context_settings={"help_option_names": ["-h", "--help"]})
def tokens_command() -> None:
    """Make, list, rotate and revoke tokens for calls from elsewhere."""


@command(tokens_command, "list")
def list_tokens(session: Session) -> None:
    """List the tokens, without their secrets."""
    listing(session, session.call("tokens.list"), TOKENS, "No tokens. Make one with: harken tokens create NAME")


@command(tokens_command, "create")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["viewer", "operator", "admin"]),
    default="viewer",
    show_default=True,
    help="See, also operate, or also administrate.",
)
@click.option("--owner", help="Only the things of this owner, and what is shared with the role.")
@click.option("--operations", help="Only these operations, with commas: triggers.*,runs.list")
@click.option("--triggers", help="Only these triggers, with commas.")
@click.option("--expires", default="365d", show_default=True, help="After so long, at a time, or never.")
def create_token(session: Session, **given: Any) -> None:
    """Make a token. It is shown once: only a hash of it is stored."""
    lists = {name: _split(given.pop(name)) for name in ("operations", "triggers")}
    _print_new(session, session.call("tokens.create", **given, **lists))


@command(tokens_command, "rotate")
@click.argument("id")
@click.option("--keep", default="1d", show_default=True, help="For how long the old one works beside the new one.")
@click.option("--expires", help="Set a new end: after so long, at a time, or never.")
def rotate_token(session: Session, **given: Any) -> None:
    """Give a token a new secret, by its id or name. The old one works for a while longer."""
    _print_new(session, session.call("tokens.rotate", **given))


@command(tokens_command, "revoke")
@click.argument("id")
def revoke_token(session: Session, id: str) -> None:
    """End a token at once, by its id or name."""
    answer = session.call("tokens.revoke", id=id)
    if session.as_json:
        print_json(answer)
    else:
        say(f"The token {answer['name']} is revoked.")


@command(tokens_command, "whoami")
def whoami(session: Session) -> None:
    """Show who calls from here, and what it may do."""
    answer = session.call("me")
    if session.as_json:
        print_json(answer)
        return
    whose = f", for the things of {answer['owner']}" if answer["owner"] else ""
    only = f", for the triggers {', '.join(answer['triggers'])}" if answer["triggers"] else ""
    say(f"{answer['name']}: {answer['role']}{whose}{only}.")
    say(f"It may: {', '.join(answer['operations'])}.")


def _split(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text else None


def _print_new(session: Session, answer: Mapping[str, Any]) -> None:
    if session.as_json:
        print_json(answer)
        return
    print(answer["token"])
    click.echo(f"This is {answer['name']} ({answer['role']}). Keep it: it is not shown again.", err=True)


@command(None, "audit")
@click.option("--who", help="Only of this owner, token, agent, or `operator`.")
@click.option("--did", metavar="OPERATION", help="Only this operation, as triggers.pause.")
@click.option("--what", metavar="NAME", help="Only what was done to this.")
@click.option("--since", metavar="TIME", help="Only since: 10m, or a time such as 2026-03-01T10:00:00Z.")
@paged
def audit_command(session: Session, **given: Any) -> None:
    """See who did what, newest first: every change through the command line, the API, the UI and agents."""
    print_pages(session, "audit.list", AUDIT, "Nothing was changed yet.", **given)
