"""`harken triggers …` and `harken explain`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from harken.cli.duration import DURATION
from harken.cli.invocation import Session, command
from harken.cli.output import Column, clock, fields, listing, print_json, say, table
from harken.cli.paging import filtered
from harken.errors import Misconfigured

__all__ = ["explain_command", "triggers_command"]

SPANS = 5
OWN_LINES = (
    "advice",
    "clauses",
    "coverage",
    "gaps",
    "ticks",
    "last_error",
    "last_error_at",
    "refused_webhooks",
    "timeline",
)
"""Fields of `show` that are printed in a form of their own."""

COLUMNS: tuple[Column, ...] = (
    ("name", "name"),
    ("type", "type"),
    ("status", "status"),
    ("workflow", "workflow"),
    ("fired", "fired"),
    ("held", "held"),
    ("dead", "dead"),
    ("last fired", "last_fired_at"),
    ("last read", "last_read_at"),
    ("reason", "reason"),
)

POLLED: tuple[Column, ...] = (
    ("name", "name"),
    ("integration", "integration"),
    ("status", "status"),
    ("last poll", "last_tick_at"),
    ("next poll", "next_read_at"),
    ("errors", "failures"),
    ("held", "held"),
    ("dead", "dead"),
    ("interval", lambda row: _seconds(row["interval_seconds"])),
    ("reason", "reason"),
)
BANKED: tuple[Column, ...] = (
    ("event", "id"),
    ("at", "recorded_at"),
    ("key", "key"),
    ("title", "title"),
    ("verdict", lambda row: ", ".join(one["outcome"] for one in row["verdicts"])),
    ("why", lambda row: row["star"]["note"] if "star" in row else ", ".join(one["reason"] for one in row["verdicts"])),
)
SOUGHT: tuple[Column, ...] = (
    ("at", "occurred_at"),
    ("key", "key"),
    ("title", "title"),
    ("would be", "outcome"),
    ("why", "reason"),
)
REFUSED: tuple[Column, ...] = (("at", "at"), ("sender", "sender"), ("reason", "reason"), ("message", "message"))
TICKS: tuple[Column, ...] = (
    ("from", "started_at"),
    ("to", "ended_at"),
    ("reads", "count"),
    ("result", "result"),
    ("seen", "seen"),
    ("new", "new"),
    ("error", "error"),
)


@click.group("triggers", context_settings={"help_option_names": ["-h", "--help"]})
def triggers_command() -> None:
    """List, make, change, test, pause, resume, reset and explain triggers."""


@command(triggers_command, "list")
@click.option("--type", "kind", default="", metavar="TYPE", help="Only poll, webhook, schedule, event or ticket.")
@filtered
def list_triggers(session: Session, kind: str, where: str | None) -> None:
    """List the triggers with their status: new, healthy, degraded, paused, stale or refused."""
    answer = session.call("triggers.list", type=kind or None, where=where)
    nothing = (
        f"There are no {kind} triggers"
        if kind
        else "No trigger is like that."
        if where
        else "There are no triggers yet. Try: harken init"
    )
    listing(session, answer, POLLED if kind == "poll" else COLUMNS, nothing)
    if not session.as_json:
        _print_advice(answer["items"])


@command(triggers_command, "show")
@click.argument("name")
def show_trigger(session: Session, name: str) -> None:
    """Show one trigger: its status and why, how far it has read, its last reads, and what is held."""
    answer = session.call("triggers.show", name=name)
    fields(session, answer, hide=OWN_LINES)
    if session.as_json:
        return
    for label, spans in (("covered", answer["coverage"]), ("gap", answer["gaps"])):
        for span in spans[-SPANS:]:
            say(f"{label}: {clock(span['start'])} to {clock(span['end'])}")
    for clause in answer["clauses"]:
        say(f"clause {clause['clause']}: not true for {clause['failed']}, alone held back {clause['alone']}")
    _print_timeline(answer)
    if answer["ticks"]:
        table(answer["ticks"], TICKS)
    if answer["refused_webhooks"]:
        say("webhooks that were refused, the last first:")
        table(answer["refused_webhooks"], REFUSED)
    if answer["last_error"]:
        say(f"last error ({clock(answer['last_error_at'])}): {answer['last_error']}")
    if answer["advice"]:
        say(f"→ {answer['advice']}")


@command(triggers_command, "test")
@click.argument("name")
@click.option("--lookback", type=DURATION, help="How far a new trigger looks back, such as 30m. [default: 1h]")
def test_trigger(session: Session, name: str, lookback: float | None) -> int:
    """Show what would fire now and why the rest would not. Reads the API; changes nothing.

    Exits 1 when the query has a name that the service does not know.
    """
    answer = session.call("triggers.test", name=name, lookback=lookback)
    if session.as_json:
        print_json(answer)
    else:
        _tested(answer)
    return 1 if answer["unknown"] else 0


def _tested(answer: dict[str, Any]) -> None:
    if answer["shown"]:
        columns: tuple[Column, ...] = (
            ("key", "key"),
            ("title", "title"),
            ("occurred", "occurred_at"),
            ("verdict", "outcome"),
            ("reason", "reason"),
        )
        table(answer["shown"], columns)
    for written, meant in answer["found"].items():
        say(f"{written} is {meant}")
    for sentence in (*answer["unknown"], *answer["notes"]):
        say(sentence)
    _print_timeline(answer)
    more = "" if answer["complete"] else ", of those that a dry run reads; there are more"
    say(f"{answer['sentence']}{more}. Nothing was changed.")


@command(triggers_command, "run")
@click.argument("name")
def run_trigger(session: Session, name: str) -> int:
    """Read the trigger's feed now, as its schedule would. Needs a running controller. Exits 1 when the read fails."""
    session.needs_controller()
    answer = session.call("triggers.run", name=name)
    fields(session, answer)
    return 1 if answer.get("error") else 0


