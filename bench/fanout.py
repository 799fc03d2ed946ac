"""A thousand triggers on one feed, and a thousand secrets: what one event costs, and how much of it is stored."""

from __future__ import annotations

import tempfile

import msgspec

from bench.fanout_flow import Fanout, Spent
from bench.figures import Figure, Say, at_most, middle
from bench.measurement_sizes import Sizes
from bench.processes import report

__all__ = ["measure"]

THOUSAND = 1_000
DECLINED, WANTED = 60, 3


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """Each round has a process and a file of its own."""
    many = min(THOUSAND, sizes.webhook_events)
    rounds = [_round(many) for _ in range(sizes.rounds)]
    for number, spent in enumerate(rounds):
        say(f"round {number + 1}: no trigger {spent.declined * 1000:.1f} ms and {spent.bytes:,.0f} B, "
            f"all {spent.claimed * 1000:.0f} and {spent.handed * 1000:.0f} ms, "
            f"secrets {spent.search * 1e6:.0f} µs")  # fmt: skip
    return _figures(rounds, many)


def _round(many: int) -> Spent:
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        asked = Fanout(triggers=many, declined=DECLINED, wanted=WANTED, secrets=many, directory=scratch)
        return msgspec.convert(report("bench.fanout_flow", msgspec.to_builtins(asked)), Spent)


def _figures(rounds: list[Spent], many: int) -> list[Figure]:
    on = f"{many:,} triggers on one feed"
    declined, claimed = middle([one.declined for one in rounds]), middle([one.claimed for one in rounds])
    kept, handed = middle([one.bytes for one in rounds]), middle([one.handed for one in rounds])
    search = middle([one.search for one in rounds])
    return [
        at_most(Figure(measure=f"{on}, none fires: CPU per event", value=declined * 1000, unit="ms"), 4),
        at_most(Figure(measure=f"{on}, none fires: stored per event", value=kept, unit="B"), 12_000),
        at_most(Figure(measure=f"{on}, all fire: CPU of the first event", value=claimed * 1000, unit="ms"), 150),
        at_most(Figure(measure=f"{on}, all fire: CPU per event", value=handed * 1000, unit="ms"), 60),
        at_most(Figure(measure=f"search for {many:,} secrets per event", value=search * 1e6, unit="µs"), 30),
    ]
