"""`harken start` and `harken demo`: the two that stay."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import click

from harken.cli.client import ControllerClient, is_alive
from harken.cli.duration import DURATION
from harken.cli.invocation import Session, command
from harken.cli.output import print_json, say
from harken.errors import Misconfigured, RetryLater

__all__ = ["controller_command", "demo_command", "start_command", "start_controller", "start_options", "stop_command"]


def start_options(function: Any) -> Any:
    """The options of whatever starts a controller."""
    for option in (
        click.option(
            "--new-store",
            is_flag=True,
            help="Begin with an empty store where an earlier one is gone and left files behind.",
        ),
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
        click.option("--quiet", is_flag=True, help="Do not print a line for each run."),
    ):
        function = option(function)
    return function


def start_controller(
    session: Session, host: str | None, port: int | None, role: Any, new_store: bool, quiet: bool
) -> int:
    from harken.app import run
    from harken.cli.run_summary_line import write_run_line
    from harken.operate.load_and_check_configuration import is_configured

    if not is_configured(session.directory):
        message = f"there is no configuration in {session.directory.absolute()}"
        raise Misconfigured(message, fix="Try: harken init, or name its directory: harken --config DIR start")
    on_run = None if quiet else write_run_line
    return run(session.directory, host=host, port=port, role=role, new_store=new_store, on_run=on_run)


@command(None, "start", data=False)
@start_options
def start_command(session: Session, host: str | None, port: int | None, role: Any, new_store: bool, quiet: bool) -> int:
    """Run the controller until it is stopped: read the feeds, execute the runs, serve the API."""
    return start_controller(session, host, port, role, new_store, quiet)


@command(None, "demo")
@click.argument("name", default="")
@click.option("--seconds", type=DURATION, help="Stop after so long; exits 1 if anything was lost or doubled.")
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
      tickets     labelled tickets start a coding agent that opens pull requests
      streams     orders of a shop that restarts, followed as server-sent events
    """
    from harken.demo import run

    return run(name, seconds=seconds, as_json=session.as_json, port=port, keep=keep)


LOOK_SECONDS = 0.1


@click.group("controller", context_settings={"help_option_names": ["-h", "--help"]})
def controller_command() -> None:
    """Start, stop or ask after the controller."""


@command(controller_command, "start", data=False)
@start_options
def start_it(session: Session, host: str | None, port: int | None, role: Any, new_store: bool, quiet: bool) -> int:
    """Run the controller until it is stopped; the same as `harken start`."""
    return start_controller(session, host, port, role, new_store, quiet)


@command(controller_command, "stop")
@click.option("--timeout", type=DURATION, default="60s", show_default=True, help="How long to wait for it.")
def stop_command(session: Session, timeout: float) -> None:
    """Ask the controller to stop, and wait until it has."""
    controller = session.local_controller()
    os.kill(controller.pid, signal.SIGTERM)
    _wait(controller, timeout)
    if session.as_json:
        print_json({"pid": controller.pid, "stopped": True})
    else:
        say(f"The controller (pid {controller.pid}) has stopped.")


@command(controller_command, "status")
def show_it(session: Session) -> int:
    """Say whether a controller runs for this configuration. Exits 1 when none does."""
    controller = session.controller() if not session.url else session.local_controller()
    found = {"running": controller is not None, "config": str(Path(session.directory).absolute())}
    if controller is not None:
        found |= {"pid": controller.pid, "url": controller.url}
    if session.as_json:
        print_json(found)
    elif controller is not None:
        say(f"The controller runs: pid {controller.pid}, {controller.url}")
    else:
        say(f"No controller is running for {found['config']}. Start one with: harken start")
    return 0 if controller is not None else 1


def _wait(controller: ControllerClient, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while is_alive(controller.pid):
        if time.monotonic() > deadline:
            message = f"the controller (pid {controller.pid}) is still finishing its runs"
            raise RetryLater(message, fix="Wait, or give it longer with --timeout")
        time.sleep(LOOK_SECONDS)
