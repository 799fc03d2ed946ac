"""`harken integrations …`: the name of the account comes first, then what to do with it."""

from __future__ import annotations

import sys
from typing import Any

import click

from harken.cli.duration import DURATION
from harken.cli.invocation import Session, command
from harken.cli.output import fields, listing, print_json, say

__all__ = ["integrations_command"]

HELP = {"help_option_names": ["-h", "--help"]}
COLUMNS = (
    ("name", "name"),
    ("kind", "kind"),
    ("credential", "source"),
    ("address", "base_url"),
    ("feeds", "feeds"),
    ("error", "error"),
)


class _Names(click.Group):
    """`list`, or the name of an account."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["list", "NAME"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "list":
            return list_integrations
        if cmd_name in VERBS.commands:
            ctx.fail(f"The name comes first: harken integrations NAME {cmd_name}")
        return click.Group(cmd_name, commands=VERBS.commands, help=VERBS.help, context_settings=HELP)


@click.group("integrations", cls=_Names, context_settings=HELP)
def integrations_command() -> None:
    """Configure, test and list accounts at services.

    NAME is a kind such as jira, or an account of your own such as jira-eu.
    """


@click.group("NAME", context_settings=HELP)
def VERBS() -> None:
    """Configure, test, show and remove this account."""


@command(None, "list")
def list_integrations(session: Session) -> None:
    """List the accounts: where each credential comes from, who uses it, and what went wrong last."""
    answer = session.call("integrations.list")
    listing(session, answer, COLUMNS, "There are no services that take an account.")
    for note in answer["notes"]:
        click.echo(note, err=True)


@command(VERBS, "configure", data=False)
@click.option("--name", "store_as", default="", metavar="X", help="Store it under this name: a second account.")
@click.option("--from-env", is_flag=True, help="Take the values from the service's environment variables.")
@click.option("--allow-private-networks", is_flag=True, help="The service is in a private network.")
@click.option("--no-test", is_flag=True, help="Do not ask the service before storing.")
@click.option("--yes", is_flag=True, help="Replace what is stored without asking.")
@click.option("--manual", "way", flag_value="manual", help="Agree in a browser elsewhere, and paste its address here.")
@click.option("--device", "way", flag_value="device", help="Agree on another device, with a code.")
@click.option("--access", multiple=True, metavar="WORD", help="What to ask the user's consent for; may be repeated.")
@click.option("--wait", type=DURATION, default="5m", show_default=True, help="How long to wait for the consent.")
@click.argument("given", nargs=-1, type=click.UNPROCESSED, metavar="[--FIELD VALUE]...")
def configure(session: Session, **options: Any) -> int:
    """Store the credential of this account, after trying it.

    Asks for each field, or takes --FIELD VALUE; - reads standard input, @PATH a file. To see the fields of a
    service: harken integrations NAME configure fields

    A service that a user signs in to (google) opens its page in a browser, and waits there for the consent.
    """
    from harken.cli.configure_integration import configure_account

    return configure_account(session, _name(), **options)


# every service has fields of its own
configure.context_settings["ignore_unknown_options"] = True


@command(VERBS, "test")
def check_integration(session: Session) -> int:
    """Try the credential, and every name in the queries that use it. Exits 1 when something is wrong."""
    answer = session.call("integrations.test", name=_name())
    if session.as_json:
        print_json(answer)
    else:
        report(answer)
    return 0 if answer["ok"] else 1


@command(VERBS, "whoami")
def whoami(session: Session) -> None:
    """Show whom the service takes us for: the ids that queries need."""
    answer = session.call("integrations.whoami", name=_name())
    if session.as_json:
        print_json(answer["who"])
    else:
        fields(session, answer["who"])


@command(VERBS, "remove", data=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(session: Session, yes: bool) -> int:
    """Remove the stored credential of this account. harken.yaml and the environment are left alone."""
    from harken.operate.load_and_check_configuration import credentials_of

    name = _name()
    credentials = credentials_of(session.directory)
    if name not in credentials.accounts():
        click.echo(f"harken: nothing is stored for {name}\n  See: harken integrations list", err=True)
        return 1
    if not yes and sys.stdin.isatty():
        click.confirm(f"Remove the stored credential of {name}?", abort=True, err=True)
    elif not yes:
        click.echo(f"harken: this removes the stored credential of {name}\n  If you mean it: --yes", err=True)
        return 1
    credentials.forget("account", name)
    say(f"The stored credential of {name} is removed. It stays valid until you revoke it at the service")
    if session.controller() is not None:
        say("The running controller uses it until it is restarted")
    return 0


def report(answer: dict[str, Any]) -> None:
    """Print what a test found: who we are, what names stand for, and a line for each problem."""
    if answer["who"]:
        said = ", ".join(f"{name} {value}" for name, value in answer["who"].items() if value not in ("", None))
        say(f"{answer['name']} ({answer['kind']}, credential: {answer['source']}) is {said}")
    for check in answer["checks"]:
        for written, meant in check["found"].items():
            say(f"{', '.join(check['triggers']) or check['feed']}: {written} is {meant}")
    for problem in answer["problems"]:
        say(problem)
    if answer["ok"]:
        say(f"{answer['name']} works")


def _name() -> str:
    above = click.get_current_context().parent
    assert above is not None and above.info_name is not None
    return above.info_name
