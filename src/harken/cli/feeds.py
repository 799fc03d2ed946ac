"""`harken feeds …`."""

from __future__ import annotations

import click

from harken.cli.invocation import Session, command
from harken.cli.output import fields, listing

__all__ = ["feeds_command"]

COLUMNS = (
    ("name", "name"),
    ("kind", "kind"),
    ("schedule", "schedule"),
    ("health", "health"),
    ("last read", "last_read_at"),
    ("next read", "next_read_at"),
    ("reads", "reads"),
    ("triggers", "triggers"),
    ("error", "error"),
)


@click.group("feeds", context_settings={"help_option_names": ["-h", "--help"]})
def feeds_command() -> None:
    """See what is read, when, and how far."""


@command(feeds_command, "list")
def list_feeds(session: Session) -> None:
    """List the feeds with their health and schedule."""
    listing(session, session.call("feeds.list"), COLUMNS, "There are no feeds yet. They are opened by: harken start")


@command(feeds_command, "show")
@click.argument("name")
def show_feed(session: Session, name: str) -> None:
    """Show one feed: its query, what it has covered, and its last reads."""
    fields(session, session.call("feeds.show", name=name))
