"""`harken import …`."""

from __future__ import annotations

from pathlib import Path

import click

from harken.cli.session import Session, command
from harken.cli.show import clean, print_json, say

__all__ = ["import_command"]


@click.group("import", context_settings={"help_option_names": ["-h", "--help"]})
def import_command() -> None:
    """Take over what was written for another program."""


@command(import_command, "gmail-poller")
@click.argument("file", type=click.Path())
@click.option("--write", is_flag=True, help="Write pollers.yaml into the configuration directory.")
def gmail_poller(session: Session, file: str, write: bool) -> int:
    """Print the jobs of an older gmail-poller.yaml for pollers.yaml, or write them there.

    Exits 1 when a job could not be taken over.
    """
    from harken.operate.import_gmail import import_gmail_poller
    from harken.operate.wording import count

    made = import_gmail_poller(Path(file).expanduser(), session.directory if write else None)
    if session.as_json:
        print_json({name: made[name] for name in ("jobs", "findings", "written")})
    else:
        for finding in made["findings"]:
            click.echo(clean(finding["text"]), err=True)
        if made["written"]:
            say(f"{made['written']}  written: {count(len(made['jobs']), 'job')}. Now: harken config check")
        else:
            click.echo(made["yaml"], nl=False)
    return 1 if any(finding["severity"] == "error" for finding in made["findings"]) else 0


@command(import_command, "agentsmith")
@click.argument("file", type=click.Path())
@click.option("--write", is_flag=True, help="Write harken.yaml into the configuration directory.")
def agentsmith(session: Session, file: str, write: bool) -> int:
    """Print the trackers and projects of an agentsmith.yml for harken.yaml, or write them there.

    Everything that is not taken over is told. Exits 1 when nothing could be.
    """
    from harken.operate.import_agentsmith import import_agentsmith
    from harken.operate.wording import count

    made = import_agentsmith(Path(file).expanduser(), session.directory if write else None)
    if session.as_json:
        print_json(made)
        return 0 if made["yaml"] else 1
    for finding in made["findings"]:
        click.echo(clean(finding["text"]), err=True)
    if made["written"]:
        say(f"{made['written']}  written: {count(len(made['projects']), 'project')}. Now: harken config check")
    elif made["yaml"]:
        click.echo(made["yaml"], nl=False)
    for name in made["missing"]:
        hint = "examples/tickets has one" if name in ("fix-bug", "security-scan") else "see docs/how-to/tickets"
        click.echo(clean(f"the pipeline {name} needs workflows/{name}.yaml ({hint})"), err=True)
    return 0 if made["yaml"] else 1
