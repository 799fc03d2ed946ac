"""`harken pollers …`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from harken.cli.invocation import Session, command
from harken.cli.output import Column, fields, listing, print_json, say, table
from harken.errors import Refused

__all__ = ["pollers_command"]


def _state(row: Mapping[str, Any]) -> str:
    if row["kind"] is None:
        return "refused"
    return "paused" if row["paused"] else row["last_status"] or "new"


def _soon(ms: int | None) -> str:
    """The moment by the reader's own wall clock, in a column: the time of today, or the date of another day."""
    if ms is None:
        return "-"
    moment = _local(ms)
    return moment.strftime("%H:%M:%S %Z" if moment.date() == datetime.now().date() else "%Y-%m-%d %Z")


def _local(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000).astimezone()


COLUMNS: tuple[Column, ...] = (
    ("id", "id"),
    ("kind", "kind"),
    ("agent", "agent"),
    ("state", _state),
    ("last run", lambda row: _soon(row["last_run_at_ms"])),
    ("next run", lambda row: _soon(row["next_run_at_ms"])),
    ("errors", "consecutive_errors"),
    ("seen", "items_seen_total"),
    ("sent", "items_dispatched_total"),
)
TIMES = {
    "last_run_at_ms": "last_run_at",
    "next_run_at_ms": "next_run_at",
    "breaker_until_ms": "breaker_until",
    "alert_cooldown_until_ms": "alert_cooldown_until",
}
CHANGES = ("add", "replace", "remove")


@click.group("pollers", context_settings={"help_option_names": ["-h", "--help"]})
def pollers_command() -> None:
    """List, run, pause, resume, reset and reload poller jobs."""


@command(pollers_command, "list")
def list_jobs(session: Session) -> None:
    """List the jobs: whether each runs, when it was and will be read, and what it has delivered."""
    answer = session.call("pollers.list")
    listing(session, answer, COLUMNS, "There are no jobs yet. Write one into pollers.yaml")
    # a sentence does not fit into a column
    for row in answer["items"] if not session.as_json else ():
        if row["last_error"]:
            say(f"{row['id']}: {row['last_error']}")


@command(pollers_command, "show")
@click.argument("id")
def show_job(session: Session, id: str) -> None:
    """Show one job with all its settings, and why it stands still if it does."""
    answer = session.call("pollers.show", id=id)
    if session.as_json:
        print_json(answer)
        return
    times = {name: _local(answer[at]).isoformat() if answer[at] else "" for at, name in TIMES.items()}
    fields(session, {**answer, **times, "refused": ""}, hide=("last_error", *TIMES))
    for finding in answer["refused"]:
        say(f"refused: {finding}")
    if answer["last_error"] and not answer["refused"]:
        say(f"last error: {answer['last_error']}")


@command(pollers_command, "run")
@click.argument("id")
def run_job(session: Session, id: str) -> int:
    """Read a job now, as its schedule would. Needs a running controller. Exits 1 when the read fails."""
    session.needs_controller()
    answer = session.call("pollers.run", id=id)
    if session.as_json:
        print_json(answer)
    elif answer["error"]:
        say(f"{id}: {answer['error']}")
    else:
        say(f"{id}: {answer['seen']} seen, {answer['new']} new")
    return 1 if answer["error"] else 0


@command(pollers_command, "pause")
@click.argument("id")
def pause_job(session: Session, id: str) -> None:
    """Read and deliver nothing until the job is resumed."""
    _print_job(session, session.call("pollers.pause", id=id))


@command(pollers_command, "resume")
@click.argument("id")
def resume_job(session: Session, id: str) -> None:
    """Let go what was held, forget errors and read again."""
    _print_job(session, session.call("pollers.resume", id=id))


@command(pollers_command, "reset")
@click.argument("id")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset_job(session: Session, id: str, yes: bool) -> None:
    """Forget what the job has read, its errors and its pause, and begin at now."""
    if not yes:
        # a name that does not exist is worth no question
        session.call("pollers.show", id=id)
        _confirm(id)
    _print_job(session, session.call("pollers.reset", id=id))


def _confirm(id: str) -> None:
    if not sys.stdin.isatty():
        message = f"resetting {id} wipes what it has read and remembers"
        raise Refused(message, fix=f"If you mean it: harken pollers reset {id} --yes")
    click.confirm(f"Wipe what {id} has read and remembers, and begin at now?", abort=True, err=True)


@command(pollers_command, "reload")
def reload_jobs(session: Session) -> int:
    """Read the configuration again and say what that changes. Exits 1 when something was refused."""
    session.needs_controller()
    plan = session.call("pollers.reload")
    if session.as_json:
        print_json(plan)
    else:
        _print_plan(plan)
    return 0 if plan["ok"] else 1


def _print_plan(plan: Mapping[str, Any]) -> None:
    rows = [{"what": what, "job": id, "why": ""} for what in CHANGES for id in plan[what]]
    rows += [{"what": "refused", "job": one["id"], "why": _refusal_line(one)} for one in plan["refused"]]
    if rows:
        table(rows, (("what", "what"), ("job", "job"), ("why", "why")))
    counted = ", ".join(f"{len(plan[what])} {what}" for what in (*CHANGES, "keep", "refused"))
    say(counted if rows else f"Nothing changed: {counted}")


def _refusal_line(one: Mapping[str, Any]) -> str:
    kept = " (its old version goes on)" if one["runs"] else ""
    return "; ".join(one["errors"]) + kept


def _print_job(session: Session, row: Mapping[str, Any]) -> None:
    if session.as_json:
        print_json(row)
    else:
        say(f"{row['id']} is {'paused' if row['paused'] else 'running'}")
