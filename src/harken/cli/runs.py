"""`harken runs …` and `harken dead …`."""

from __future__ import annotations

from typing import Any

import click

from harken.cli.session import Session, command
from harken.cli.show import fields, indented, listing, print_json, say, table, took

__all__ = ["dead_command", "runs_command"]

COLUMNS = (
    ("id", lambda run: run["id"][:12]),
    ("outcome", "outcome"),
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
    ("tries", "tries"),
    ("took", lambda step: took(step["seconds"])),
    ("finished", "finished_at"),
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
    """Show one run with what each step was given and gave back. The beginning of an id is enough."""
    run = session.call("runs.show", id=id)
    if session.as_json:
        print_json(run)
        return
    fields(session, {**run, "took": took(run["seconds"])}, hide=("steps", "status", "seconds"))
    if run["steps"]:
        print()
        table(run["steps"], STEPS)
    for step in run["steps"]:
        _print_step(step)


def _print_step(step: dict[str, Any]) -> None:
    """What the step was given and gave back; nothing for a step that was skipped."""
    shown = {name: step[name] for name in ("input", "output", "error", "warnings")}
    if all(value in (None, "", []) for value in shown.values()):
        return
    print()
    say(f"{step['path']} ({step['action']})")
    indented(shown)


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
@click.argument("id", default="")
@click.option("--all", "everything", is_flag=True, help="All dead runs.")
@click.option("--trigger", default="", metavar="NAME", help="All dead runs of this trigger or job.")
@click.option("--latest", is_flag=True, help="With the workflow as it is now, from its first step.")
def retry_dead(session: Session, id: str, everything: bool, trigger: str, latest: bool) -> int:
    """Try dead runs again: one by the beginning of its id, or all. Exits 1 when one cannot be tried again."""
    if bool(id) + everything + bool(trigger) != 1:
        raise click.UsageError("name one dead run by its ID, or say --trigger NAME or --all")
    if id:
        answer = session.call("dead.retry", id=id, latest=latest)
        rows, refused = [answer], []
    else:
        answer = session.call("dead.retry_all", trigger=trigger or None, latest=latest)
        rows, refused = answer["items"], answer["refused"]
    if session.as_json:
        print_json(answer)
        return 1 if refused else 0
    for run in rows:
        say(f"run {run['id']} is {run['status']}, {_which_revision(run)}")
    for one in refused:
        say(f"run {one['id']} cannot be tried again: {one['reason']}. {one['fix']}")
    if not rows and not refused:
        say("No dead runs.")
    return 1 if refused else 0


def _which_revision(run: dict[str, Any]) -> str:
    used, current = run["workflow_rev"], run["current_rev"]
    if used == current:
        return f"with the current workflow (revision {used})"
    if current is None:
        return f"with the workflow as it was (revision {used}); it is not configured now"
    again = f"harken runs cancel {run['id'][:12]}, then harken runs retry {run['id'][:12]} --latest"
    return f"with the workflow as it was (revision {used}). It is {current} now; to use that: {again}"


@command(dead_command, "drop")
@click.argument("id")
def drop_dead(session: Session, id: str) -> None:
    """Drop a dead letter for good. The beginning of a run's id is enough."""
    answer = session.call("dead.drop", id=id)
    if session.as_json:
        print_json(answer)
    else:
        say(f"{answer['id']} is dropped")


def _print_run(session: Session, run: dict[str, Any]) -> None:
    if session.as_json:
        print_json(run)
    else:
        say(f"run {run['id']} is {run['status']}")
