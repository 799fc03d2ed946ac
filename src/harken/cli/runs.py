"""`harken runs …` and `harken dead …`."""

from __future__ import annotations

from typing import Any

import click

from harken.cli.session import Session, command
from harken.cli.show import fields, listing, print_json, say, table

__all__ = ["dead_command", "runs_command"]

COLUMNS = (
    ("id", lambda run: run["id"][:12]),
    ("status", "status"),
    ("trigger", "trigger"),
    ("workflow", "workflow"),
    ("events", "event_keys"),
    ("try", "attempt"),
    ("created", "created_at"),
    ("error", lambda run: run["error"] or run["hold"] or run["waiting_for"]),
)
STEPS = (
    ("step", "path"),
    ("action", "action"),
    ("status", "status"),
    ("try", "attempt"),
    ("finished", "finished_at"),
    ("error", lambda step: step["error"] or ", ".join(step["warnings"])),
)


@click.group("runs", context_settings={"help_option_names": ["-h", "--help"]})
def runs_command() -> None:
    """List, show, retry, cancel and approve runs."""


@command(runs_command, "list")
@click.option("--trigger", help="Only runs of this trigger.")
@click.option("--status", help="Only ready, running, waiting, held, done, failed, dead …")
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--before", type=int, metavar="N", help="The next page, as the last one said.")
@click.option("--limit", type=int, default=50, show_default=True, help="How many at most.")
def list_runs(session: Session, **given: Any) -> None:
    """List runs, newest first."""
    listing(session, session.call("runs.list", **given), COLUMNS, "No runs yet.")


@command(runs_command, "show")
@click.argument("id")
def show_run(session: Session, id: str) -> None:
    """Show one run with its steps. The beginning of an id is enough."""
    run = session.call("runs.show", id=id)
    fields(session, run, hide=("steps",))
    if not session.as_json and run["steps"]:
        table(run["steps"], STEPS)


@command(runs_command, "retry")
@click.argument("id")
@click.option("--latest", is_flag=True, help="With the workflow as it is now, from its first step.")
def retry_run(session: Session, id: str, latest: bool) -> None:
    """Try a failed, dead or cancelled run again; steps that are done stay done."""
    _print_run(session, session.call("runs.retry", id=id, latest=latest))


@command(runs_command, "cancel")
@click.argument("id")
def cancel_run(session: Session, id: str) -> None:
    """Cancel a run, or ask it to stop if it has begun."""
    _print_run(session, session.call("runs.cancel", id=id))


@command(runs_command, "approve")
@click.argument("id")
@click.option("--reject", is_flag=True, help="Say no instead.")
@click.option("--comment", default="", help="What the run is told beside the answer.")
def approve_run(session: Session, id: str, reject: bool, comment: str) -> None:
    """Answer a run that waits for a person."""
    _print_run(session, session.call("runs.approve", id=id, approved=not reject, comment=comment))


@click.group("dead", context_settings={"help_option_names": ["-h", "--help"]})
def dead_command() -> None:
    """Retry or drop what was given up on."""


@command(dead_command, "list")
@click.option("--before", type=int, metavar="N", help="The next page, as the last one said.")
@click.option("--limit", type=int, default=50, show_default=True, help="How many at most.")
def list_dead(session: Session, **given: Any) -> None:
    """List dead letters: runs whose tries are used up, and events that the store refused."""
    columns = (
        ("id", "id"),
        ("what", "what"),
        ("trigger", "trigger"),
        ("key", "key"),
        ("at", "at"),
        ("reason", "reason"),
    )
    listing(session, session.call("dead.list", **given), columns, "No dead letters.")


@command(dead_command, "retry")
@click.argument("id")
def retry_dead(session: Session, id: str) -> None:
    """Try a dead run again."""
    _print_run(session, session.call("dead.retry", id=id))


@command(dead_command, "drop")
@click.argument("id")
def drop_dead(session: Session, id: str) -> None:
    """Drop a dead letter for good."""
    answer = session.call("dead.drop", id=id)
    if session.as_json:
        print_json(answer)
    else:
        say(f"{id} is dropped")


def _print_run(session: Session, run: dict[str, Any]) -> None:
    if session.as_json:
        print_json(run)
    else:
        say(f"run {run['id']} is {run['status']}")
