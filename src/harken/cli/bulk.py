"""`harken bulk …`: one plan for many runs, dead letters or events."""

from __future__ import annotations

from typing import Any

import click

from harken.cli.invocation import Session, command
from harken.cli.output import print_json, say

__all__ = ["bulk_command"]


@click.group("bulk", context_settings={"help_option_names": ["-h", "--help"]})
def bulk_command() -> None:
    """Retry, cancel, release, drop or replay many at once, by a plan."""


@command(bulk_command, "plan")
@click.argument("action", type=click.Choice(["retry", "cancel", "release", "drop", "replay"]))
@click.option("--where", metavar="FILTER", help="Which, in CEL over the fields of their rows.")
@click.option("--ids", metavar="IDS", help="Instead: these runs, with commas.")
@click.option("--since", metavar="TIME", help="Only those since: 2h, or a time.")
@click.option("--trigger", metavar="NAME", help="Of a replay: to which trigger.")
def plan_bulk(session: Session, action: str, ids: str | None, **given: str | None) -> None:
    """Choose, and show what is chosen. Nothing is done before `bulk execute`."""
    if (given["where"] is None) == (ids is None):
        raise click.UsageError("say which: --where FILTER, or --ids")
    named = [id.strip() for id in ids.split(",") if id.strip()] if ids else None
    answer = session.call("bulk.plan", action=action, ids=named, **given)
    if _printed(session, answer):
        return
    if not answer["count"]:
        say(f"plan {answer['id']} would {answer['action']} nothing: nothing fits")
        return
    say(f"plan {answer['id']} would {answer['action']} {answer['count']}:")
    for sample in answer["samples"]:
        say("  " + "  ".join(str(value) for value in sample.values() if value not in ("", None)))
    if answer["count"] > len(answer["samples"]):
        say(f"  and {answer['count'] - len(answer['samples'])} more; all ids: harken bulk show {answer['id']} --json")
    say(f"→ harken bulk execute {answer['id']}")


@command(bulk_command, "show")
@click.argument("id")
def show_bulk(session: Session, id: str) -> None:
    """Show a plan, and what became of it."""
    _print_plan(session, session.call("bulk.show", id=id))


@command(bulk_command, "execute")
@click.argument("id")
def execute_bulk(session: Session, id: str) -> int:
    """Do what the plan says, once. Exits 1 when some of it was refused."""
    answer = session.call_long("bulk", "bulk.execute", id=id)
    _print_plan(session, answer)
    return 1 if answer["refused"] else 0


@command(bulk_command, "undo")
@click.argument("id")
def undo_bulk(session: Session, id: str) -> None:
    """Cancel the runs of a replay that have not begun; they wait a minute."""
    _print_plan(session, session.call("bulk.undo", id=id))


def _print_plan(session: Session, answer: dict[str, Any]) -> None:
    if _printed(session, answer):
        return
    say(f"plan {answer['id']} ({answer['action']}) is {answer['state']}: {answer['done']} of {answer['count']} done")
    for one in answer["refused"]:
        say(f"  {one['id']} was refused: {one['reason']}")
    if answer["cancelled"]:
        say(f"{answer['cancelled']} runs were cancelled before they began")


def _printed(session: Session, answer: dict[str, Any]) -> bool:
    if session.as_json:
        print_json(answer)
    return session.as_json
