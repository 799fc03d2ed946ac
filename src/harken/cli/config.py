"""`harken config …`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import click

from harken.cli.invocation import Session, command
from harken.cli.output import print_json, say
from harken.operate.wording import count

__all__ = ["OutputFormat", "config_command", "format_option", "report"]


@click.group("config", context_settings={"help_option_names": ["-h", "--help"]})
def config_command() -> None:
    """Check the configuration, and get its JSON Schema."""


@command(config_command, "schema", data=False)
@click.argument("file", required=False, type=click.Choice(["harken", "workflow", "pollers", "cases"]))
@click.option("--write", "into", metavar="DIR", type=click.Path(file_okay=False), help="Write all of them into DIR.")
def config_schema(session: Session, file: str | None, into: str | None) -> int:
    """Print the JSON Schema of a kind of file, for editors: harken, workflow (the default), pollers or cases.

    It has the services that are installed here, those of your own too.
    """
    from harken.operate.config_schema import FILES, file_schema, write_schemas
    from harken.simulation.case_schema import CasesFile

    if into is None:
        print_json(file_schema(file or "workflow", cases=CasesFile))
        return 0
    for path, pattern in zip(write_schemas(Path(into).expanduser(), cases=CasesFile), FILES.values(), strict=True):
        say(f"{path}  written, for {pattern}")
    say("In a file: # yaml-language-server: $schema=PATH")
    return 0


OutputFormat: TypeAlias = Literal["text", "github", "json"]

format_option = click.option(
    "--output-format",
    "output_format",
    type=click.Choice(["text", "github", "json"]),
    default="text",
    show_default=True,
    help="text for people, github for annotations of a pull request, json for programs (as --json).",
)


@command(config_command, "check")
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@format_option
def check_config(session: Session, strict: bool, output_format: OutputFormat) -> int:
    """Report everything that is wrong in the files, with its position. Exits 1 when there is an error."""
    from harken.operate.load_and_check_configuration import config_findings

    return report(session, config_findings(session.directory), strict=strict, output_format=output_format)


def report(
    session: Session, findings: Sequence[dict[str, Any]], *, strict: bool, output_format: OutputFormat = "text"
) -> int:
    """Print findings and return the exit code they deserve."""
    errors = sum(row["severity"] == "error" for row in findings)
    warnings = len(findings) - errors
    if session.as_json or output_format == "json":
        print_json(findings)
    elif output_format == "github":
        for row in findings:
            print(_annotation(row, session.directory))
    else:
        for row in findings:
            say(row["text"])
            for line in row["excerpt"].splitlines():
                say(f"    {line}")
        say(f"{count(errors, 'error')}, {count(warnings, 'warning')}" if findings else "No errors, no warnings.")
    return 1 if errors or (strict and warnings) else 0


def _annotation(row: dict[str, Any], directory: Path) -> str:
    """A workflow command of GitHub Actions: it shows the finding beside the line."""
    file = (directory / row["file"]).as_posix()
    message = f"{row['message']}. {row['fix']}" if row["fix"] else row["message"]
    text = f"{message}\n{row['excerpt']}" if row["excerpt"] else message
    place = f"file={_escape(file, ':,')},line={row['line']},col={row['column']},title={_escape(row['code'], ':,')}"
    return f"::{row['severity']} {place}::{_escape(text)}"


def _escape(text: str, more: str = "") -> str:
    return "".join(f"%{ord(sign):02X}" if sign in f"%\r\n{more}" else sign for sign in text)
