"""`harken webhooks`."""

from __future__ import annotations

import click

from harken.cli.invocation import Session, command
from harken.cli.output import Column, listing, print_json, say

__all__ = ["webhooks_command"]

COLUMNS: tuple[Column, ...] = (
    ("provider", "provider"),
    ("id", "id"),
    ("address", "address"),
    ("triggers", "triggers"),
    ("scheme", "scheme"),
    ("last received", "last_received_at"),
    ("refused", "refused"),
)


@command(None, "webhooks")
@click.option("--curl", "id", metavar="ID", help="Print a command that sends a webhook there, signed now.")
@click.option("--event", type=int, default=0, metavar="N", help="With --curl: send what this event had, not a sample.")
def webhooks_command(session: Session, id: str | None, event: int) -> None:
    """List the addresses of webhooks, and try them: who listens, what came last, what was refused."""
    if id is None:
        answer = session.call("webhooks.list")
        listing(session, answer, COLUMNS, "There are no webhooks. A trigger with webhook: has one.")
        if answer["items"] and not session.as_json:
            say("To try one: harken webhooks --curl ID")
        return
    answer = session.call("webhooks.curl", id=id, **({"event": event} if event else {}))
    if session.as_json:
        print_json(answer)
    else:
        print(answer["command"])
