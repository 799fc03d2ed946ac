"""Many feeds: the cost of a tick at the same rate, memory, and how late ticks begin."""

from __future__ import annotations

import tempfile

import msgspec

from bench import bare_timers
from bench.figures import Figure, Say, at_most, percentile
from bench.measurement_sizes import Sizes
from bench.processes import report
from bench.scale_flow import Asked, Steady

__all__ = ["measure"]

FLAT = 1.15


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """The smallest number of feeds is measured first and last: the middle of both is what the others stand beside."""
    fewest, *more = sizes.scale
    first = _at(sizes, fewest, say)
    found = [(count, _at(sizes, count, say)) for count in more]
    last = _at(sizes, fewest, say)
    reference = (_cost(first) + _cost(last)) / 2
    figures = _figures(fewest, first, None)
    for count, steady in found:
        figures += _figures(count, steady, reference)
    return [*figures, _lag(sizes, say)]


def _at(sizes: Sizes, feeds: int, say: Say) -> Steady:
    steady = _run(feeds, feeds / sizes.scale_rate, sizes.scale_seconds)
    say(f"{feeds:,} feeds: {_cost(steady):.3f} ms CPU/tick, {_ms(steady, 99):.1f} ms p99 lag, {_rate(steady):,.0f}/s")
    return steady


def _run(feeds: int, interval: float, seconds: float) -> Steady:
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        asked = Asked(feeds=feeds, interval=interval, seconds=seconds, directory=scratch)
        return msgspec.convert(report("bench.scale_flow", msgspec.to_builtins(asked)), Steady)


def _figures(feeds: int, steady: Steady, reference: float | None) -> list[Figure]:
    cost = Figure(measure=f"{feeds:,} feeds: CPU per tick at {_rate(steady):,.0f}/s", value=_cost(steady), unit="ms")
    if reference is not None:
        ratio = _cost(steady) / reference
        fewest = msgspec.structs.replace(cost, limit=reference, limit_is="with the fewest feeds", ratio=ratio)
        cost = at_most(fewest, FLAT, of="ratio")
    return [
        cost,
        Figure(measure=f"{feeds:,} feeds: schedule lag, p50", value=_ms(steady, 50), unit="ms"),
        Figure(measure=f"{feeds:,} feeds: schedule lag, p99", value=_ms(steady, 99), unit="ms"),
        Figure(measure=f"{feeds:,} feeds: memory", value=steady.megabytes, unit="MB"),
    ]


def _lag(sizes: Sizes, say: Say) -> Figure:
    steady = _run(sizes.lag_feeds, sizes.lag_interval, sizes.scale_seconds)
    question = bare_timers.Asked(rate=_rate(steady), seconds=sizes.scale_seconds / 2)
    bare = percentile(report("bench.bare_timers", msgspec.to_builtins(question)), 99) * 1000
    what = f"{sizes.lag_feeds:,} feeds of {sizes.lag_interval:g} s"
    say(f"{what}: {_ms(steady, 99):.1f} ms p99 lag, {_cost(steady):.3f} ms CPU/tick")
    figure = Figure(
        measure=f"{what}: schedule lag, p99",
        value=_ms(steady, 99),
        unit="ms",
        limit=bare,
        limit_is="bare timers",
    )
    return at_most(figure, 100.0)


def _cost(steady: Steady) -> float:
    return steady.cpu * 1000 / max(1, steady.ticks)


def _rate(steady: Steady) -> float:
    return steady.ticks / steady.seconds


def _ms(steady: Steady, percent: float) -> float:
    return percentile(steady.lags, percent) * 1000
