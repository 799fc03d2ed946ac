"""`harken runs …` and `harken dead …`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import click

from harken.cli.client import ControllerClient, Unreachable, is_alive
from harken.cli.invocation import Session, command
from harken.cli.output import Column, fields, indented, print_json, say, table, took
from harken.cli.paging import filtered, paged, print_pages
from harken.cli.run_summary_line import run_line
from harken.errors import HarkenError

__all__ = ["OVER", "dead_command", "print_run", "runs_command"]

PAGE = 100
LOOK_SECONDS = 1.0
OVER = frozenset({"done", "filtered", "failed", "dead", "cancelled"})
UNDER_WAY = frozenset({"ready", "running", "blocked", "gathering"})

COLUMNS: tuple[Column, ...] = (
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
    ("status", lambda step: f"{step['status']} in {step['from_run'][:12]}" if step["from_run"] else step["status"]),
    ("tries", "tries"),
    ("took", lambda step: took(step["seconds"])),
    ("finished", "finished_at"),
)


@click.group("runs", context_settings={"help_option_names": ["-h", "--help"]})
def runs_command() -> None:
    """List, follow, show, retry, cancel and approve runs."""


@command(runs_command, "list")
@click.option("--trigger", help="Only runs of this trigger.")
@click.option("--status", help="Only ready, running, waiting, held, done, failed, dead …")
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--since", metavar="TIME", help="Only runs created since: 10m, or a time such as 2026-03-01T10:00:00Z.")
@click.option("--follow", is_flag=True, help="Then print a line for each run that ends or waits, until Ctrl-C.")
@filtered
@paged
def list_runs(session: Session, follow: bool, **given: Any) -> None:
    """List runs, newest first."""
    if not follow:
        print_pages(session, "runs.list", COLUMNS, "No runs yet.", **given)
        return
    if given["everything"] or given["as_page"]:
        raise click.UsageError("--follow goes neither with --all nor with --page")
    session.needs_controller()
    chosen = {name: given[name] for name in ("trigger", "status", "workflow")}
    answer = session.call("runs.list", **chosen, since=given["since"], cursor=given["before"], limit=given["limit"])
    if session.as_json:
        for row in reversed(answer["items"]):
            _print_followed(session, row)
    elif answer["items"]:
        table(answer["items"], COLUMNS)
    _follow(session, chosen, answer["items"])


@command(runs_command, "tail")
@click.option("--trigger", help="Only runs of this trigger.")
@click.option("--workflow", help="Only runs of this workflow.")
def tail_runs(session: Session, **given: Any) -> None:
    """Print a line for each run that ends or waits from now on, until Ctrl-C. With --json, one object a line."""
    session.needs_controller()
    _follow(session, given, session.call("runs.list", limit=PAGE, **given)["items"])


def _follow(session: Session, chosen: dict[str, Any], known: list[dict[str, Any]]) -> None:
    for row in follow_runs(session.needs_controller(), chosen, known):
        if row["outcome"] not in UNDER_WAY:
            _print_followed(session, row)
    raise HarkenError("the controller has stopped", fix="Start it again with: harken start")


def _print_followed(session: Session, row: dict[str, Any]) -> None:
    print(json.dumps(row, ensure_ascii=False) if session.as_json else run_line(row), flush=True)


def follow_runs(
    controller: ControllerClient, chosen: dict[str, Any], known: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Runs that are new or in another state than before, oldest first, until the controller is gone."""
    states = {row["id"]: _state(row) for row in known}
    given = {name: value for name, value in chosen.items() if value is not None}
    if known:
        given["since"] = min(row["created_at"] for row in known)
    while is_alive(controller.pid):
        try:
            found = _changed_runs(controller, given, states)
        except Unreachable:
            # it is about to end, or starts anew
            found = []
        states |= {row["id"]: _state(row) for row in found}
        yield from found
        time.sleep(LOOK_SECONDS)


def _changed_runs(
    controller: ControllerClient, given: dict[str, Any], states: dict[str, tuple[Any, ...]]
) -> list[dict[str, Any]]:
    seen: set[str] = set()
    changed: list[dict[str, Any]] = []
    page: dict[str, Any] = {"next": None}
    while True:
        before = {} if page["next"] is None else {"cursor": page["next"]}
        page = controller.call("runs.list", {**given, **before, "limit": PAGE})
        seen.update(row["id"] for row in page["items"])
        fresh = [row for row in page["items"] if states.get(row["id"]) != _state(row)]
        changed += fresh
        if page["next"] is None or not fresh:
            break
    # what was open and is not on these pages has ended since, or is further back
    still_open = [run_id for run_id, state in states.items() if state[0] not in OVER and run_id not in seen]
    for run_id in still_open[:PAGE]:
        row = controller.call("runs.show", {"id": run_id})
        if _state(row) != states[run_id]:
            changed.append(row)
    return [row for row in reversed(changed) if given.get("status") in (None, row["status"])]


