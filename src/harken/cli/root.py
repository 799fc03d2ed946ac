"""`harken` itself: the list of commands, and how every error ends."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from harken import __version__
from harken.errors import HarkenError
from harken.suggest import did_you_mean

__all__ = ["SECTIONS", "LazyGroup", "main", "root", "run"]


class LazyGroup(click.Group):
    """`sections` maps a heading to its commands: name → (module, short help). A module's command has the name
    of the command, with `_command` after it."""

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections
        self._lazy = {name: entry for commands in sections.values() for name, entry in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        found = getattr(import_module(self._lazy[cmd_name][0]), f"{cmd_name}_command")
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._lazy and not args[0].startswith("-"):
            ctx.fail(f"There is no command {args[0]}. {did_you_mean(args[0], self._lazy)}".rstrip())
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()], col_max=14)


INTERRUPTED = 130

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Begin": {
        "init": ("harken.cli.init", "Write a configuration that works without any account."),
        "recipes": ("harken.cli.recipes", "See the recipes: configurations to begin from."),
        "demo": ("harken.cli.start", "Watch Harken at work on this machine, without an account."),
        "start": ("harken.cli.start", "Run the controller until it is stopped."),
        "stop": ("harken.cli.start", "Ask the controller to stop, and wait until it has."),
        "status": ("harken.cli.status", "Show what runs and what needs a look."),
        "doctor": ("harken.cli.status", "Check this machine, with the fix for what is wrong."),
        "explain": ("harken.cli.triggers", "Say why something did or did not start a run."),
        "diff": ("harken.cli.status", "Show what the changed configuration would do."),
        "reload": ("harken.cli.status", "Apply the changed configuration."),
        "test": ("harken.cli.test", "Run the test cases of your workflows on virtual time."),
        "simulate": ("harken.cli.simulate", "Play days of faults on your configuration, without any account."),
        "new": ("harken.cli.new", "Begin a service of your own."),
        "import": ("harken.cli.imports", "Take over what was written for another program."),
    },
    "See and do": {
        "triggers": ("harken.cli.triggers", "List, make, change, test, pause, resume, reset and explain triggers."),
        "pollers": ("harken.cli.pollers", "List, run, pause, resume, reset and reload poller jobs."),
        "mcp": ("harken.cli.mcp", "Serve the tools of an agent over stdio."),
        "feeds": ("harken.cli.feeds", "See what is read, when, and how far."),
        "webhooks": ("harken.cli.webhooks", "List the addresses of webhooks, and try them."),
        "budget": ("harken.cli.rate_limit_budget", "Show what each credential may still ask of its service."),
        "events": ("harken.cli.events", "Follow, list, show, replay and forget events."),
        "runs": ("harken.cli.runs", "List, follow, show, retry, cancel and approve runs."),
        "bulk": ("harken.cli.bulk", "Retry, cancel, release, drop or replay many at once, by a plan."),
        "dead": ("harken.cli.runs", "Retry or drop what was given up on."),
        "tickets": ("harken.cli.tickets", "See the tickets that start pipelines."),
        "trackers": ("harken.cli.tickets", "List trackers, and test what they may do."),
        "workflows": ("harken.cli.workflows", "List, check and run workflows."),
        "models": ("harken.cli.workflows", "See which models are set, and ask them something."),
        "integrations": ("harken.cli.integrations", "Configure, test and list accounts at services."),
        "secrets": ("harken.cli.secrets", "Store values for ${secret:NAME}."),
    },
    "Look after it": {
        "config": ("harken.cli.config", "Check the configuration, and get its JSON Schema."),
        "completion": ("harken.cli.completion", "Complete commands and names in bash, zsh or fish."),
        "store": ("harken.cli.store", "Check, compact, back up, restore and rekey the store."),
        "service": ("harken.cli.service", "Start with the machine: systemd or launchd."),
        "controller": ("harken.cli.start", "Start, stop or ask after the controller."),
        "tokens": ("harken.cli.tokens", "Make, list, rotate and revoke tokens for calls from elsewhere."),
        "audit": ("harken.cli.tokens", "See who did what."),
    },
}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Every command that prints data takes --json. Set HARKEN_DEBUG=1 to see tracebacks.",
)
@click.option(
    "--config", "config_dir", metavar="DIR", envvar="HARKEN_CONFIG", help="The configuration directory. [default: .]"
)
@click.option(
    "--url", metavar="URL", envvar="HARKEN_URL", help="Ask the controller there, with the token in HARKEN_TOKEN."
)
@click.version_option(__version__, prog_name="harken", message="%(prog)s %(version)s")
def root(config_dir: str | None, url: str | None) -> None:
    """Watch the services you use and start workflows when something happens there."""


def main() -> None:
    """The `harken` command."""
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0 done, 1 not done, 2 wrong usage, 130 interrupted."""
    try:
        code = _invoke(args)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # whoever read us has gone; there is nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _report(error)


def _invoke(args: Sequence[str]) -> object:
    """Call the command. Of tasks that ran side by side, the first failure is why the others were ended: raise that."""
    try:
        return root.main(list(args), prog_name="harken", standalone_mode=False)
    except ExceptionGroup as group:
        error: Exception = group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise error from group


def _report(error: Exception) -> int:
    if os.environ.get("HARKEN_DEBUG"):
        raise error
    if isinstance(error, HarkenError):
        click.echo(f"harken: {error.message}", err=True)
        if error.fix:
            click.echo(f"  {error.fix}", err=True)
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        click.echo(f"harken: the disk is full{': ' + str(error.filename) if error.filename else ''}", err=True)
        click.echo("  Free some space, and try again", err=True)
    elif isinstance(error, PermissionError | NotADirectoryError) or (
        isinstance(error, OSError) and error.errno == errno.EROFS
    ):
        click.echo(f"harken: {error.filename}: {error.strerror}", err=True)
        click.echo("  Check the path and its permissions", err=True)
    else:
        # its text may quote anything, an address with a token in it too
        what = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else ""
        click.echo(f"harken: unexpected {type(error).__name__}{': ' + what if what else ''}", err=True)
        click.echo("  This is a fault of Harken. HARKEN_DEBUG=1 shows where it is", err=True)
    return 1
