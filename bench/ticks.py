"""Ticks: the CPU of reading a JSON listing that has nothing new, with its state on disk, beside a bare GET of it."""

from __future__ import annotations

import tempfile

import msgspec

from bench.figures import Figure, Say, at_most, middle
from bench.processes import child, report
from bench.sizes import Sizes
from bench.tick_flow import Asked

__all__ = ["measure"]

WAYS = {"etag": "304 Not Modified", "plain": "200, same body"}


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """One figure for servers that answer conditional requests, one for those that send everything again."""
    with child("bench.listing") as server:
        address = f"http://127.0.0.1:{int(server.line())}"
        return [_figure(sizes, f"{address}/{way}", way, say) for way in WAYS]


def _figure(sizes: Sizes, address: str, way: str, say: Say) -> Figure:
    ticks: list[float] = []
    gets: list[float] = []
    for number in range(sizes.rounds):
        ticks.append(_round(sizes, address, way, bare=False))
        gets.append(_round(sizes, address, way, bare=True))
        say(f"round {number + 1}, {WAYS[way]}: {ticks[-1]:.3f} ms CPU/tick; bare GET {gets[-1]:.3f} ms")
    tick, get = middle(ticks), middle(gets)
    figure = Figure(
        measure=f"tick: CPU ({WAYS[way]})", value=tick, unit="ms", limit=get, limit_is="aiohttp GET", ratio=tick / get
    )
    return at_most(figure, 2.0, of="ratio")


def _round(sizes: Sizes, address: str, way: str, *, bare: bool) -> float:
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        asked = Asked(
            bare=bare,
            address=address,
            conditional=way == "etag",
            feeds=sizes.tick_feeds,
            passes=sizes.tick_passes,
            directory=f"{scratch}/site",
        )
        return float(report("bench.tick_flow", msgspec.to_builtins(asked))) * 1000
