"""`harken config …`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from harken.cli.session import Session, command
from harken.cli.show import print_json, say

__all__ = ["config_command", "report"]


@click.group("config", context_settings={"help_option_names": ["-h", "--help"]})
def config_command() -> None:
    """Check the configuration."""


@command(config_command, "check")
@click.option("--strict", is_flag=True, help="Warnings fail too.")
def check_config(session: Session, strict: bool) -> int:
    """Report everything that is wrong in the files, with its position. Exits 1 when there is an error."""
    from harken.operate.configuration import config_findings

    return report(session, config_findings(session.directory), strict=strict)


def report(session: Session, findings: Sequence[dict[str, Any]], *, strict: bool) -> int:
    """Print findings and return the exit code they deserve."""
    errors = sum(row["severity"] == "error" for row in findings)
    warnings = len(findings) - errors
    if session.as_json:
        print_json(findings)
    else:
        for row in findings:
            say(row["text"])
        say(f"{errors} errors, {warnings} warnings" if findings else "No errors, no warnings.")
    return 1 if errors or (strict and warnings) else 0