@command(triggers_command, "pause")
@click.argument("name")
@click.option("--reason", default="", help="Why, for whoever looks at it later.")
def pause_trigger(session: Session, name: str, reason: str) -> None:
    """Hold the trigger's runs; its events are still recorded."""
    _print_trigger(session, session.call("triggers.pause", name=name, reason=reason))


@command(triggers_command, "resume")
@click.argument("name")
def resume_trigger(session: Session, name: str) -> None:
    """Let held runs go, forget errors and read again."""
    _print_trigger(session, session.call("triggers.resume", name=name))


@command(triggers_command, "reset")
@click.argument("name")
@click.option("--cursor", is_flag=True, help="Also forget what was read, and start at now.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset_trigger(session: Session, name: str, cursor: bool, yes: bool) -> None:
    """Clear errors and pause. Cursor and memory stay, unless --cursor is given."""
    if cursor and not yes and sys.stdin.isatty():
        question = f"Wipe what the feed of {name} has read and remembers, and start at now?"
        yes = click.confirm(question, abort=True, err=True)
    _print_trigger(session, session.call("triggers.reset", name=name, cursor=cursor, yes=yes))


@command(triggers_command, "create")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--disabled", is_flag=True, help="Make it, and do not let it read yet.")
def create_trigger(session: Session, file: Path, disabled: bool) -> None:
    """Make a trigger in the store from a workflow file, which may then be deleted."""
    row = session.call("triggers.create", **_read_file(file), enabled=not disabled)
    _print_row(session, row, "made")


@command(triggers_command, "edit")
@click.argument("name")
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Take all of it from here.")
@click.option("--condition", metavar="CEL", help="Another condition.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether it reads and starts runs.")
def edit_trigger(session: Session, name: str, file: Path | None, condition: str | None, enabled: bool | None) -> None:
    """Change a trigger that is in the store. One in a file is changed in its file."""
    given: dict[str, Any] = _read_file(file) if file else {}
    given |= {key: value for key, value in (("condition", condition), ("enabled", enabled)) if value is not None}
    given.pop("name", None)
    if not given:
        raise click.UsageError("say what to change: --file, --condition, --enable or --disable")
    revision = session.call("triggers.show", name=name)["revision"]
    _print_row(session, session.call("triggers.edit", name=name, match=f'"{revision}"', **given), "changed")


@command(triggers_command, "delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete_trigger(session: Session, name: str, yes: bool) -> None:
    """Remove a trigger that is in the store. What it has recorded stays until it is old."""
    revision = session.call("triggers.show", name=name)["revision"]
    if not yes and sys.stdin.isatty():
        click.confirm(f"Remove the trigger {name}?", abort=True, err=True)
    answer = session.call("triggers.delete", name=name, match=f'"{revision}"')
    if session.as_json:
        print_json(answer)
    else:
        say(f"{answer['name']} is removed")


@command(triggers_command, "export")
@click.argument("name")
def export_trigger(session: Session, name: str) -> None:
    """Print a trigger as a workflow file: to keep it, or to move it into workflows/."""
    answer = session.call("triggers.export", name=name)
    if session.as_json:
        print_json(answer)
    else:
        print(answer["yaml"], end="")


def _read_file(file: Path) -> dict[str, Any]:
    from harken.config.findings import Report
    from harken.config.stored_trigger_compiler import from_file
    from harken.config.yaml.nodes import Table, to_plain
    from harken.config.yaml.parser import parse

    report = Report()
    tree = parse(file.read_bytes(), str(file), report)
    if report.failed or not isinstance(tree, Table):
        raise Misconfigured("\n".join(map(str, report.findings)) or f"{file} is not a workflow file")
    return from_file(to_plain(tree))


def _print_row(session: Session, row: dict[str, Any], done: str) -> None:
    if session.as_json:
        print_json(row)
        return
    state = "" if row["enabled"] else ", and not enabled"
    say(f"{row['name']} is {done}{state} ({row['id']}, version {row['revision']})")


@command(triggers_command, "seek")
@click.argument("name")
@click.argument("to", metavar="TIME")
@click.option("--yes", "token", metavar="TOKEN", help="Do what the preview with this token showed.")
def seek_trigger(session: Session, name: str, to: str, token: str | None) -> None:
    """Show what moving a trigger to another time would do: 2h, or 2026-03-01T10:00:00Z. Then do it with --yes."""
    answer = session.call("triggers.seek", name=name, to=to, token=token)
    if session.as_json:
        print_json(answer)
    elif answer["done"]:
        way = "reads again what happened since" if answer["direction"] == "back" else "counts what happens from"
        say(f"{name} {way} {clock(answer['to'])}")
    else:
        if answer["items"]:
            table(answer["items"], SOUGHT)
        for line in (answer["sentence"], *answer["notes"]):
            say(line)
        say(f"Nothing was changed. To do it: harken triggers seek {name} {answer['to']} --yes {answer['token']}")


@command(triggers_command, "release")
@click.argument("name")
def release_runs(session: Session, name: str) -> None:
    """Let the trigger's held runs go."""
    fields(session, session.call("triggers.release", name=name))


@command(triggers_command, "drop")
@click.argument("name")
def drop_runs(session: Session, name: str) -> None:
    """Cancel the trigger's held runs."""
    fields(session, session.call("triggers.drop", name=name))


@command(triggers_command, "bank")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 200), default=5, show_default=True, help="How many of each.")
def trigger_bank(session: Session, name: str, limit: int) -> None:
    """Show the event bank: starred events, and the last that fired, were filtered or failed."""
    answer = session.call("triggers.bank", name=name, limit=limit)
    if session.as_json:
        print_json(answer)
        return
    for title, listed in (("starred", "starred"), ("fired", "fired"), ("filtered", "filtered"), ("errors", "error")):
        rows = answer[listed]
        say(f"{title}: {'' if rows else 'none'}".rstrip())
        if rows:
            table(rows, BANKED)


