"""`harken workflows …` and `harken models …`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from harken.cli.config import OutputFormat, format_option, report
from harken.cli.invocation import Session, command
from harken.cli.output import clean, fields, listing, print_json, say
from harken.cli.runs import OVER, print_run
from harken.errors import Refused

__all__ = ["models_command", "workflows_command"]

LOOK_SECONDS = 0.2


@click.group("workflows", context_settings={"help_option_names": ["-h", "--help"]})
def workflows_command() -> None:
    """List, check and run workflows."""


@command(workflows_command, "list")
def list_workflows(session: Session) -> None:
    """List the workflows and the triggers that start them."""
    columns = (("name", "name"), ("steps", "steps"), ("triggers", "triggers"), ("description", "description"))
    listing(session, session.call("workflows.list"), columns, "There are no workflows yet. Try: harken init")


@command(workflows_command, "check")
@click.argument("name", default="")
@format_option
def check_workflows(session: Session, name: str, output_format: OutputFormat) -> int:
    """Check the files under workflows/: all of them, or the one of that name."""
    from harken.operate.load_and_check_configuration import workflow_findings

    return report(session, workflow_findings(session.directory, name), strict=False, output_format=output_format)


@command(workflows_command, "run")
@click.argument("name")
@click.option(
    "--input", "given", default="", metavar="JSON", help="The input: an object, @FILE, or - for standard input."
)
@click.option("--wait", is_flag=True, help="Wait for its end and show it. Exits 1 unless it ends well.")
def run_workflow(session: Session, name: str, given: str, wait: bool) -> int:
    """Start a run by hand; a controller executes it."""
    if wait:
        session.needs_controller()
    answer = session.call("workflows.run", name=name, input=_input(given))
    if wait:
        return _wait_for_end(session, answer["id"])
    if session.as_json:
        print_json(answer)
        return 0
    say(f"run {answer['id']} of {name} is ready. Follow it: harken runs show {answer['id'][:12]}")
    if session.controller() is None:
        say("No controller is running: it begins with the next `harken start`")
    return 0


def _wait_for_end(session: Session, run_id: str) -> int:
    """Show the run when it is over, and on standard error what it does until then."""
    said = ""
    while True:
        run = session.needs_controller().call("runs.show", {"id": run_id})
        if run["status"] in OVER:
            break
        doing = f"run {run_id[:12]} is {run['status']}{_waits_for(run)}"
        if doing != said:
            click.echo(clean(doing), err=True)
        said = doing
        time.sleep(LOOK_SECONDS)
    print_run(session, run)
    return 0 if run["status"] == "done" else 1


def _waits_for(run: dict[str, Any]) -> str:
    if run["waiting_for"] == "approval":
        return f" for an answer. Give it with: harken runs approve {run['id'][:12]}"
    why = run["waiting_for"] or run["hold"] or run["error"]
    return f": {why}" if why else ""


@click.group("models", context_settings={"help_option_names": ["-h", "--help"]})
def models_command() -> None:
    """See which models are set, and ask them something."""


@command(models_command, "list")
def list_models(session: Session) -> None:
    """List the tiers and the models that they stand for."""
    columns = (("tier", "tier"), ("model", "model"), ("offline", lambda row: "yes" if row["offline"] else ""))
    listing(session, session.call("models.list"), columns, "No models.")


@command(models_command, "test")
@click.argument("name", default="default")
def check_model(session: Session, name: str) -> None:
    """Ask a tier or a model one small thing."""
    fields(session, session.call("models.test", name=name))


def _input(given: str) -> dict[str, Any]:
    if not given:
        return {}
    try:
        text = sys.stdin.read() if given == "-" else Path(given[1:]).read_text() if given[0] == "@" else given
        value = json.loads(text)
    except (ValueError, OSError) as error:
        raise Refused(
            f"the input cannot be read: {error}", fix="""Write it like: --input '{"name": "Ada"}'"""
        ) from error
    if not isinstance(value, dict):
        raise Refused("the input is not a JSON object", fix="""Write it like: --input '{"name": "Ada"}'""")
    return value
