"""`harken tickets …` and `harken trackers …`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from harken.cli.invocation import Session, command
from harken.cli.output import Column, fields, print_json, say, table
from harken.cli.retry_after import LONGEST_WAIT, call_patiently, wait_aloud

__all__ = ["tickets_command", "trackers_command", "webhook_share"]


def _cost(row: Mapping[str, Any]) -> str:
    """`0.12 USD, 4,210 tokens`; nothing where no model was asked."""
    usd = f"{row['usd']:.2f} USD" if row["usd"] else ""
    tokens = f"{row['tokens']:,} tokens" if row["tokens"] else ""
    return ", ".join(filter(None, (usd, tokens)))


def _reads(row: Mapping[str, Any]) -> str:
    if row["state"] == "refused":
        return ""
    return f"every {row['interval']:.0f} s" if row["polled"] else "sweeps every 15 m"


TICKETS: tuple[Column, ...] = (
    ("ticket", "ticket"),
    ("title", "title"),
    ("project", "project"),
    ("pipeline", "pipeline"),
    ("run", lambda row: f"{row['run'][:12]} {row['status']}"),
    ("shows", "shown"),
    ("since", "since"),
    ("error", "error"),
)
RESULTS: tuple[Column, ...] = (
    ("cost", _cost),
    ("pull request", "pull_request"),
)
"""Columns of a list in which a ticket has such a result."""
RUNS: tuple[Column, ...] = (
    ("run", lambda run: run["id"][:12]),
    ("outcome", "outcome"),
    ("pipeline", "workflow"),
    ("created", "created_at"),
    ("error", lambda run: run["error"] or run["hold"] or run["waiting_for"]),
)
TRACKERS: tuple[Column, ...] = (
    ("tracker", "name"),
    ("kind", "kind"),
    ("projects", "projects"),
    ("reads", _reads),
    ("webhooks", lambda row: f"yes{webhook_share(row['webhooks'])}" if row["webhook"] else "no"),
    ("state", "state"),
    ("mark", "mark"),
    ("next read", "next_read"),
    ("message", "message"),
)
VERDICTS: tuple[Column, ...] = (
    ("ticket", "ticket"),
    ("title", "title"),
    ("project", "project"),
    ("stands", "standing"),
    ("pipeline", "pipeline"),
    ("trusted", lambda row: "" if row["trusted"] is None else "yes" if row["trusted"] else "no"),
    ("why", "reason"),
)

ADOPTED = {
    "finished": "have had their run, and are not run again",
    "interrupted": "had a run that was not over, and are claimed again",
    "foreign": "have a label that another account put on, and are left alone",
}


@click.group("tickets", context_settings={"help_option_names": ["-h", "--help"]})
def tickets_command() -> None:
    """See the tickets that start pipelines. Claim, retry, cancel or release one."""


def _which(function: Any) -> Any:
    function = click.option("--tracker", default="", metavar="NAME", help="The tracker, if several may have it.")(
        function
    )
    return click.argument("ticket")(function)


@command(tickets_command, "list")
@click.option("--tracker", default="", metavar="NAME", help="Only tickets of this tracker.")
@click.option("--project", default="", metavar="NAME", help="Only tickets of this project.")
@click.option("--state", default="", help="Only those whose run, or whose label, says running, waiting, done, failed …")
@click.option("--limit", default=50, show_default=True, help="So many at most.")
def list_tickets(session: Session, **given: Any) -> None:
    """List tickets that have had a run, newest first."""
    answer = session.call("tickets.list", **given)
    if session.as_json:
        print_json(answer)
        return
    if not answer["items"]:
        say("No ticket has had a run. What would start one: harken trackers test NAME")
        return
    costs = any(row["tokens"] or row["usd"] or row["pull_request"] for row in answer["items"])
    table(answer["items"], (*TICKETS, *RESULTS) if costs else TICKETS)
    if answer["more"]:
        say("There are more: --limit 200")


@command(tickets_command, "show")
@_which
def show_ticket(session: Session, ticket: str, tracker: str) -> None:
    """Show a ticket as its platform does, what that means for us, and its runs. TICKET: acme/shop#12, SHOP-7, a URL."""
    answer = call_patiently(session, "tickets.show", ticket=ticket, tracker=tracker)
    if session.as_json:
        print_json(answer)
        return
    fields(session, {**answer, "cost": _cost(answer)}, hide=("runs", "memory", "next", "tokens", "usd"))
    if answer["memory"]:
        print()
        say("What we remember of it")
        fields(session, answer["memory"])
    if answer["runs"]:
        print()
        table(answer["runs"], RUNS)
    if answer["next"]:
        say(f"→ {answer['next']}")


@command(tickets_command, "claim")
@_which
@click.option("--pipeline", default="", metavar="NAME", help="This pipeline; the ticket gets its label.")
def claim_ticket(session: Session, ticket: str, tracker: str, pipeline: str) -> None:
    """Start the pipeline of a ticket now, whoever put its label on."""
    _print_run(session, call_patiently(session, "tickets.claim", ticket=ticket, tracker=tracker, pipeline=pipeline))


@command(tickets_command, "retry")
@_which
def retry_ticket(session: Session, ticket: str, tracker: str) -> None:
    """Run the pipeline of a ticket once more, from its beginning."""
    _print_run(session, call_patiently(session, "tickets.retry", ticket=ticket, tracker=tracker))


@command(tickets_command, "cancel")
@_which
def cancel_ticket(session: Session, ticket: str, tracker: str) -> None:
    """Cancel the run of a ticket."""
    _print_run(session, call_patiently(session, "tickets.cancel", ticket=ticket, tracker=tracker))


