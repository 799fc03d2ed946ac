"""`harken controller …`: start, stop and status by their other names."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import click

from harken.cli.client import Controller, is_alive
from harken.cli.session import Session, command
from harken.cli.show import print_json, say
from harken.cli.start import start_controller, start_options
from harken.errors import RetryLater

__all__ = ["controller_command"]

LOOK_SECONDS = 0.1


@click.group("controller", context_settings={"help_option_names": ["-h", "--help"]})
def controller_command() -> None:
    """Start, stop or ask after the controller."""


@command(controller_command, "start", data=False)
@start_options
def start_it(session: Session, host: str | None, port: int | None, role: Any) -> int:
    """Run the controller until it is stopped; the same as `harken start`."""
    return start_controller(session, host, port, role)


@command(controller_command, "stop")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="How many seconds to wait for it.")
def stop_it(session: Session, timeout: float) -> None:
    """Ask the controller to stop, and wait until it has."""
    controller = session.needs_controller()
    os.kill(controller.pid, signal.SIGTERM)
    _wait(controller, timeout)
    if session.as_json:
        print_json({"pid": controller.pid, "stopped": True})
    else:
        say(f"The controller (pid {controller.pid}) has stopped.")


@command(controller_command, "status")
def show_it(session: Session) -> int:
    """Say whether a controller runs for this configuration. Exits 1 when none does."""
    controller = session.controller()
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


def _wait(controller: Controller, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while is_alive(controller.pid):
        if time.monotonic() > deadline:
            message = f"the controller (pid {controller.pid}) is still finishing its runs"
            raise RetryLater(message, fix="Wait, or give it longer with --timeout")
        time.sleep(LOOK_SECONDS)
