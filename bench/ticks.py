"""Ticks: the CPU of reading a JSON listing that has nothing new, with its state on disk, beside a bare GET of it."""

from __future__ import annotations

import tempfile

import msgspec

from bench.figures import Figure, Say, at_most, middle
from bench.measurement_sizes import Sizes
from bench.processes import child, report
from bench.tick_flow import Asked, Round

__all__ = ["measure"]

WAYS = {"etag": "304 Not Modified", "plain": "200, same body"}


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """One figure for servers that answer conditional requests, one for those that send everything again."""
    with child("bench.listing_server") as server:
        address = f"http://127.0.0.1:{int(server.line())}"
        return [_figure(sizes, f"{address}/{way}", way, say) for way in WAYS]


def _figure(sizes: Sizes, address: str, way: str, say: Say) -> Figure:
    rounds = [one for number in range(sizes.rounds) for one in _rounds(sizes, address, way, number, say)]
    tick, get = middle([one.tick for one in rounds]), middle([one.get for one in rounds])
    figure = Figure(
        measure=f"tick: CPU ({WAYS[way]})",
        value=tick * 1000,
        unit="ms",
        limit=get * 1000,
        limit_is="aiohttp GET",
        ratio=middle([one.tick / one.get for one in rounds]),
    )
    return at_most(figure, 2.0, of="ratio")


def _rounds(sizes: Sizes, address: str, way: str, number: int, say: Say) -> list[Round]:
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        asked = Asked(
            address=address,
            conditional=way == "etag",
            feeds=sizes.tick_feeds,
            passes=sizes.tick_passes,
            directory=f"{scratch}/site",
        )
        rounds = msgspec.convert(report("bench.tick_flow", msgspec.to_builtins(asked)), list[Round])
    tick, get = middle([one.tick for one in rounds]), middle([one.get for one in rounds])
    say(f"round {number + 1}, {WAYS[way]}: {tick * 1000:.3f} ms CPU/tick; bare GET {get * 1000:.3f} ms")
    return rounds