@command(tickets_command, "release")
@_which
def release_ticket(session: Session, ticket: str, tracker: str) -> None:
    """Give a stuck ticket back: cancel its run, take our labels off, and let it be claimed again."""
    answer = call_patiently(session, "tickets.release", ticket=ticket, tracker=tracker)
    if session.as_json:
        print_json(answer)
        return
    if answer["cancelled"]:
        say(f"run {answer['cancelled']} is cancelled")
    say(f"{answer['ticket']} is released" + (f", without {', '.join(answer['removed'])}" if answer["removed"] else ""))
    if answer["claimed_again"]:
        say("Its label is still on it, so the next read claims it again. Take the label off to prevent that.")


@command(tickets_command, "adopt")
@click.argument("name", metavar="TRACKER")
def adopt_tickets(session: Session, name: str) -> int:
    """Rebuild what we know of a tracker's tickets from their labels and comments, after the store was lost.

    Exits 1 when its platform lets us go on only much later."""
    answer = call_patiently(session, "tickets.adopt", name=name)
    while answer["waits"] is not None and answer["waits"] <= LONGEST_WAIT:
        wait_aloud(answer["waits"], answer["reason"])
        further = call_patiently(session, "tickets.adopt", name=name)
        # those that are left alone are found each time
        answer = further | {what: list(dict.fromkeys([*answer[what], *further[what]])) for what in ADOPTED}
    complete = answer["waits"] is None
    if session.as_json:
        print_json(answer)
        return 0 if complete else 1
    for what, meaning in ADOPTED.items():
        say(f"{len(answer[what])} {meaning}" + (f": {', '.join(answer[what][:20])}" if answer[what] else ""))
    if not complete:
        say(f"{answer['reason']}. For the rest, in {answer['waits'] / 60:.0f} min: harken tickets adopt {name}")
    return 0 if complete else 1


@click.group("trackers", context_settings={"help_option_names": ["-h", "--help"]})
def trackers_command() -> None:
    """List trackers, and test what they may do. A test changes nothing."""


@command(trackers_command, "list")
def list_trackers(session: Session) -> None:
    """List trackers with their projects, how they are read, and how far, or why they were refused."""
    answer = session.call("trackers.list")
    if session.as_json:
        print_json(answer)
    elif not answer["items"]:
        say("No trackers. Write trackers: and projects: in harken.yaml")
    else:
        table(answer["items"], TRACKERS)


@command(trackers_command, "test")
@click.argument("name", metavar="TRACKER")
@click.option("--fix", is_flag=True, help="Make missing lifecycle labels, and have stopped webhooks tested.")
def test_tracker(session: Session, name: str, fix: bool) -> int:
    """Test a tracker: what the token may do, and what the newest labelled tickets would start. Changes nothing.

    Exits 1 when something is missing."""
    made = session.call("trackers.fix", name=name) if fix else None
    answer = session.call("trackers.test", name=name)
    if session.as_json:
        print_json(answer | ({"made": made["made"], "revived": made["revived"]} if made else {}))
        return 0 if answer["ok"] else 1
    for location, labels in made["made"].items() if made else ():
        say(f"{location}: made {', '.join(labels)}" if labels else f"{location}: all labels are there")
    for url in (url for urls in made["revived"].values() for url in urls) if made else ():
        say(f"The webhook to {url} is sent again")
    for place in answer["locations"]:
        _print_location(place, name)
    if answer["webhooks"]:
        _print_webhooks(answer["webhooks"])
    return 0 if answer["ok"] else 1


def _print_location(place: dict[str, Any], tracker: str) -> None:
    if "account" not in place:
        say(f"{place['location']}: {place['problem']}")
        say(f"  {place['fix']}")
        return
    say(f"{place['location']}: read as {place['account']}, whose access is {place['access']}")
    if place["problem"]:
        say(f"  {place['problem']}. {place['fix']}")
    if place["missing_labels"]:
        missing = ", ".join(place["missing_labels"])
        say(f"  It has no labels {missing} yet. Make them: harken trackers test {tracker} --fix")
    if place["tickets"]:
        table(place["tickets"], VERDICTS)
    forecast = place["forecast"]
    lasting = f", about {forecast['hours']} h and ${forecast['usd']} by the last runs" if forecast["hours"] else ""
    say(f"Would be claimed now: {forecast['tickets']}{lasting}, {forecast['writes']} writes")
    if place["webhooks"]:
        _print_registered(place["webhooks"])


def _print_registered(webhooks: dict[str, Any]) -> None:
    """The webhooks that the platform has for our address."""
    for hook in webhooks["hooks"]:
        say(f"Webhook to {hook['url']}: {hook['state']}, tells of {', '.join(hook['tells']) or 'nothing we need'}")
    if webhooks["problem"]:
        say(f"  {webhooks['problem']}. {webhooks['fix']}")
    if webhooks["note"]:
        say(f"  {webhooks['note']}")


def _print_webhooks(webhooks: dict[str, Any]) -> None:
    if webhooks["problem"]:
        say(f"{webhooks['problem']}. {webhooks['fix']}")
    elif webhooks["delivered"]:
        told, lost = webhooks["delivered"], webhooks["lost"]
        say(f"Webhooks to {webhooks['path']} arrive: they told {told} changes, and polls alone found {lost}")
    else:
        say(f"Webhooks to {webhooks['path']}: none has told a change in the last hours")


def webhook_share(webhooks: Mapping[str, Any]) -> str:
    """What part of the changes webhooks told, in words to be put behind others; empty while nothing changed."""
    total = webhooks["delivered"] + webhooks["lost"]
    return f" ({webhooks['delivered'] * 100 // total}% of {total})" if total else ""


def _print_run(session: Session, run: dict[str, Any]) -> None:
    if session.as_json:
        print_json(run)
    else:
        say(f"run {run['id']} is {run['status']}. See: harken runs show {run['id'][:12]}")
