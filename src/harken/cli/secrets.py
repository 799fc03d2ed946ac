"""`harken secrets …`: values for `${secret:NAME}`, kept where the credentials of accounts are."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harken.cli.invocation import Session, command
from harken.cli.output import listing, say
from harken.errors import NotFound, Refused

__all__ = ["secrets_command"]


@click.group("secrets", context_settings={"help_option_names": ["-h", "--help"]})
def secrets_command() -> None:
    """Store values for ${secret:NAME}."""


@command(secrets_command, "list")
def list_secrets(session: Session) -> None:
    """List the names of the stored secrets. Values are never shown."""
    from harken.operate.load_and_check_configuration import credentials_of

    rows = [{"name": name} for name in credentials_of(session.directory).secrets()]
    listing(session, {"items": rows}, (("name", "name"),), "Nothing is stored.")


@command(secrets_command, "set", data=False)
@click.argument("name")
@click.option("--file", "path", type=click.Path(dir_okay=False), help="Take the value from this file.")
def set_secret(session: Session, name: str, path: str | None) -> None:
    """Store a secret: typed in, from standard input, or from a file."""
    from harken.operate.load_and_check_configuration import credentials_of

    value = _value(name, path)
    if not value:
        raise Refused("the secret is empty", fix="Type it in, or pipe it to standard input")
    say(f"{name} is stored in {credentials_of(session.directory).store_secret(name, value)}")
    say(f"Write ${{secret:{name}}} where it is needed. A running controller takes it at the next: harken reload")


@command(secrets_command, "remove", data=False)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove_secret(session: Session, name: str, yes: bool) -> None:
    """Remove a stored secret."""
    from harken.operate.load_and_check_configuration import credentials_of

    credentials = credentials_of(session.directory)
    if name not in credentials.secrets():
        raise NotFound(f"there is no secret {name}", fix="See: harken secrets list")
    if not yes and not sys.stdin.isatty():
        raise Refused(f"this removes the secret {name}", fix="If you mean it: --yes")
    if not yes:
        click.confirm(f"Remove the secret {name}?", abort=True, err=True)
    credentials.forget("secret", name)
    say(f"{name} is removed")


def _value(name: str, path: str | None) -> str:
    if path is not None:
        try:
            return Path(path).expanduser().read_text("utf-8").strip("\r\n")
        except (OSError, UnicodeError) as error:
            raise Refused(f"{path} cannot be read: {type(error).__name__}", fix="Name a text file") from None
    if sys.stdin.isatty():
        return str(click.prompt(name, hide_input=True, err=True)).strip("\r\n")
    return sys.stdin.read().strip("\r\n")