def _state(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["outcome"], row["attempt"], row["waiting_for"]


@command(runs_command, "show")
@click.argument("id")
def show_run(session: Session, id: str) -> None:
    """Show one run with what each step was given and gave back. The beginning of an id is enough."""
    print_run(session, session.call("runs.show", id=id))


def print_run(session: Session, run: dict[str, Any]) -> None:
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


@command(runs_command, "rerun")
@click.argument("id")
@click.option(
    "--input", "changes", multiple=True, metavar="FIELD=VALUE", help="Replace a field of its input; a JSON value."
)
@click.option("--latest", is_flag=True, help="With the workflow as it is now.")
@click.option("--from", "from_step", metavar="STEP", help="Begin here; what was done before is taken from the old run.")
@click.option(
    "--set", "edits", multiple=True, metavar="PARAM=VALUE", help="Replace a parameter of that step; a JSON value."
)
def rerun_run(
    session: Session,
    id: str,
    changes: tuple[str, ...],
    latest: bool,
    from_step: str | None,
    edits: tuple[str, ...],
) -> None:
    """Start a new run in the place of one that is over, from the first step or another, perhaps with other input."""
    answer = session.call(
        "runs.rerun",
        id=id,
        input=dict(map(_change, changes)),
        latest=latest,
        from_step=from_step,
        step_input=dict(map(_change, edits)) or None,
    )
    if session.as_json:
        print_json(answer)
        return
    used, current = answer["workflow_rev"], answer["current_rev"]
    whose = "the current workflow" if used == current else "the workflow as it was"
    which = f"a changed step in {'the current workflow' if latest else 'the workflow as it was'}" if edits else whose
    say(f"run {answer['id']} in place of {answer['replay_of'][:12]}, with {which} (revision {used})")
    if from_step:
        taken = ", ".join(answer["taken"]) or "nothing"
        say(f"It begins with {from_step}. Taken from the old run, and not done again: {taken}.")


def _change(text: str) -> tuple[str, Any]:
    """`priority=2` or `title=Hello`: what is no JSON is a text."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.UsageError(f"{text} is not FIELD=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


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
@filtered
@paged
def list_dead(session: Session, **given: Any) -> None:
    """List dead letters: runs whose tries are used up, and events that the store refused."""
    columns: tuple[Column, ...] = (
        ("id", "id"),
        ("what", "what"),
        ("trigger", "trigger"),
        ("key", "key"),
        ("at", "at"),
        ("reason", "reason"),
    )
    print_pages(session, "dead.list", columns, "No dead letters.", **given)


@command(dead_command, "retry")
@click.argument("id", default="")
@click.option("--all", "everything", is_flag=True, help="All dead runs.")
@click.option("--trigger", default="", metavar="NAME", help="All dead runs of this trigger or job.")
@click.option("--latest", is_flag=True, help="With the workflow as it is now, from its first step.")
@click.option("--same", is_flag=True, help="With the workflow as it was when the run began.")
def retry_dead(session: Session, id: str, everything: bool, trigger: str, latest: bool, same: bool) -> int:
    """Try dead runs again: one by the beginning of its id, or all. Exits 1 when one cannot be tried again.

    If the workflow was corrected since and the run cannot work as it began, the corrected one is used.
    """
    if latest and same:
        raise click.UsageError("--latest and --same exclude each other")
    if bool(id) + everything + bool(trigger) != 1:
        raise click.UsageError("name one dead run by its ID, or say --trigger NAME or --all")
    if id:
        answer = session.call("dead.retry", id=id, latest=latest, same=same)
        rows, refused = [answer], []
    else:
        answer = session.call("dead.retry_all", trigger=trigger or None, latest=latest, same=same)
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
    used, began, current = run["workflow_rev"], run["began_with"], run["current_rev"]
    if run["chosen_because"] == "cannot_work":
        return f"with the workflow as it is now (revision {used}), as {began} cannot work; to keep that: --same"
    if used == current:
        return f"with the current workflow (revision {used})"
    if current is None:
        return f"with the workflow as it was (revision {used}); it is not configured now"
    done = ", from the first step, although some are done" if run["chosen_because"] == "steps_done" else ""
    again = f"harken runs cancel {run['id'][:12]}, then harken runs retry {run['id'][:12]} --latest"
    return f"with the workflow as it was (revision {used}). It is {current} now; to use that{done}: {again}"


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
