"""`harken simulate`: days of faults on this configuration, in virtual time and without any account."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from harken.cli.duration import DURATION
from harken.cli.invocation import Session, command
from harken.cli.output import clean, print_json, say

if TYPE_CHECKING:
    from harken.simulation.seeded_fault_simulation import Report

__all__ = ["simulate_command"]

FAULTS = ("sleep", "crash", "restart", "lock", "429", "outage", "dst", "late", "duplicate", "clock", "freeze", "cut")
MOST_REPLICAS = 20
MOST_SEED = 1_000_000


@command(None, "simulate")
@click.option("--days", type=click.FloatRange(0.01, 400), default=3.0, show_default=True, help="How long, in days.")
@click.option(
    "--seed", type=int, metavar="N", help="What decides everything that happens. [default: another each time]"
)
@click.option("--seeds", type=click.IntRange(1), default=1, metavar="N", help="Try so many seeds, one after the other.")
@click.option(
    "--replicas",
    type=click.IntRange(1, MOST_REPLICAS),
    default=1,
    show_default=True,
    metavar="N",
    help="So many replicas share one store.",
)
@click.option(
    "--from-history", type=DURATION, metavar="7d", help="Events as recorded in the last days, not made-up ones."
)
@click.option("--fault", "faults", type=click.Choice(FAULTS), multiple=True, help="Only these faults. [default: all]")
@click.option("--write", metavar="FILE", type=click.Path(dir_okay=False), help="Where a failing history is written.")
def simulate_command(
    session: Session,
    days: float,
    seed: int | None,
    seeds: int,
    replicas: int,
    from_history: float | None,
    faults: tuple[str, ...],
    write: str | None,
) -> int:
    """Play days of faults on your configuration, without any account.

    Sources are stand-ins, and nothing outside is called. Prints what was lost and doubled, which must be 0 and 0; if it
    is not, the history is shortened and written as a test case, and the exit code is 1.
    """
    from random import SystemRandom

    from harken.simulation.seeded_fault_simulation import simulate

    first = SystemRandom().randrange(MOST_SEED) if seed is None else seed
    for number in range(first, first + seeds):
        began = time.perf_counter()
        with _Progress(days) as progress:
            report = simulate(
                session.directory,
                number,
                days=days,
                replicas=replicas,
                faults=faults or FAULTS,
                history_seconds=from_history,
                write=Path(write) if write else None,
                on_progress=progress.played,
                on_shrink=progress.shrunk,
            )
        _print(session, report, time.perf_counter() - began)
        if not report.ok:
            return 1
    return 0


def _print(session: Session, report: Report, seconds: float) -> None:
    if session.as_json:
        print_json(report.row())
        return
    events = "recorded events" if report.from_history else "made-up events"
    say(f"{report.days:g} days of {events}, {report.feeds} feeds, {report.triggers} triggers, seed {report.seed}")
    rows: tuple[tuple[str, Any], ...] = (
        ("events", f"{report.shown} shown, {report.recorded} recorded"),
        *([("tickets", report.tickets)] if report.tickets else []),
        ("runs", f"{report.runs}: {report.done} done, {report.failed} failed"),
        ("faults", ", ".join(f"{name} {count}" for name, count in report.planned.items()) or "none"),
        _processes(report),
        ("lost", report.lost),
        ("doubled", report.doubled),
        *([("labels", f"{report.mislabelled} do not match their runs")] if report.tickets else []),
    )
    for name, value in rows:
        say(f"{name:<9}{value}")
    for note in report.notes:
        say(note)
    for fault in report.faults:
        say(f"  {fault}")
    if report.file:
        say(f"The shortest history that fails has {report.items} items: {report.file}")
        say(f"Play it again: harken test {report.file}")
    say(f"Took {seconds:.1f} s. The same again: {report.command}")


def _processes(report: Report) -> tuple[str, str]:
    """What befell the process, or the replicas."""
    if report.replicas == 1:
        return "process", f"killed {report.kills} times, restarted {report.restarts} times"
    times = {"killed": report.kills, "restarted": report.restarts, "frozen": report.freezes, "cut off": report.cuts}
    return "replicas", f"{report.replicas}: " + ", ".join(f"{name} {count} times" for name, count in times.items())


class _Progress:
    """How far it is, on a terminal only."""

    def __init__(self, days: float) -> None:
        self._days = days
        self._shows = sys.stderr.isatty()
        self._at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shows and self._at:
            print(f"\r{'':<60}\r", end="", file=sys.stderr, flush=True)

    def played(self, seconds: float) -> None:
        self._tell(f"day {min(seconds / 86_400, self._days):.1f} of {self._days:g}")

    def shrunk(self, tries: int, items: int) -> None:
        self._tell(f"something is wrong; looking for the shortest history: {items} items after {tries} tries")

    def _tell(self, words: str) -> None:
        now = time.monotonic()
        if self._shows and now - self._at > 0.1:
            self._at = now
            print(f"\r{clean(words):<60}", end="", file=sys.stderr, flush=True)
