"""`harken test`: the cases beside the workflows, on virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harken.cli.invocation import Session, command
from harken.cli.output import print_json, say

if TYPE_CHECKING:
    from harken.simulation.case_runner import CaseResult

__all__ = ["test_command"]


class _CasesGroup(click.Group):
    """`harken test add …` is a command; any other first word is the path of cases."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("test", cls=_CasesGroup, context_settings={"help_option_names": ["-h", "--help"]})
def test_command() -> None:
    """Run the test cases of your workflows on virtual time. Without a command: harken test [PATH] is `run`."""


@command(test_command, "run")
@click.argument("path", required=False, type=click.Path())
@click.option("--junit", metavar="FILE", type=click.Path(dir_okay=False), help="Write the results as JUnit XML.")
@click.option("-k", "word", default="", metavar="WORD", help="Only cases whose name or file has this word.")
def run_tests(session: Session, path: str | None, junit: str | None, word: str) -> int:
    """Run the cases below tests/, or those in PATH, on virtual time. Nothing outside is called.

    Exits 1 if one fails.
    """
    from harken.simulation.case_runner import run_cases, to_junit

    shown = (lambda result: None) if session.as_json else _show
    summary = run_cases(session.directory, Path(path) if path else None, word=word, on_result=shown)
    if junit:
        Path(junit).write_text(to_junit(summary), "utf-8")
    if session.as_json:
        print_json([_row(result) for result in summary.results])
    elif not summary.results:
        say("There are no cases. They are in tests/*.yaml; make one of an event with: harken test add EVENT")
    else:
        passed = len(summary.results) - summary.failed
        failed = f", {summary.failed} failed" if summary.failed else ""
        say(f"{passed} passed{failed} in {summary.seconds:.2f} s")
    return 1 if summary.failed else 0


def _show(result: CaseResult) -> None:
    if result.passed:
        say(f"ok    {result.file}: {result.name}")
        return
    say(f"FAIL  {result.file}:{result.line}:{result.column}: {result.name}")
    for problem in result.problems:
        say(f"      {problem}")


def _row(result: CaseResult) -> dict[str, Any]:
    problems = [
        {"file": one.file, "line": one.line, "column": one.column, "path": one.path, "message": one.message}
        for one in result.problems
    ]
    return {
        "file": result.file,
        "line": result.line,
        "name": result.name,
        "passed": result.passed,
        "seconds": round(result.seconds, 4),
        "problems": problems,
    }


@command(test_command, "add")
@click.argument("event", type=int)
@click.option("--trigger", default="", metavar="NAME", help="Whose verdict it is about, if several have decided.")
@click.option("--name", default="", metavar="TEXT", help="The name of the case.")
@click.option("--file", metavar="FILE", type=click.Path(dir_okay=False), help="Where to write it. [default: in tests/]")
def add_test(session: Session, event: int, trigger: str, name: str, file: str | None) -> None:
    """Make a test case of a recorded event and its verdict.

    Secrets are removed, and people replaced by stand-ins, as far as the verdict stays the same: it is run before it is
    written. EVENT is its number, see: harken events list.
    """
    from harken.simulation.add_case import add_case

    recorded = session.call("events.show", id=event)
    added = add_case(session.directory, recorded, trigger=trigger, name=name, file=Path(file) if file else None)
    if session.as_json:
        print_json(
            {
                "file": added.file,
                "name": added.name,
                "trigger": added.trigger,
                "outcome": added.outcome,
                "kept": list(added.kept),
            }
        )
        return
    say(f"{added.file}  written: {added.trigger} must say {added.outcome}")
    if added.kept:
        kept = ", ".join(added.kept)
        say(f"The condition needs these values as they are: {kept}. Look at them before you share the file")