@command(triggers_command, "backtest")
@click.argument("name")
@click.option("--condition", help="A changed condition, in CEL; without it the trigger as it is.")
@click.option("--last", metavar="DURATION", help="How far back: 7d, 12h. [default: 7d]")
@click.option("--since", metavar="TIME", help="From this time on instead of --last.")
@click.option("--until", metavar="TIME", help="Up to this time.")
def backtest_trigger(session: Session, name: str, **given: str | None) -> int:
    """Decide stored events again: what a changed condition would fire, and whether the rules give what was recorded.

    Changes nothing. Exits 1 when the rules as they are do not give the recorded verdicts.
    """
    answer = session.call_long("backtest", "triggers.backtest", name=name, **given)
    if session.as_json:
        print_json(answer)
    else:
        for line in answer["lines"]:
            say(line)
    return 1 if answer["not_reproduced"] else 0


@command(triggers_command, "explain")
@click.argument("name", metavar="TRIGGER")
@click.argument("key", default="")
def explain_command(session: Session, name: str, key: str) -> None:
    """Say why something did or did not start a run.

    KEY is an event's key or subject, its id as '#2', a ticket, or a time. Without it: how the trigger is doing.
    """
    answer = session.call("triggers.explain", name=name, key=key or None)
    if session.as_json:
        print_json(answer)
        return
    for line in answer["lines"]:
        say(line)


def _print_advice(rows: Sequence[dict[str, Any]]) -> None:
    """What to do, for each trigger that a person stopped or must look at."""
    for row in rows:
        if row["advice"] and (row["needs_person"] or row["status"] == "paused"):
            say(f"→ {row['name']}: {row['advice']}")


def _print_timeline(answer: dict[str, Any]) -> None:
    """How events gather in runs, drawn by the rules of the commit."""
    for line in answer["timeline"]:
        say(line)


def _seconds(amount: float | None) -> str:
    return "" if amount is None else f"{amount:g} s"


def _print_trigger(session: Session, row: dict[str, Any]) -> None:
    if session.as_json:
        print_json(row)
        return
    reason = f": {row['reason']}" if row["reason"] else ""
    say(f"{row['name']} is {row['status']}{reason}")
    if row["advice"]:
        say(f"  {row['advice']}")
