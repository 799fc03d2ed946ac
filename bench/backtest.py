"""A backtest over a million stored events: the condition alone, with the verdicts checked and the clauses blamed."""

from __future__ import annotations

import tempfile

import msgspec

from bench.backtest_flow import History, Tested
from bench.figures import Figure, Say, at_most, middle
from bench.measurement_sizes import Sizes
from bench.processes import report

__all__ = ["measure"]


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """Each round has a process and a file of its own."""
    rounds = [_round(sizes.growth_rows) for _ in range(sizes.rounds)]
    for number, tested in enumerate(rounds):
        say(
            f"round {number + 1}: {tested.seconds:.2f} s ({tested.cpu:.2f} s of the processor), "
            f"changed {tested.changed:.2f} s, a bare scan {tested.bare:.2f} s of the processor, "
            f"{tested.checked:,} checked, {tested.differing} differ"
        )
    over = f"backtest of {sizes.growth_rows:,} events"
    seconds, changed = middle([one.seconds for one in rounds]), middle([one.changed for one in rounds])
    beside = middle([one.cpu / one.bare for one in rounds])
    used = middle([one.cpu for one in rounds])
    return [
        at_most(Figure(measure=f"{over}, a pure condition: CPU", value=used, unit="s"), 2),
        at_most(Figure(measure=f"{over}: CPU beside a bare scan of the same rows", value=beside, unit="×"), 4),
        at_most(Figure(measure=f"{over}, a pure condition", value=seconds, unit="s"), 2),
        at_most(Figure(measure=f"{over}, a changed condition", value=changed, unit="s"), 2),
        at_most(
            Figure(measure=f"{over}: verdicts that differ", value=max(one.differing for one in rounds), unit=""), 0
        ),
    ]


def _round(events: int) -> Tested:
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        asked = History(events=events, directory=scratch)
        return msgspec.convert(report("bench.backtest_flow", msgspec.to_builtins(asked)), Tested)
