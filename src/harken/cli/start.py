"""`harken start` and `harken demo`: the two that stay."""

from __future__ import annotations

from typing import Any

import click

from harken.cli.session import Session, command

__all__ = ["demo_command", "start_command", "start_controller", "start_options"]


def start_options(function: Any) -> Any:
    """The options of whatever starts a controller."""
    for option in (
        click.option(
            "--role",
            type=click.Choice(["all", "ingest", "run", "api"]),
            default="all",
            show_default=True,
            help="What this process does: read feeds, execute runs, only answer, or all of it.",
        ),
        click.option(
            "--port", type=click.IntRange(0, 65_535), help="Listen on this port. [default: server.port, 9091]"
        ),
        click.option("--host", help="Listen on this address. [default: server.host, 127.0.0.1]"),
    ):
        function = option(function)
    return function


def start_controller(session: Session, host: str | None, port: int | None, role: Any) -> int:
    from harken.app import run

    return run(session.directory, host=host, port=port, role=role)


@command(None, "start", data=False)
@start_options
def start_command(session: Session, host: str | None, port: int | None, role: Any) -> int:
    """Run the controller until it is stopped: read the feeds, execute the runs, serve the API."""
    return start_controller(session, host, port, role)


@command(None, "demo")
@click.argument("name", default="")
@click.option("--seconds", type=float, help="Stop after so long; exits 1 if anything was lost or doubled.")
@click.option("--port", type=click.IntRange(0, 65_535), default=9091, show_default=True, help="Listen on this port.")
@click.option("--keep", is_flag=True, help="Keep the demo's files afterwards.")
def demo_command(session: Session, name: str, seconds: float | None, port: int, keep: bool) -> int:
    """Watch Harken at work on this machine, without an account.

    Without a NAME: on a make-believe company. With one: the example workflows of a service, on a stand-in for it.

    \b
      pagerduty   a first look at the incidents that become yours
      slack       drafts for those who mention you
      jira        what the tickets that become yours are about
      datadog     what the monitors of your team say
    """
    from harken.demo import run

    return run(name, seconds=seconds, as_json=session.as_json, port=port, keep=keep)
