"""`harken events …`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from harken.cli.invocation import Session, command
from harken.cli.output import Column, clean, clock, fields, key_and_title, listing, print_json, say, table
from harken.cli.paging import filtered, paged, print_pages
from harken.errors import HarkenError
from harken.operate.wording import count

__all__ = ["events_command"]


def _verdict_words(event: Mapping[str, Any]) -> str:
    return ", ".join(f"{verdict['trigger']}: {verdict['outcome']}" for verdict in event["verdicts"]) or "no trigger"


def _line(event: Mapping[str, Any]) -> str:
    what = key_and_title(event["key"] or event["subject"], event["title"])
    told = (clock(event["recorded_at"]), event["id"], event["feed"], event["type"], what, _verdict_words(event))
    return clean("  ".join(map(str, told)))


COLUMNS: tuple[Column, ...] = (
    ("id", "id"),
    ("recorded", "recorded_at"),
    ("feed", "feed"),
    ("type", "type"),
    ("key", lambda event: event["key"] or event["subject"]),
    ("title", "title"),
    ("verdicts", _verdict_words),
)


@click.group("events", context_settings={"help_option_names": ["-h", "--help"]})
def events_command() -> None:
    """Follow, list, show, replay and forget events."""


@command(events_command, "tail")
@click.option("--feed", default="", help="Only events of this feed.")
@click.option("--trigger", default="", help="Only events that this trigger decided about.")
@click.option("--after", type=int, metavar="ID", help="Begin after this event instead of now.")
def tail_events(session: Session, feed: str, trigger: str, after: int | None) -> None:
    """Follow events as they are committed, until Ctrl-C. With --json, one object a line."""
    controller = session.needs_controller()
    feed_id = session.call("feeds.show", name=feed)["id"] if feed else ""
    for event in controller.follow(after):
        deciding = [verdict["trigger"] for verdict in event["verdicts"]]
        if feed_id not in ("", event["feed_id"]) or (trigger and trigger not in deciding):
            continue
        if session.as_json:
            print(json.dumps(event, ensure_ascii=False), flush=True)
        else:
            print(_line(event), flush=True)
    raise HarkenError("the controller has stopped", fix="Start it again with: harken start")


@command(events_command, "list")
@click.option("--feed", help="Only events of this feed.")
@click.option("--trigger", help="Only events that this trigger decided about.")
@click.option("--key", help="Only events of this key.")
@click.option(
    "--since", metavar="TIME", help="Only events recorded since: 10m, or a time such as 2026-03-01T10:00:00Z."
)
@filtered
@paged
def list_events(session: Session, **given: Any) -> None:
    """List recorded events, newest first, with what was decided about each."""
    include = ["data"] if session.as_json else None
    print_pages(session, "events.list", COLUMNS, "No events yet.", include=include, **given)


@command(events_command, "show")
@click.argument("id", type=int)
def show_event(session: Session, id: int) -> None:
    """Show one event with its data, and what each trigger decided and why."""
    event = session.call("events.show", id=id)
    fields(session, event, hide=("verdicts",))
    if not session.as_json and event["verdicts"]:
        columns = (("trigger", "trigger"), ("verdict", "outcome"), ("reason", "reason"), ("run", "run_id"))
        table(event["verdicts"], columns)


@command(events_command, "star")
@click.argument("id", type=int)
@click.option("--trigger", help="For this trigger only; else for all that decided about it.")
@click.option("--note", help="Why.")
def star_event(session: Session, **given: Any) -> None:
    """Keep an event for good, whatever retention deletes."""
    answer = session.call("events.star", **given)
    if session.as_json:
        print_json(answer)
    else:
        say(f"event {answer['event']} is starred and stays. See it with: harken triggers bank TRIGGER")


@command(events_command, "unstar")
@click.argument("id", type=int)
@click.option("--trigger", help="Yours, if the event started triggers of others too.")
def unstar_event(session: Session, **given: Any) -> None:
    """Let retention have an event again."""
    answer = session.call("events.unstar", **given)
    if session.as_json:
        print_json(answer)
    else:
        say(f"event {answer['event']} is not starred any more")


@command(events_command, "replay")
@click.argument("id", type=int, required=False)
@click.option("--trigger", help="Only this trigger, also if the event did not start it. Of a span: names with commas.")
@click.option("--since", metavar="TIME", help="Instead of one event: all recorded since, 2h or a time.")
@click.option("--until", metavar="TIME", help="Up to this time.")
@click.option("--dry", is_flag=True, help="Only say what a span would start.")
@click.option("--replay-id", metavar="NAME", help="A name of your own: repeated with it, nothing starts twice.")
def replay_event(
    session: Session,
    id: int | None,
    trigger: str | None,
    since: str | None,
    until: str | None,
    dry: bool,
    replay_id: str | None,
) -> None:
    """Start new runs for a stored event, or for those of a span of time in their order."""
    columns = (("run", "id"), ("trigger", "trigger"), ("instead of", "replay_of"))
    if (id is None) == (since is None):
        raise click.UsageError("name one event by its ID, or a span with --since")
    if id is not None:
        if until or dry or replay_id:
            raise click.UsageError("--until, --dry and --replay-id are for a span: --since")
        answer = session.call("events.replay", id=id, trigger=trigger)
        listing(session, {"items": answer["runs"]}, columns, "")
        return
    if not trigger:
        raise click.UsageError("a span is replayed to triggers that you name: --trigger NAME")
    answer = session.call_long(
        "replay", "events.replay_range", trigger=trigger, since=since, until=until, dry=dry, replay_id=replay_id
    )
    if session.as_json:
        print_json(answer)
        return
    if answer["runs"]:
        table(answer["runs"], (("event", "event"), ("key", "key"), ("title", "title"), *columns))
    would = "would start" if dry else "started"
    say(f"replay {answer['replay_id']}: {answer['events']} events {would} {answer['started']} runs")


@command(events_command, "forget")
@click.option("--subject", required=True, metavar="TEXT", help="Whose data: an address, a name or an id, as it stands.")
@click.option("--yes", is_flag=True, help="Do it; without this it is only said what would be removed.")
def forget_subject(session: Session, subject: str, yes: bool) -> int:
    """Remove a person's data from the store: events, runs, dead letters and notes that have this text."""
    answer = session.call("events.forget", subject=subject, yes=yes)
    if session.as_json:
        print_json(answer)
        return 1 if answer["left"] else 0
    verb = "Removed" if yes else "This would remove"
    counted = ", ".join(count(answer[name], word) for name, word in KINDS if yes or name != "letters")
    say(f"{verb}: {counted}.")
    if not yes:
        say("If you mean it: --yes")
        return 0
    for line in answer["left"]:
        say(f"Still there: {line}.")
    say(f"Not removed: {'; '.join(answer['remains'])}.")
    return 1 if answer["left"] else 0


KINDS = (("events", "event"), ("runs", "run"), ("letters", "refused event"), ("notes", "note"))
