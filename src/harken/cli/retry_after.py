"""Commands that write at a service wait for as long as it asks us to, and say so."""

from __future__ import annotations

import math
import time
from typing import Any

import click

from harken.cli.invocation import Session
from harken.errors import RetryLater

__all__ = ["LONGEST_WAIT", "call_patiently", "wait_aloud"]

LONGEST_WAIT = 900.0
"""A command waits no longer than this at a time."""


def call_patiently(session: Session, operation: str, **params: Any) -> Any:
    """Do the operation. While a service wants us to wait, say for how long, and do it again after that."""
    while True:
        try:
            return session.call(operation, **params)
        except RetryLater as error:
            if error.after is None:
                raise
            if error.after > LONGEST_WAIT:
                error.fix = error.fix or f"Try again in {math.ceil(error.after / 60)} min"
                raise
            wait_aloud(error.after, error.message)


def wait_aloud(seconds: float, reason: str) -> None:
    """Wait, and say on the error output why and for how long."""
    seconds = max(1.0, seconds)
    click.echo(f"harken: {reason}. It goes on in {math.ceil(seconds)} s; Ctrl-C ends it", err=True)
    time.sleep(seconds)
