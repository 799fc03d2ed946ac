"""`harken import …`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from harken.cli.invocation import Session, command
from harken.cli.output import clean, print_json, say
from harken.docs_urls import address_of

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
    from harken.operate.import_gmail_poller import import_gmail_poller
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
        guide = "examples/tickets" if name in ("fix-bug", "security-scan") else "docs/how-to/tickets.md"
        click.echo(clean(f"the pipeline {name} needs workflows/{name}.yaml: {address_of(guide)}"), err=True)
    return 0 if made["yaml"] else 1


@command(import_command, "crontab")
@click.argument("file", type=click.Path())
@click.option("--write", is_flag=True, help="Write the workflows into the configuration directory.")
@click.option("--tz", "zone", default="", metavar="ZONE", help="Time zone of the lines. [default: this machine's]")
@click.option("--system", is_flag=True, help="A user stands before each command, as in /etc/crontab.")
def crontab(session: Session, file: str, write: bool, zone: str, system: bool) -> int:
    """Print a workflow for each job of a crontab, or write them.

    Everything that is not taken over is told. Exits 1 when a job could not be.
    """
    from harken.operate.import_workflows import import_crontab

    into = session.directory if write else None
    return _show_workflows(session, import_crontab(Path(file).expanduser(), into, zone=zone, system=system))


@command(import_command, "changedetection")
@click.argument("path", type=click.Path())
@click.option("--write", is_flag=True, help="Write the workflows into the configuration directory.")
def changedetection(session: Session, path: str, write: bool) -> int:
    """Print a workflow for each watch of changedetection.io, or write them.

    PATH is url-watches.json, a backup, the data directory, or a list of addresses. Everything that is not taken over
    is told. Exits 1 when a watch could not be.
    """
    from harken.operate.import_workflows import import_changedetection

    return _show_workflows(
        session, import_changedetection(Path(path).expanduser(), session.directory if write else None)
    )


@command(import_command, "n8n")
@click.argument("file", type=click.Path())
@click.option("--write", is_flag=True, help="Write the workflows into the configuration directory.")
def n8n(session: Session, file: str, write: bool) -> int:
    """Print a workflow for each trigger of an n8n export, or write them.

    A node that cannot be translated is told with the reason, and stands in the workflow as a step that waits for a
    person. Exits 1 when there is such a node.
    """
    from harken.operate.import_workflows import import_n8n

    return _show_workflows(session, import_n8n(Path(file).expanduser(), session.directory if write else None))


def _show_workflows(session: Session, made: Mapping[str, Any]) -> int:
    failed = not made["workflows"] or any(finding["severity"] == "error" for finding in made["findings"])
    if session.as_json:
        print_json(made)
        return 1 if failed else 0
    for finding in made["findings"]:
        click.echo(clean(finding["text"]), err=True)
    if made["written"]:
        for file in made["written"]:
            say(f"{file}  written")
        for file in made["not_written"]:
            click.echo(clean(f"{file} is there already and was left as it is: it needs what is below"), err=True)
    if not made["written"]:
        for workflow in made["workflows"]:
            click.echo(f"# {workflow['file']}\n{workflow['yaml']}---")
    if made["settings"] and (not made["written"] or "harken.yaml" in made["not_written"]):
        click.echo(f"# harken.yaml needs this\n{made['settings']}", nl=False)
    for variable in made["variables"]:
        what = "is in .env" if variable["name"] in made["set"] else "must be set in .env or the environment"
        click.echo(clean(f"{variable['name']} {what}: {variable['meaning']}"), err=True)
    if made["written"]:
        say("Now: harken config check")
    return 1 if failed else 0
